"""One file that holds a whole run, to move it to another machine and go on there."""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from fedse.errors import BadInput, BufferUnusable
from fedse.runs.folder import RunFolder
from fedse.runs.record import file_digest
from fedse.storage import atomic, strict_json
from fedse.storage.database import look

_LEFT_OUT = {".lock", ".updates", "set_aside"}
_LISTING = "CONTENTS.json"
_LONGEST_LISTING = 64 * 2**20
_ROOM = 64 * 2**20
_DENSEST = 100
"""Bytes that one packed byte may become, which is more than any run needs: they shrink to a half or a tenth."""


def pack(run: RunFolder, target: Path) -> None:
    """Write `target` (a .tar.gz). Buffers are copied through SQLite, so their write-ahead logs are included."""
    if target.exists():
        raise BadInput(f"{target} exists already: choose another name or remove it.")
    run.lock_to_read()
    try:
        with atomic.new_file(target) as part, TemporaryDirectory() as scratch:
            _write(run, part, Path(scratch))
    finally:
        run.unlock()


def _write(run: RunFolder, part: Path, scratch: Path) -> None:
    listed: dict[str, Any] = {}
    top = run.path.resolve().name
    with tarfile.open(part, "w:gz") as archive:
        for file in sorted(run.path.rglob("*")):
            name = file.relative_to(run.path)
            if not file.is_file() or _stays_here(name) or file.name.endswith(("-wal", "-shm")):
                continue
            source = _settled(file, scratch) if file.suffix == ".sqlite" else file
            listed[name.as_posix()] = file_digest(source)
            archive.add(source, f"{top}/{name.as_posix()}")
        listing = scratch / _LISTING
        listing.write_text(json.dumps(listed, indent=2))
        archive.add(listing, f"{top}/{_LISTING}")


def _stays_here(file: Path) -> bool:
    """Whether a file of a run is no part of what is packed. Below `clients` are names of sites, which may be any."""
    return any(
        _is_temporary(piece) or (piece in _LEFT_OUT and above != "clients")
        for above, piece in pairwise(("", *file.parts))
    )


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")


def _settled(database: Path, scratch: Path) -> Path:
    copy = scratch / "copy.sqlite"
    copy.unlink(missing_ok=True)
    with look(database) as source, closing(sqlite3.connect(copy)) as target:
        try:
            source.backup(target)
        except sqlite3.OperationalError as error:
            raise BufferUnusable(f"cannot copy {database}: {error}.") from error
    return copy


def unpack(packed: Path, parent: Path) -> Path:
    """Lay the run out under `parent` and return its folder. A file that is not whole leaves nothing behind."""
    try:
        bound = _ROOM + _DENSEST * packed.stat().st_size
        with _Bounded(packed, bound) as content, tarfile.open(fileobj=content, mode="r:") as archive:
            members = _members(archive, packed)
            top, listed = _listed(archive, members, packed)
            target = parent / top
            if target.exists():
                raise BadInput(f"{target} exists already: move it away or unpack elsewhere with --into.")
            with atomic.new_folder(target) as folder:
                for name, digest in listed.items():
                    _lay_out(archive, members[f"{top}/{name}"], folder / name, digest, packed)
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, LookupError) as error:
        raise BadInput(f"cannot unpack {packed}: {error}.") from error
    return target


class _Bounded(gzip.GzipFile):
    """What comes out of a packed file, as long as it is not more than any run makes of so many bytes."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "rb")
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _ROOM:
            raise ValueError("a header in it is too long")
        self._check(self.tell() + size)
        return super().read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._check(offset)
        return super().seek(offset, whence)

    def _check(self, place: int) -> None:
        if place > self._most + tarfile.RECORDSIZE:
            raise ValueError(f"it would become more than {self._most / 1e6:,.0f} MB, which no run of its size does")


def _members(archive: tarfile.TarFile, packed: Path) -> dict[str, tarfile.TarInfo]:
    """The files by their names."""
    found: dict[str, tarfile.TarInfo] = {}
    for member in archive:
        if not member.isdir():
            if member.name in found or not member.isreg():
                raise BadInput(f"{packed} is not a packed run: {member.name!r} is there twice or is no plain file.")
            found[member.name] = member
    return found


def _listed(
    archive: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], packed: Path
) -> tuple[str, dict[str, str]]:
    """The name of the run, and every file of it with its digest: just those that are in the archive."""
    tops = {name.split("/")[0] for name in members}
    top = next(iter(tops), "")
    listing = members.get(f"{top}/{_LISTING}")
    if len(tops) != 1 or listing is None or top in ("", ".", "..") or listing.size > _LONGEST_LISTING:
        raise BadInput(f"{packed} is not a packed run.")
    content = archive.extractfile(listing)
    assert content is not None
    listed = strict_json.parse(content.read().decode())
    if not isinstance(listed, dict) or not all(isinstance(digest, str) for digest in listed.values()):
        raise BadInput(f"{packed} is not a packed run: {_LISTING} does not name a digest for each file.")
    for name in listed:
        path = PurePosixPath(name)
        if path.is_absolute() or not path.parts or ".." in path.parts or str(path) != name or "\0" in name:
            raise BadInput(f"{packed} is not a packed run: it lists the path {name!r}.")
        if f"{top}/{name}" not in members:
            raise BadInput(f"{packed} is damaged: {name} is missing or differs from what was packed.")
    if unlisted := sorted(members.keys() - {listing.name} - {f"{top}/{name}" for name in listed}):
        raise BadInput(f"{packed} is not a packed run: {unlisted[0]!r} is not listed in its {_LISTING}.")
    return top, listed


def _lay_out(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, digest: str, packed: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = hashlib.sha256()
    with path.open("xb") as file:
        while piece := source.read(2**20):
            whole.update(piece)
            file.write(piece)
    if whole.hexdigest() != digest:
        raise BadInput(f"{packed} is damaged: {path.name} is missing or differs from what was packed.")
