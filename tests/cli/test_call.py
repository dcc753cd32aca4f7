"""`fedse.run` from Python: a file, keys or an object; what it prints, what it returns, how it complains."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fedse
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.models.table import Table
from fedse.worlds.maze import Maze


@pytest.fixture
def file(table_experiment: Callable[..., Experiment], tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(table_experiment().to_yaml())
    return path


@pytest.mark.slow
def test_a_file_its_keys_and_an_object_are_the_same_run(file: Path, tmp_path: Path) -> None:
    experiment = fedse.load_experiment(file)
    given = [str(file), file, experiment, experiment.model_dump(mode="json")]
    found = [fedse.run(item, tmp_path / str(number)) for number, item in enumerate(given)]
    assert len({result.adapter.digest() for result in found}) == 1


def test_the_result_has_the_curve_and_a_short_name(file: Path, tmp_path: Path) -> None:
    result = fedse.run(file, tmp_path)
    reports = [json.loads((result.folder / f"rounds/000{n}/report.json").read_text()) for n in (1, 2)]
    expected = [*(report["evaluation"]["macro"] for report in reports), result.validation["macro"]]
    assert result.curve == dict(enumerate(expected))
    assert set(result.curves) == {"east: maze", "west: maze"} and list(result.curves["east: maze"]) == [0, 1, 2]
    assert repr(result) == (
        f"RunResult({tmp_path / 'table'}: macro {100 * expected[0]:.1f} % before any round, "
        f"macro {100 * expected[-1]:.1f} % after round 2, macro {100 * result.test['macro']:.1f} % on the test)"
    )


def test_it_prints_what_happens_where_that_is_wanted(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedse.run(file, tmp_path / "quiet")
    assert capsys.readouterr().out == ""
    fedse.run(file, tmp_path / "told", verbose=True)
    told = capsys.readouterr().out
    assert told.startswith("table: preparing model table\n") and "round 2 of 2 done" in told


@pytest.mark.slow
def test_behind_a_prompt_it_prints_by_itself(file: Path, tmp_path: Path) -> None:
    program = f"import sys; sys.ps1 = '>>> '; import fedse; fedse.run({str(file)!r}, {str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "round 2 of 2 done" in done.stdout, done.stderr


def test_a_notebook_gets_plain_lines(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # As Jupyter's kernels do, whose output is not a terminal.
    fedse.run(file, tmp_path, verbose=True)
    told = capsys.readouterr().out
    assert "round 2 of 2 done" in told and "\x1b" not in told


def test_dir_shows_what_there_is() -> None:
    assert sorted(fedse.__all__) == dir(fedse)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rounds": -1}, "Experiment: rounds: input should be greater than or equal to 0, got -1."),
        ({"learnr": "table"}, "Experiment: learnr: unknown key; did you mean 'learner'?"),
        (
            {"filter": {"name": "none", "keep": 1}},
            "Experiment: filter.keep: unknown key; it takes no options. A class of",
        ),
        ({"aggregator": "meen"}, "Experiment: aggregator: unknown aggregator 'meen': did you mean"),
    ],
)
def test_what_is_wrong_with_an_experiment_is_a_sentence(
    table_experiment: Callable[..., Experiment], change: dict[str, object], sentence: str
) -> None:
    with pytest.raises(BadInput) as caught:
        table_experiment(**change)
    assert str(caught.value).startswith(sentence)


def test_what_is_wrong_with_a_world_or_a_model_is_a_sentence() -> None:
    with pytest.raises(BadInput, match=r"^maze: there is no option 'sise': did you mean 'size'\?"):
        Maze(sise=4)
    with pytest.raises(BadInput, match=r"^model Table: there is no option 'row': did you mean 'rows'\?"):
        Table(row=4)
    with pytest.raises(BadInput, match=r"^maze: option 'size': Input should be a valid integer"):
        Maze(size="huge")
