"""The tracker `tensorboard`: what TensorBoard would read is what the reports say."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.errors import BadInput, UnknownName
from fedse.events import EpisodesPlayed, RoundFinished, RoundStarted
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView
from fedse.trackers import tensorboard

Make = Callable[..., Experiment]
Scalars = dict[str, dict[int, float]]


def records(file: Path) -> Iterator[bytes]:
    """TensorBoard's format: length, checksum, content, checksum."""
    content, place = file.read_bytes(), 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        yield content[place + 12 : place + 12 + length]
        place += 16 + length


def scalars(folder: Path) -> Scalars:
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found: Scalars = {}
    for file in sorted(folder.glob("events.out.tfevents.*")):
        for record in records(file):
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def test_scalars_are_those_of_the_reports_also_when_the_run_goes_on(table_experiment: Make, tmp_path: Path) -> None:
    for rounds in (1, 2):
        fedse.run(table_experiment(rounds=rounds, trackers=["tensorboard"]), tmp_path)
    view = RunView.existing(tmp_path / "table")
    found = scalars(view.path / "tensorboard")
    for number in (1, 2):
        report: Any = view.report(number)
        for row in report["evaluation"]["worlds"]:
            assert found[f"validation/{row['client']}/{row['world']}"][number - 1] == pytest.approx(row["success"])
        for client, entry in report["clients"].items():
            assert found[f"experience/{client}/buffer"][number] == entry["counts"]["buffer"]
            assert found[f"learning/{client}/loss"][number] == pytest.approx(entry["metrics"]["loss"])
        assert found["round/seconds"][number] == pytest.approx(report["seconds"], abs=1e-3)
    decoded, sums = 0, {}
    for logged in view.events():
        match logged.event:
            case RoundStarted():
                decoded = 0
            case EpisodesPlayed():
                decoded += logged.event.decoded
            case RoundFinished():
                sums[logged.event.round] = decoded
    assert found["tokens/decoded"] == sums, "closing evaluations are not part of a round"
    test: Any = view.evaluation("test", 2)
    assert found["test/macro"][2] == pytest.approx(test["macro"])


def test_it_writes_where_it_is_told_and_is_no_part_of_the_experiment(table_experiment: Make, tmp_path: Path) -> None:
    plain = table_experiment(rounds=1)
    fedse.run(plain, tmp_path / "runs")
    told = table_experiment(rounds=2, trackers=[{"name": "tensorboard", "folder": str(tmp_path / "board")}])
    assert told.model_copy(update={"rounds": 1}).identity() == plain.identity() and told.terms() == plain.terms()
    fedse.run(told, tmp_path / "runs")
    assert scalars(tmp_path / "board/table")["round/seconds"].keys() == {2}
    assert not (tmp_path / "runs/table/tensorboard").exists()


def test_without_its_library_the_run_is_refused_and_nothing_is_written(
    table_experiment: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'fedse\[tensorboard\]'"):
        fedse.run(table_experiment(rounds=1, trackers=["tensorboard"]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_nobody_knows_is_refused(table_experiment: Make) -> None:
    with pytest.raises((UnknownName, ValueError), match="unknown tracker 'tensorbord': did you mean 'tensorboard'"):
        table_experiment(trackers=["tensorbord"])
