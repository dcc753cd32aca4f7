"""One pass for several adapters on one frozen network.

One adapter's batch leaves most of a GPU idle, and small networks most of all. Here the packs of all lie end to end: the
frozen matrices, attention and the loss are computed for all rows together, and each row goes through the factors of its own
adapter (`row_owners.py`). What belongs to one adapter, its vector and its optimiser, stays apart.

Products with rows that are masked do not hide what is not finite, so that an adapter that diverges spoils the others:
whoever uses this must look at the vectors afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
import torch

from fedse.networks.training.graph_sizes import Sizes
from fedse.networks.training.packed_llama import PackedLlama
from fedse.networks.training.pass_graphs import PassGraphs
from fedse.networks.training.passes import tensors_of
from fedse.networks.training.token_packing import Pack, end_to_end, pack
from fedse.networks.training.wanted import GradientWanted, ScoresWanted, Wanted
from fedse.stopwatch import during


class JointPass:
    """Adapters are known by their numbers; those that want nothing have no rows in the pass."""

    def __init__(self, llama: PackedLlama) -> None:
        """It reads the vectors of all."""
        self._llama = llama
        self.adapters = len(llama.vectors)
        self._graphs = PassGraphs(llama) if llama.worth_recording else None

    def expect(self, needs: Sequence[Sequence[Sizes]]) -> None:
        """Get ready for gradients of packs with these needs: of each adapter one after another, and of all at a time those
        that are first, then those that are second."""
        if self._graphs is not None:
            together = [[need for need in turn if need is not None] for turn in zip_longest(*needs)]
            self._graphs.expect([Sizes.of_all(turn) for turn in together])

    def add_gradients(self, wanted: Mapping[int, GradientWanted]) -> dict[int, tuple[torch.Tensor, int]]:
        """As `Pass.add_gradient` of each. Of padding each has its share of the tokens that were computed."""
        packed = self._packed(wanted)
        importance = np.concatenate(
            [
                np.broadcast_to(np.asarray(wanted[number].importance, dtype=np.float32), group.targets)
                for number, group in enumerate(packed.groups)
                if number in wanted
            ]
        )
        if self._graphs is not None:
            losses, computed = self._graphs.add_gradient(packed, importance)
        else:
            with during("transfer"):
                tensors = tensors_of(packed, importance, self._llama.device)
            losses, computed = self._llama.add_gradient(tensors), len(packed.ids)
        share = computed / len(packed.ids)
        return {number: (losses[number], round(packed.groups[number].tokens * share)) for number in wanted}

    def log_probabilities(self, wanted: Mapping[int, ScoresWanted]) -> dict[int, npt.NDArray[np.float32]]:
        """As `Pass.log_probabilities` of each."""
        packed = self._packed(wanted)
        with during("scoring"):
            found = self._graphs.log_probabilities(packed) if self._graphs is not None else None
            if found is None:
                found = self._llama.log_probabilities(tensors_of(packed, 1.0, self._llama.device))
            pieces = np.split(found.cpu().numpy(), np.cumsum([group.targets for group in packed.groups])[:-1])
        return {number: pieces[number] for number in wanted}

    def _packed(self, wanted: Mapping[int, Wanted]) -> Pack:
        parts = [wanted.get(number) for number in range(self.adapters)]
        return end_to_end([None if each is None else pack(each.part, each.opening) for each in parts])
