"""The adapters of a client that shares none, one folder in PEFT's layout for each round. They stay with the client."""

from __future__ import annotations

from pathlib import Path

from fedse.adapters.files import read_adapter, write_adapter
from fedse.runs.reading import RunView
from fedse.storage import atomic
from fedse.types import Adapter


class OwnAdapters:
    """A repeated round overwrites its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, number: int) -> Adapter:
        """The adapter after a round."""
        return read_adapter(self.folder / f"{number:04d}")

    def write(self, number: int, adapter: Adapter) -> None:
        with atomic.new_folder(self.folder / f"{number:04d}") as folder:
            write_adapter(adapter, folder)


def own_adapter(run: RunView, client: str, number: int) -> Adapter:
    """What a client that shares nothing has after a round, verified against the run's records."""
    run.check_kept(client, number)
    return OwnAdapters(run.client_folder(client) / "adapters").read(number)
