"""Files and folders that are there whole or not at all, also after a power cut."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedse.errors import CannotWrite

_EXPLAINED = {
    errno.ENOSPC: "the disk is full: free some space, then run the same command again",
    errno.EDQUOT: "the disk quota is used up: free some space, then run the same command again",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: "permission denied: choose a folder you may write to",
    errno.EPERM: "permission denied: choose a folder you may write to",
    errno.EEXIST: "a file stands where a folder should be: choose another folder",
    errno.EISDIR: "a folder of this name is in the way: choose another name",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.ENOTDIR: "a part of the path is a file: choose another folder",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write into one clear sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in _EXPLAINED:
            raise CannotWrite(f"cannot write {path}: {_EXPLAINED[error.errno]}.") from error
        raise


def write_text(path: Path, text: str) -> None:
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yields a temporary name; what was written there is flushed to disk and renamed when the block ends."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        try:
            yield temporary
            _flush(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder; it takes the name `path` when the block ends, in place of what was there.

    Killed at the worst moment there is no `path`, but never a part of the old or the new one.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        take_back(path)
        temporary, old = _scraps(path)
        temporary.mkdir()
        try:
            yield temporary
            for file in [*temporary.rglob("*"), temporary]:
                _flush(file)
            if path.is_dir() and not path.is_symlink():
                # Removing takes a while, and a folder that is half removed may look whole.
                path.replace(old)
            temporary.replace(path)
            _flush_folder(path.parent)
        except BaseException:
            take_back(path)
            raise
        shutil.rmtree(old, ignore_errors=True)


def take_back(path: Path) -> None:
    """Undo what a killed `new_folder` left: the old folder gets its name back if it had lost it, scraps are removed."""
    temporary, old = _scraps(path)
    if old.exists() and not path.exists():
        old.replace(path)
    for scraps in (temporary, old):
        shutil.rmtree(scraps, ignore_errors=True)


def _scraps(path: Path) -> tuple[Path, Path]:
    """Where a new folder is made, and where the old one waits for its end."""
    return path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.old.part")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(path: Path) -> None:
    # Windows cannot open a folder to flush it.
    if os.name == "posix":
        _flush(path)
