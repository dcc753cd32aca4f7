"""Updates on the server's disk, so that memory does not grow with the number of clients."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedse.protocols import StoredUpdate
from fedse.stopwatch import during
from fedse.storage import atomic
from fedse.types import ClientUpdate, Layout, Vector

AHEAD = 1 << 21
"""Values that are read ahead, of all updates together."""


@dataclass(frozen=True)
class UpdateFile:
    """One client's packed adapter in a `.npy` file."""

    client: str
    counts: Mapping[str, int]
    layout: Layout
    path: Path
    header: int
    """Bytes before the first value."""
    values: int
    """In the whole vector."""

    def read(self, start: int = 0, stop: int | None = None) -> Vector:
        """A piece of the vector; only that piece is read from disk."""
        # Not through np.load: rules that go module by module read thousands of small pieces.
        count = -1 if stop is None else max(0, min(stop, self.values) - start)
        with during("disk"):
            return np.fromfile(self.path, dtype=np.float32, count=count, offset=self.header + 4 * start)


class ReadAhead:
    """Reads what comes next along with each piece. Where pieces are asked for in their order, and each is small, opening the
    file for every one of them would take as long as what is computed from it."""

    def __init__(self, update: StoredUpdate, values: int) -> None:
        self._update = update
        self._values = values
        self._start = 0
        self._held: Vector = np.zeros(0, dtype=np.float32)

    def read(self, start: int, stop: int) -> Vector:
        """A piece of the vector, which nobody may write to."""
        if start < self._start or stop > self._start + len(self._held):
            self._start, self._held = start, self._update.read(start, max(stop, start + self._values))
        return self._held[start - self._start : stop - self._start]


def read_ahead(updates: Sequence[StoredUpdate]) -> list[ReadAhead]:
    """All updates, with so much in memory as does not grow with their number."""
    return [ReadAhead(update, AHEAD // len(updates)) for update in updates]


def store_update(update: ClientUpdate, folder: Path) -> UpdateFile:
    if update.vector is None:
        raise ValueError(f"{update.client} sent no vector")
    path = folder / f"{update.client}.npy"
    with atomic.explained(path):
        folder.mkdir(parents=True, exist_ok=True)
        # By way of memory: where NumPy itself writes to a file, its error does not say that the disk is full.
        content = io.BytesIO()
        np.save(content, update.vector, allow_pickle=False)
        path.write_bytes(content.getbuffer())
    header = content.tell() - update.vector.nbytes
    return UpdateFile(update.client, update.counts, update.layout, path, header, update.vector.size)
