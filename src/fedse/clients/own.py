"""The adapters of a client that shares none, one folder in PEFT's layout for each round. They stay with the client."""

from __future__ import annotations

from pathlib import Path

from fedse.adapters.files import read_adapter, write_adapter
from fedse.errors import BadInput
from fedse.runs.reading import RunView
from fedse.storage import atomic
from fedse.types import Adapter


class OwnAdapters:
    """A repeated round overwrites its folder; one in which the client was absent has none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self, number: int) -> Adapter | None:
        """The adapter after a round, which is that of the last one that the client took part in."""
        rounds = [int(path.name) for path in self.folder.glob("*") if path.name.isdecimal()]
        last = max((round for round in rounds if round <= number), default=None)
        return None if last is None else read_adapter(self.folder / f"{last:04d}")

    def write(self, number: int, adapter: Adapter) -> None:
        with atomic.new_folder(self.folder / f"{number:04d}") as folder:
            write_adapter(adapter, folder)


def own_adapter(run: RunView, client: str, number: int) -> Adapter:
    """What a client that shares nothing has after a round, verified against the run's records."""
    run.check_kept(client, number)
    found = OwnAdapters(run.client_folder(client) / "adapters").newest(number)
    if found is None:
        raise BadInput(f"client '{client}' of {run.path} has taken part in no round up to {number}: it has no adapter.")
    return found
