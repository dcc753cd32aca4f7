"""The tracker `trackio`: what trackio stored is what reports and journals say, and conversations stay where they may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from told_scalars import Scalars, told_scalars

import fedse
from fedse.errors import BadInput
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.experiments.running import prepare

storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
utils = pytest.importorskip("trackio.utils")

Make = Callable[..., Experiment]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """trackio reads its folder from the environment once, when it is imported."""
    for module in ("trackio.utils", "trackio.sqlite_storage"):
        monkeypatch.setattr(f"{module}.TRACKIO_DIR", tmp_path / "trackio")
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)


def scalars(project: str, run: str) -> Scalars:
    found: Scalars = {}
    for row in storage.get_logs(project, run):
        for name, value in row.items():
            if isinstance(value, int | float) and name not in ("step", "id"):
                found.setdefault(name, {})[row["step"]] = value
    return found


@pytest.mark.slow
def test_what_trackio_stores_is_what_the_reports_say_also_when_the_run_goes_on(
    table_experiment: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rounds in (1, 2):
        fedse.run(table_experiment(rounds=rounds, trackers=["trackio"]), tmp_path)
    assert "trackio" not in capsys.readouterr().out.lower(), "it does not speak between our lines"
    assert len(storage.get_run_records("fedse")) == 1, "one run, though it was begun twice"
    found, told = scalars("fedse", "table"), told_scalars(tmp_path / "table")
    assert found.keys() == told.keys() and len(told) > 20
    for name, values in told.items():
        assert found[name] == pytest.approx(values), name
    assert storage.get_traces("fedse", "table") == [], "nobody asked for conversations"


def test_episodes_are_shown_as_they_are_in_the_journal(table_experiment: Make, tmp_path: Path) -> None:
    chosen = {"name": "trackio", "project": "mine", "traces": 3}
    fedse.run(table_experiment(rounds=1, trackers=[chosen]), tmp_path)
    shown: list[dict[str, Any]] = storage.get_traces("mine", "table")
    assert len(shown) == 2 * 3 * 3, "two clients; the round, validation and test"
    journal = Journal(tmp_path / "table/clients/east/episodes")
    known = {(item.task, *(step.reply for step in item.steps)): item for item in journal.read("0001")}
    of_round = [trace for trace in shown if trace["key"] == "episodes/east"]
    assert len({trace["metadata"]["task"] for trace in of_round}) == 3
    for trace in of_round:
        said = [message["content"] for message in trace["messages"] if message["role"] == "assistant"]
        item = known[trace["metadata"]["task"], *said]
        assert trace["messages"][0] == {"role": "user", "content": item.rules}
        assert trace["messages"][-1] == {"role": "user", "content": item.closing}
        assert (trace["metadata"]["outcome"], trace["metadata"]["score"]) == (item.outcome, item.score)


def test_a_hub_has_no_trajectories_to_show_and_says_so(table_experiment: Make, tmp_path: Path) -> None:
    told = table_experiment(trackers=[{"name": "trackio", "traces": 1}])
    with pytest.raises(BadInput, match="'trackio' is set to show trajectories, which never leave the sites"):
        prepare(told, tmp_path, make_engine=lambda sites: SimpleNamespace(clients=sites.names))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"])
def test_conversations_are_not_sent_to_another_machine(
    table_experiment: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "https://elsewhere.example")
    with pytest.raises(BadInput, match=f"with {name} set, trackio sends what it is told to another machine"):
        fedse.run(table_experiment(trackers=[{"name": "trackio", "traces": 1}]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_the_users_own_is_left_alone(table_experiment: Make, tmp_path: Path) -> None:
    import trackio

    own = trackio.init(project="own", name="mine", embed=False, auto_log_cpu=False, auto_log_gpu=False)
    fedse.run(table_experiment(rounds=1, trackers=["trackio"]), tmp_path)
    trackio.log({"loss": 2.5}, step=7)
    own.finish()
    assert scalars("own", "mine") == {"loss": {7: 2.5}}
