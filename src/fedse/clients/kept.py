"""Digests of what a client keeps from round to round: all that its next round depends on.

buffer/facts  buffer/0007  buffer/learned/0003       see `experience/buffer_file.py`
private/0007.safetensors  state/SLOT/0007.safetensors  adapters/0007/adapter_config.json
episodes/0007.jsonl                                  for people to read: no round depends on it
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from fedse.errors import BufferUnusable
from fedse.experience.buffer_file import contents
from fedse.runs.record import file_digest

BUFFER = "buffer.sqlite"
_PREFIX = "buffer/"
_FILES = ("private/*.safetensors", "state/*/*.safetensors", "adapters/*/*", "episodes/*.jsonl")
_ROUND = re.compile(r"(?:^|/)(\d{4,})(?=\.|/|$)")


def kept(folder: Path, until: int, known: Collection[str] = ()) -> dict[str, str]:
    """What lies in a client's folder up to a round and is not `known`. Raises `BufferUnusable` for a damaged buffer."""
    return {**_in_buffer(folder, until, known), **kept_files(folder, until, known)}


def kept_if_readable(folder: Path, until: int) -> dict[str, str]:
    """All of it; of a damaged buffer nothing is found."""
    try:
        return kept(folder, until)
    except BufferUnusable:
        return kept_files(folder, until)


def kept_files(folder: Path, until: int, known: Collection[str] = ()) -> dict[str, str]:
    """The same without the buffer."""
    paths = [path for pattern in _FILES for path in sorted(folder.glob(pattern)) if path.is_file()]
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {
        name: file_digest(path)
        for name, path in names.items()
        if name not in known and _ROUND.search(name) and round_of(name) <= until
    }


def _in_buffer(folder: Path, until: int, known: Collection[str]) -> dict[str, str]:
    if not (folder / BUFFER).exists():
        return {}
    rounds = {name.removeprefix(_PREFIX) for name in known if name.startswith(_PREFIX)}
    found = {f"{_PREFIX}{name}": digest for name, digest in contents(folder / BUFFER, rounds).items()}
    return {name: digest for name, digest in found.items() if name not in known and round_of(name) <= until}


def round_of(name: str) -> int:
    """The round after which something is kept; what belongs to none is there from the beginning."""
    found = _ROUND.findall(name)
    return int(found[-1]) if found else 0


def is_for_reading(name: str) -> bool:
    return name.startswith("episodes/")


def in_words(name: str) -> str:
    """Where to look, for somebody who reads a message."""
    if not name.startswith(_PREFIX):
        return name
    what = name.removeprefix(_PREFIX)
    return f"{BUFFER} ({'what it says of itself' if what == 'facts' else f'round {round_of(name)}'})"
