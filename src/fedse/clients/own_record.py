"""Digests of what a site keeps, on the site's own disk: the hub's manifest knows nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

from fedse.clients.kept import in_words, is_for_reading, kept, kept_if_readable, round_of
from fedse.errors import RunConflict
from fedse.storage import atomic, strict_json


class OwnRecord:
    """`kept.json` in a site's folder. A round is taken out before it is worked on and put in when it is done, so that a kill
    in between leaves nothing that is wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "kept.json"
        self._noted: dict[str, str] = {}
        if self._path.exists():
            self._noted = dict(strict_json.read_object(self._path))

    def check(self) -> None:
        """Refuse to work with something else than what was written. What is not noted is taken as it is."""
        found = kept_if_readable(self.folder, max(map(round_of, self._noted), default=0)) if self._noted else {}
        for name, digest in self._noted.items():
            if found.get(name) != digest:
                what = "is not what was written" if name in found else "is missing or cannot be read"
                raise RunConflict(
                    f"{self.folder / in_words(name)} {what}: restore it from a copy, or move {self.folder} away to "
                    "begin this site's experience anew."
                )

    def open_round(self, round: int) -> None:
        """What a round may change is not noted any more."""
        left = {name: digest for name, digest in self._noted.items() if round_of(name) < round}
        if left != self._noted:
            self._write(left)

    def close_round(self, round: int) -> None:
        """Note what is new since the last time."""
        new = kept(self.folder, round, self._noted)
        self._write({**self._noted, **{name: digest for name, digest in new.items() if not is_for_reading(name)}})

    def _write(self, noted: dict[str, str]) -> None:
        atomic.write_text(self._path, json.dumps(noted, indent=1) + "\n")
        self._noted = noted
