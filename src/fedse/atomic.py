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
    """Yields a temporary folder; it takes the name `path` when the block ends, in place of what was there."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            for file in [*temporary.rglob("*"), temporary]:
                _flush(file)
            shutil.rmtree(path, ignore_errors=True)
            temporary.replace(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        _flush_folder(path.parent)


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
