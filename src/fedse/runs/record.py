"""The record of a round: a digest of each thing that this round wrote and a later one, or a table, reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedse.errors import RunConflict
from fedse.storage import strict_json

NAME = "digests.json"
Digests = Mapping[str, str]
"""By the name of what each one is of."""


@dataclass(frozen=True)
class RoundRecord:
    """What is new since the round before. Everything that the run depends on is in one of its records."""

    files: Digests
    """Of the round's own folder."""
    clients: Mapping[str, Digests] = field(default_factory=dict)
    """What each client keeps; nothing where clients are on other machines."""
    absent: tuple[str, ...] = ()
    """Clients without an answer in this round. They may finish it later, which no record can know."""
    contributed: tuple[str, ...] = ()
    """Clients whose updates the round's adapter was made of."""

    def write(self, folder: Path) -> str:
        """Write it into a round's folder; returns the digest that the manifest names."""
        content = {
            "files": dict(self.files),
            "clients": dict(self.clients),
            "absent": list(self.absent),
            "contributed": list(self.contributed),
        }
        text = json.dumps(content, indent=1, sort_keys=True, default=dict) + "\n"
        (folder / NAME).write_text(text, encoding="utf-8")
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def read(cls, folder: Path, digest: str) -> RoundRecord:
        found: dict[str, Any] = strict_json.read_object(folder / NAME, digest)
        return cls(found["files"], found["clients"], tuple(found["absent"]), tuple(found.get("contributed", ())))


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests_in(folder: Path) -> dict[str, str]:
    """Of every file in a folder, but of a record that is there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files if path != folder / NAME}


def check_files(folder: Path, wanted: Digests) -> None:
    """Refuse files that are missing or not the ones that were written."""
    for name, digest in wanted.items():
        if problem := difference(folder / name, digest):
            raise RunConflict(f"{problem}: restore it from a copy of the run.")


def difference(path: Path, digest: str) -> str:
    """What is wrong with a file that has to have a digest; nothing if it has it."""
    try:
        return "" if file_digest(path) == digest else f"{path} is not the file that was written"
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
