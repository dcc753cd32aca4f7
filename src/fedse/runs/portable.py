"""One file that holds a whole run, to move it to another machine and go on there."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tarfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from fedse import atomic
from fedse.errors import BadInput
from fedse.runs.folder import RunFolder

_LEFT_OUT = {".lock", ".updates"}


def pack(run: RunFolder, target: Path) -> None:
    """Write `target` (a .tar.gz). Buffers are copied through SQLite, so their write-ahead logs are included."""
    if target.exists():
        raise BadInput(f"{target} exists already: choose another name or remove it.")
    run.lock()
    try:
        with atomic.new_file(target) as part, TemporaryDirectory() as scratch:
            _write(run, part, Path(scratch))
    finally:
        run.unlock()


def _write(run: RunFolder, part: Path, scratch: Path) -> None:
    hashes: dict[str, str] = {}
    top = run.path.resolve().name
    with tarfile.open(part, "w:gz") as archive:
        for file in sorted(run.path.rglob("*")):
            name = file.relative_to(run.path)
            hidden = any(piece in _LEFT_OUT or _is_temporary(piece) for piece in name.parts)
            if not file.is_file() or hidden or file.name.endswith(("-wal", "-shm")):
                continue
            source = _settled(file, scratch) if file.suffix == ".sqlite" else file
            hashes[name.as_posix()] = hashlib.sha256(source.read_bytes()).hexdigest()
            archive.add(source, f"{top}/{name.as_posix()}")
        listing = scratch / "CONTENTS.json"
        listing.write_text(json.dumps(hashes, indent=2))
        archive.add(listing, f"{top}/CONTENTS.json")


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")


def _settled(database: Path, scratch: Path) -> Path:
    copy = scratch / "copy.sqlite"
    copy.unlink(missing_ok=True)
    source, target = sqlite3.connect(database), sqlite3.connect(copy)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
    return copy


def unpack(packed: Path, parent: Path) -> Path:
    """Lay the run out under `parent` and return its folder. A file that is not whole leaves nothing behind."""
    try:
        with tarfile.open(packed, "r:gz") as archive:
            names = {name.split("/")[0] for name in archive.getnames()}
            if len(names) != 1 or f"{next(iter(names))}/CONTENTS.json" not in archive.getnames():
                raise BadInput(f"{packed} is not a packed run.")
            target = parent / names.pop()
            if target.name in ("", ".."):
                raise BadInput(f"{packed} is not a packed run.")
            if target.exists():
                raise BadInput(f"{target} exists already: move it away or unpack elsewhere with --into.")
            with atomic.new_folder(target) as folder, TemporaryDirectory(dir=folder.parent) as scratch:
                archive.extractall(scratch, filter="data")
                inside = Path(scratch) / target.name
                _verify(inside, packed)
                for item in inside.iterdir():
                    item.rename(folder / item.name)
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        raise BadInput(f"cannot unpack {packed}: {error}.") from error
    return target


def _verify(folder: Path, packed: Path) -> None:
    listing = folder / "CONTENTS.json"
    for name, expected in json.loads(listing.read_text()).items():
        file = folder / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise BadInput(f"{packed} is damaged: {name} is missing or differs from what was packed.")
    listing.unlink()
