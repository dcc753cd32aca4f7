"""What one plug-in of a client remembers: one file for each round, on the client's own disk.

A round that is repeated after an interruption sees only what earlier rounds wrote, so the repetition is exact; what was
known before any earlier round can be read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedse.errors import BadInput
from fedse.storage import atomic
from fedse.types import Tensors

VALUES = "values"
"""Where the plain values stand in the header of a file."""


class Notes(NamedTuple):
    """Tensors, and plain values that JSON can hold."""

    tensors: Tensors
    values: Mapping[str, Any]


class Notebook:
    """A folder that comes into being with the first thing that is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, round: int, tensors: Tensors | None = None, values: Mapping[str, Any] | None = None) -> None:
        """Write what is known after a round, in place of an earlier attempt at it. Of nothing there is no file."""
        target = self.folder / f"{round:04d}.safetensors"
        if not tensors and not values:
            target.unlink(missing_ok=True)
            return
        arrays = {name: np.asarray(tensor, order="C") for name, tensor in sorted((tensors or {}).items())}
        header = {VALUES: json.dumps(values)} if values else None
        with atomic.new_file(target) as file:
            file.write_bytes(save(arrays, header))

    def before(self, round: int, fits: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> Notes:
        """What is known when a round begins: the newest notes of any earlier one, or nothing. `fits` may pass notes over, by
        their values."""
        numbered = [path for path in sorted(self.folder.glob("*.safetensors")) if path.stem.isdecimal()]
        for path in reversed([path for path in numbered if int(path.stem) < round]):
            if fits((notes := _read(path)).values):
                return notes
        return Notes({}, {})


def _read(path: Path) -> Notes:
    try:
        with safe_open(path, framework="numpy") as content:
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118, it is no mapping
            return Notes(tensors, json.loads((content.metadata() or {}).get(VALUES, "{}")))
    except (SafetensorError, OSError, ValueError) as error:
        raise BadInput(f"the notes in {path} are damaged ({error}): restore the file.") from error
