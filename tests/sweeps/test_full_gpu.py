"""Runs that share a GPU which does not hold them all: those that find no room go on later."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedse.errors import GpuFull
from fedse.sweeps import processes
from fedse.sweeps.processes import Result, State, work_off

RUN = """
import pathlib, sys, time
name, room = sys.argv[1], int(sys.argv[2])
def wait_for(there):
    while not there():
        time.sleep(0.01)
on_card = lambda: len(list(pathlib.Path("card").iterdir()))
if room and name != "a":
    wait_for(lambda: on_card() or pathlib.Path("a.done").exists())
pathlib.Path("tried", name).touch()
if on_card() >= room:
    print("fedse: the GPU has no memory left")
    raise SystemExit(FULL)
pathlib.Path("card", name).touch()
wait_for(lambda: len(list(pathlib.Path("tried").iterdir())) == 4)
pathlib.Path("card", name).unlink()
pathlib.Path(name + ".done").touch()
""".replace("FULL", str(GpuFull.exit_code))
"""The first has the card until all others have tried, and nobody tries before it is there."""


@dataclass
class ACell:
    """What working off needs to know of a cell."""

    name: str
    folder: Path

    def is_complete(self) -> bool:
        return (self.folder.parent / f"{self.name}.done").exists()


@pytest.fixture
def on_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ACell]:
    """Four cells on a card that holds as many as the file `room` says."""
    for name in ("card", "tried", ".sweep"):
        (tmp_path / name).mkdir()

    def start(cell: ACell, *_: object) -> processes._Running:
        log = processes.log_of(cell).open("wb")  # type: ignore[arg-type]
        line = [sys.executable, "-S", "-c", RUN, cell.name, (tmp_path / "room").read_text()]
        process = subprocess.Popen(line, cwd=tmp_path, stdout=log, stderr=log)
        return processes._Running(cell, process, log)  # type: ignore[arg-type]

    monkeypatch.setattr(processes, "_start", start)
    return [ACell(name, tmp_path / name) for name in ("a", "b", "c", "d")]


def worked(cells: list[ACell], at_once: int) -> tuple[dict[str, Result], list[tuple[str, Result]]]:
    told: list[tuple[str, Result]] = []
    return work_off(cells, at_once, finished=lambda cell, result: told.append((cell.name, result))), told  # type: ignore[arg-type]


def test_who_finds_no_room_beside_others_goes_on_later_beside_fewer(tmp_path: Path, on_a_card: list[ACell]) -> None:
    (tmp_path / "room").write_text("1")
    results, told = worked(on_a_card, 4)
    assert {result.state for result in results.values()} == {State.DONE}
    put_off = [result for _, result in told if result.state is State.WAITING]
    assert len(put_off) == 3 and "resumed later, with 1 at a time" in put_off[-1].why
    assert sorted(name for name, result in told if result.state is State.DONE) == ["a", "b", "c", "d"]


def test_who_finds_no_room_alone_has_failed(tmp_path: Path, on_a_card: list[ACell]) -> None:
    (tmp_path / "room").write_text("0")
    results, told = worked(on_a_card[:2], 2)
    assert {result.state for result in results.values()} == {State.FAILED}
    assert {result.why for result in results.values()} == {"the GPU has no memory left"}
    assert len(told) < 5, "nobody is tried for ever"
