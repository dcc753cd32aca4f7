"""The adapter that a run has stored after a round."""

from __future__ import annotations

from fedse.adapters.files import read_adapter
from fedse.errors import RunConflict
from fedse.runs.reading import RunView
from fedse.types import Adapter


def shared_adapter(run: RunView, number: int) -> Adapter:
    """Verified against the manifest. Where clients share nothing it is the beginning."""
    run.check_state(number)
    folder = run.round_folder(number)
    adapter = read_adapter(folder / "adapter")
    if adapter.digest() != run.digest_of(number):
        raise RunConflict(f"the adapter in {folder} is not the one the manifest recorded: restore the folder.")
    return adapter
