"""Where a long command writes in the end: looked at before it begins, so that nothing it found is lost."""

from __future__ import annotations

from pathlib import Path

from fedse.errors import BadInput


def check_new(target: Path, json_file: Path | None) -> None:
    """Refuse an adapter's folder and a table that cannot both be written."""
    for path in (target, json_file):
        if path is not None and path.exists():
            raise BadInput(f"{path} exists already: choose another name or remove it.")
    if json_file is not None and json_file.resolve() in (target.resolve(), *target.resolve().parents):
        raise BadInput(f"--json {json_file}: the folder of --output {target} takes this name: choose another one.")
