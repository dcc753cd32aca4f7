"""A disk that is really full (a small file system in memory): a clear error, and nothing half-written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedse.adapters.files import write_adapter
from fedse.adapters.stored import store_update
from fedse.errors import CannotWrite
from fedse.events import RoundStarted, Warned
from fedse.experience.buffer import Buffer
from fedse.experience.export import export
from fedse.runs.event_log import EventLog, EventReader
from fedse.runs.folder import RunFolder
from fedse.runs.portable import pack, unpack
from fedse.types import Adapter, ClientUpdate, Outcome, Purpose, Step, Trajectory

FULL = "cannot write .*(the disk is full|disk is full)"
SMALL = Adapter({"x": np.ones(100, dtype=np.float32)})
LARGE = Adapter({"x": np.random.default_rng(0).standard_normal(600_000).astype(np.float32)})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _trajectory(number: int, length: int = 10) -> Trajectory:
    step = Step("o" * length, "r", "t", "a", True)
    return Trajectory(
        "site", "w", f"t{number}", Purpose.EXPLORE, 1, 0, "", (step,), "", Outcome.SUCCESS, 1.0, (number,), (True,)
    )


def _fill(disk: Path) -> Path:
    """Take every byte that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return filler


def test_a_round_that_does_not_fit_leaves_the_run_as_it_was(disk: Path) -> None:
    run = RunFolder.create(disk / "probe", "name: probe\n", "digest")
    run.save_round(0, "d0", lambda folder: write_adapter(SMALL, folder))
    before = _files(disk)
    for number in (0, 1):
        with pytest.raises(CannotWrite, match=FULL):
            run.save_round(number, "d1", lambda folder: write_adapter(LARGE, folder))
        assert _files(disk) == before
    assert RunFolder.existing(run.path).last_round() == 0
    run.save_round(1, "d1", lambda folder: write_adapter(SMALL, folder))
    assert run.last_round() == 1


def test_a_manifest_that_does_not_fit_stays_the_old_one(disk: Path) -> None:
    run = RunFolder.create(disk / "probe", "name: probe\n", "digest")
    filler = _fill(disk)
    with pytest.raises(CannotWrite, match=FULL):
        run.replace_experiment("name: other\n", "other")
    filler.unlink()
    assert _files(run.path).keys() == {"experiment.yaml", "manifest.json"}
    assert (run.experiment(), run.manifest()["experiment"]) == ("name: probe\n", "digest")


def test_a_run_cannot_begin_on_a_full_disk_and_can_once_there_is_space(disk: Path) -> None:
    filler = _fill(disk)
    with pytest.raises(CannotWrite, match=FULL):
        RunFolder.create(disk / "probe", "name: probe\n", "digest")
    assert _files(disk).keys() == {"filler"}
    filler.unlink()
    assert RunFolder.create(disk / "probe", "name: probe\n", "digest").experiment() == "name: probe\n"


def test_an_update_that_does_not_fit_is_one_clear_sentence(disk: Path) -> None:
    update = ClientUpdate("site", 1, LARGE.tensors["x"], LARGE.layout, {}, {})
    with pytest.raises(CannotWrite, match=FULL):
        store_update(update, disk / "spool")


def test_a_buffer_keeps_what_it_had_and_goes_on_once_there_is_space(disk: Path) -> None:
    buffer = Buffer(disk / "buffer.sqlite", "site", "print")
    buffer.remember(1, [_trajectory(0)])
    for _ in range(2):
        with pytest.raises(CannotWrite, match=FULL):
            buffer.remember(1, [_trajectory(number, 20_000) for number in range(100)])
        assert buffer.read() == [_trajectory(0)]
    assert buffer.remember(1, [_trajectory(5)]) == 1
    buffer.close()
    assert Buffer(disk / "buffer.sqlite", "site", "print").read() == [_trajectory(5)]


def test_a_buffer_cannot_begin_on_a_full_disk_and_can_once_there_is_space(disk: Path) -> None:
    filler = _fill(disk)
    with pytest.raises(CannotWrite, match="cannot write"):
        Buffer(disk / "buffer.sqlite", "site", "print")
    filler.unlink()
    assert Buffer(disk / "buffer.sqlite", "site", "print").remember(1, [_trajectory(0)]) == 1


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_an_export_that_does_not_fit_leaves_nothing(disk: Path, ending: str) -> None:
    pytest.importorskip("pyarrow")
    draw = np.random.default_rng(0)
    large = [
        Trajectory(
            "site", "w", f"t{number}", Purpose.EXPLORE, 1, 0, "", (), "", Outcome.SUCCESS, 1.0,
            tuple(draw.integers(0, 2**31, 3000).tolist()), (True,) * 3000,
        )
        for number in range(150)
    ]  # fmt: skip
    with pytest.raises(CannotWrite, match=FULL):
        export(large, disk / f"out.{ending}")
    assert _files(disk) == {}


def test_packing_to_a_full_disk_leaves_nothing(disk: Path, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "probe", "name: probe\n", "digest")
    run.save_round(0, "d0", lambda folder: write_adapter(LARGE, folder))
    with pytest.raises(CannotWrite, match=FULL):
        pack(run, disk / "out.tar.gz")
    assert _files(disk) == {}


def test_unpacking_to_a_full_disk_leaves_nothing(disk: Path, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "probe", "name: probe\n", "digest")
    run.save_round(0, "d0", lambda folder: write_adapter(LARGE, folder))
    pack(run, tmp_path / "out.tar.gz")
    with pytest.raises(CannotWrite, match=FULL):
        unpack(tmp_path / "out.tar.gz", disk)
    assert list(disk.iterdir()) == []


def test_events_that_do_not_fit_stop_nothing_and_leave_no_torn_line(disk: Path) -> None:
    log = EventLog(disk / "events.jsonl", lambda: 0)
    log.record(RoundStarted(round=1))
    filler = _fill(disk)
    log.record(Warned(message="x" * 10_000))
    filler.unlink()
    log.record(RoundStarted(round=2))
    assert [logged.event for logged in EventReader(log.path).new()] == [RoundStarted(round=1), RoundStarted(round=2)]
