"""JSON that somebody else may have changed: it is an object of plain finite values, or it is refused with one sentence."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from fedse.errors import RunConflict


def parse(text: str, infinite: bool = False) -> Any:
    """The value of a JSON text. Whatever is wrong with it is a `ValueError`, also numbers that are not finite, which only
    Python's reader accepts; with `infinite` they are taken."""
    try:
        return json.loads(text, parse_constant=None if infinite else _no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")


def read_object(path: Path, digest: str = "") -> dict[str, Any]:
    """The object in a file of a run; with a digest, only if the file is the one that was written."""
    try:
        content = path.read_bytes()
        if digest and hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("it is not the file that was written")
        found = parse(content.decode())
    except (OSError, ValueError) as error:
        raise RunConflict(f"{path} is damaged ({error}): restore it from a copy of the run.") from error
    if not isinstance(found, dict):
        raise RunConflict(f"{path} is damaged (it holds no object): restore it from a copy of the run.")
    return found


def finite(value: Any) -> Any:
    """The same JSON values with null for what is not a finite number: NaN is not JSON."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
