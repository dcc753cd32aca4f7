"""The examples run as they stand, and show what they say."""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.errors import FedseError
from fedse.models.table import TENSOR, Table
from fedse.types import Lesson, Outcome, Purpose, Step, Trajectory

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = json.loads((EXAMPLES / "quickstart.ipynb").read_text())
CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(autouse=True)
def among_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")


@pytest.fixture
def executed() -> Iterator[dict[str, Any]]:
    """The notebook's names after all its cells ran, as in a kernel of its own, with what each cell printed."""
    space: dict[str, Any] = {"__name__": "quickstart", "printed": []}
    module = type(sys)("quickstart")
    module.__dict__.update(space)
    sys.modules["quickstart"] = module
    for number, cell in enumerate(CELLS):
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), module.__dict__)  # noqa: S102
        module.__dict__["printed"].append(told.getvalue())
    yield module.__dict__
    del sys.modules["quickstart"]


def test_the_notebook_runs_prints_what_it_shows_and_the_agent_learns(executed: dict[str, Any]) -> None:
    shown = ["".join(out["text"]) for cell in CELLS for out in cell["outputs"] if out["output_type"] == "stream"]
    assert [text for text in executed["printed"] if text] == shown
    assert executed["experiment"].rounds == 3 and len(executed["experiment"].clients) == 2
    for curve in executed["result"].curves.values():
        assert list(curve) == [0, 1, 2, 3] and curve[3] > curve[0] + 0.5
    lines = executed["axis"].get_lines()
    assert [len(line.get_xdata()) for line in lines[:2]] == [4, 4]


def test_the_page_about_the_first_world_has_the_notebooks_world() -> None:
    page = (EXAMPLES.parent / "docs/learn/first_world.md").read_text()
    (world,) = re.findall(r'^```python title="help_desk.py"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    assert world.strip() == "".join(CELLS[0]["source"]).strip()


@pytest.mark.slow
def test_the_curriculum_goes_where_success_is(capsys: pytest.CaptureFixture[str]) -> None:
    import easy_first

    easy_first.main()
    rounds = [
        {category: int(count) for category, count in re.findall(r"(\w+) (\d+)", line.split(":")[1])}
        for line in capsys.readouterr().out.splitlines()
    ]
    assert len(rounds) == 4 and all(sum(explored.values()) == 36 for explored in rounds)
    assert max(rounds[0].values()) < 24 <= max(rounds[-1].values()), "three of four are of one category"


@pytest.mark.slow
def test_the_learner_prefers_what_took_fewer_turns(capsys: pytest.CaptureFixture[str]) -> None:
    import short_is_better

    def walked(*actions: str, reward: float) -> Trajectory:
        steps = tuple(Step("a crossing", "", "", action, True) for action in actions)
        whole = ("here", "maze", "1", Purpose.EXPLORE, 1, 0, "", steps, "", Outcome.SUCCESS, 1.0, (), ())
        return Trajectory(*whole, rewards={"by_turns": reward})

    model = Table()
    learner = short_is_better.Weighted(model)
    long, short = walked("move up", reward=0.1), walked("move left", reward=0.5)
    learned = learner.learn(Lesson(model.initial_adapter(0), [long, short], 0))
    assert learned is not None
    scores = learned[0].tensors[TENSOR][model.row("a crossing")]
    assert model.actions[scores.argmax()] == "move left" and scores[model.actions.index("move up")] > 0
    assert learner.learn(Lesson(model.initial_adapter(0), [], 0)) is None
    short_is_better.main()
    *shown, last = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in shown] == ["table", "Weighted"]
    assert all(line.endswith("% of 25 validation tasks") for line in shown) and "no result" in last


@pytest.mark.slow
def test_the_private_world_teaches_and_nothing_of_it_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    import private_world

    private_world.main()
    assert capsys.readouterr().out == "success: east 100 %, west 100 %\nsubjects that left a site: []\n"


def test_a_private_world_whose_service_is_down_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    import private_world

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(FedseError):
        fedse.run(private_world.experiment(url), tmp_path)
