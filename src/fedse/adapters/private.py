"""The tensors that a client trains and keeps: one file for each round, on the client's own disk.

A round that is repeated after an interruption begins with what the round before it left, so the repetition is exact; the
adapter of any earlier round can be put together again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedse import atomic
from fedse.errors import BadInput
from fedse.types import Adapter, Tensors


class PrivatePart:
    """A folder that comes into being with the first tensor that is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, round: int, part: Adapter) -> None:
        """Write what is private after a round."""
        if part.tensors:
            tensors = {name: np.ascontiguousarray(tensor) for name, tensor in sorted(part.tensors.items())}
            with atomic.new_file(self.folder / f"{round:04d}.safetensors") as file:
                file.write_bytes(save(tensors))

    def before(self, round: int) -> Tensors:
        """What is private when a round begins: the newest tensors of any earlier one, or nothing."""
        earlier = [path for path in sorted(self.folder.glob("*.safetensors")) if int(path.stem) < round]
        if not earlier:
            return {}
        try:
            return load(earlier[-1].read_bytes())
        except SafetensorError as error:
            raise BadInput(f"the private tensors in {earlier[-1]} are damaged ({error}): restore the file.") from error
