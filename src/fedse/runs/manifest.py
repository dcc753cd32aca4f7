"""The manifest of a run: which rounds are complete, and the digests of everything that going on depends on.

It names its own digest, so that no change of it goes unnoticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedse.errors import BadInput, RunConflict
from fedse.storage import atomic, strict_json

FORMAT = 2
"""2 added `records`, `evaluations` and the manifest's own digest. A manifest of format 1 is read as one without."""
OWN = "sha256"
_TEXTS = ("fedse", "experiment", "start", "earlier", OWN)
_TABLES = ("rounds", "worlds", "records", "evaluations")
_BY_ROUND = ("rounds", "records")


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest, if it is as fedse wrote it. Old ones name no digest of their own: of them the shape is checked."""
    try:
        found = strict_json.parse(path.read_bytes().decode())
        if not isinstance(found, dict) or type(found.get("format")) is not int:
            raise ValueError("it names no format")
        if found["format"] <= FORMAT:
            _check(found)
    except (OSError, ValueError) as error:
        raise RunConflict(f"{path} is damaged ({error}): restore it or begin a new run.") from error
    if found["format"] > FORMAT:
        raise BadInput(f"{path.parent} was written by a newer fedse ({str(found.get('fedse'))[:40]}): use that one.")
    return found


def write_manifest(path: Path, content: Mapping[str, Any]) -> None:
    whole = {**content, "format": FORMAT}
    whole.pop(OWN, None)
    atomic.write_text(path, json.dumps({**whole, OWN: _digest(whole)}, indent=2) + "\n")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check(found: dict[str, Any]) -> None:
    if missing := [key for key in ("fedse", "experiment", "rounds") if key not in found]:
        raise ValueError(f"keys are missing: {', '.join(missing)}")
    for key in _TEXTS:
        if not isinstance(found.get(key, ""), str):
            raise ValueError(f"{key} is no text")
    for key in _TABLES:
        table = found.get(key, {})
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise ValueError(f"{key} does not name a text for each key")
        if key in _BY_ROUND and not all(_is_round(name) for name in table):
            raise ValueError(f"{key} has a key that is no round")
    if found["format"] < 1:
        raise ValueError("its format is unknown")
    if found["format"] >= FORMAT and found.get(OWN) != _digest({key: found[key] for key in found if key != OWN}):
        raise ValueError("its content does not fit its own digest")


def _is_round(name: str) -> bool:
    return name.isascii() and name.isdecimal() and str(int(name[:9])) == name
