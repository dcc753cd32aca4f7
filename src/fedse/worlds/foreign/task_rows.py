"""Tasks from rows of data, as trainers have them: one JSON object per line, a file for each split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedse.errors import BadInput
from fedse.storage.strict_json import parse
from fedse.types import SPLITS, Split
from fedse.worlds.splits import in_two_splits, set_apart

Rows = dict[Split, dict[str, dict[str, Any]]]
"""The rows of each split by the id of their task, in the order of the file."""


def read_rows(files: Mapping[Split, Path]) -> Rows:
    """The rows of the files, each once. Without a file for validation, a fifth of the training rows is set apart for it.

    A task's id is a hash of its row, so a row that stands in two splits is found, and another row is another task.
    """
    found = {split: _read(path) for split, path in files.items()}
    if "validation" not in found:
        found["train"], found["validation"] = map(dict, set_apart(list(found["train"].items())))
    if empty := [split for split in SPLITS if not found[split]]:
        raise BadInput(f"there are no rows for {empty[0]}; {files['train']} has too few.")
    if twice := in_two_splits(found):
        one, other, shared = twice
        row = json.dumps(found[one][shared[0]])
        raise BadInput(f"{len(shared)} rows are in both {one} and {other}, for example {row[:100]}.")
    return {split: found[split] for split in SPLITS}


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file of rows {path} cannot be read: {error}.") from error
    rows = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except ValueError as error:
            raise BadInput(f"the file of rows {path}, line {number}, is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise BadInput(f"the file of rows {path}, line {number}, holds no object.")
        rows[f"row-{hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]}"] = row
    if not rows:
        raise BadInput(f"the file of rows {path} is empty.")
    return rows
