"""The adapter that a run has stored after a round, and the mean of those after the last rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

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


def mean_of_last(run: RunView, number: int, rounds: int) -> Adapter:
    """(w_t + w_(t-1) + ...) / n of so many rounds up to this one, tensor by tensor; the beginning counts as one of them."""
    last = shared_adapter(run, number)
    earlier = [shared_adapter(run, before) for before in range(max(0, number - rounds + 1), number)]
    if not earlier:
        return last
    if any(adapter.layout != last.layout for adapter in earlier):
        raise RunConflict(
            f"the adapters of {run.path} before round {number} have other tensors, so they have no mean "
            "(`evaluation.mean_of_last`)."
        )
    mean = {
        name: np.mean([one.tensors[name].astype(np.float64) for one in (*earlier, last)], axis=0).astype(np.float32)
        for name in last.tensors
    }
    return replace(last, tensors=mean)
