"""The tracker `tensorboard`: what TensorBoard would read is what the reports say."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from told_scalars import Scalars, told_scalars

import fedse
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.trackers import outside

Make = Callable[..., Experiment]


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


@pytest.mark.slow
def test_scalars_are_those_of_the_reports_also_when_the_run_goes_on(table_experiment: Make, tmp_path: Path) -> None:
    for rounds in (1, 2):
        fedse.run(table_experiment(rounds=rounds, trackers=["tensorboard"]), tmp_path)
    found, told = scalars(tmp_path / "table/tensorboard"), told_scalars(tmp_path / "table")
    assert found.keys() == told.keys() and len(told) > 20
    for name, values in told.items():
        assert found[name] == pytest.approx(values, rel=1e-5), name


@pytest.mark.slow
def test_it_writes_where_it_is_told_and_is_no_part_of_the_experiment(table_experiment: Make, tmp_path: Path) -> None:
    plain = table_experiment(rounds=1)
    fedse.run(plain, tmp_path / "runs")
    told = table_experiment(rounds=2, trackers=[{"name": "tensorboard", "folder": str(tmp_path / "board")}])
    assert told.model_copy(update={"rounds": 1}).identity() == plain.identity() and told.terms == plain.terms
    fedse.run(told, tmp_path / "runs")
    assert scalars(tmp_path / "board/table")["round/seconds"].keys() == {2}
    assert not (tmp_path / "runs/table/tensorboard").exists()


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb", "mlflow"])
def test_without_its_library_the_run_is_refused_and_nothing_is_written(
    table_experiment: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(outside, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=rf"trackers: '{name}' needs .*pip install -e '\.\[{name}\]'"):
        fedse.run(table_experiment(rounds=1, trackers=[name]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_nobody_knows_is_refused(table_experiment: Make) -> None:
    with pytest.raises(BadInput, match="unknown tracker 'tensorbord': did you mean 'tensorboard'"):
        table_experiment(trackers=["tensorbord"])
