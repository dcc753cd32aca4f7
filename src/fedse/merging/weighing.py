"""How much of its own adapter and how much of the shared one serves a site best: two weights, found without gradients on its
validation tasks (the third stage of FDLoRA, arXiv 2406.07925).

    W = base + scale * (own * B_own A_own + shared * B_shared A_shared)

(1, 0) is the own adapter and (0, 1) the shared one. The paper weighs parameters, w1 * own + w2 * shared; on the factors of a
LoRA adapter that would also multiply the B of one with the A of the other, which nobody trained: products are weighed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fedse.adapters.first import further_ranks, rank_of
from fedse.adapters.plan import RESIDUAL, factor, in_part
from fedse.errors import BadInput
from fedse.merging.fewer_ranks import with_ranks
from fedse.merging.measuring import Measuring
from fedse.merging.sources import Gathered, Source
from fedse.types import Adapter, Tensors

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)


class Weights(NamedTuple):
    own: float
    shared: float


OWN, SHARED = Weights(1.0, 0.0), Weights(0.0, 1.0)


@dataclass(frozen=True)
class Weighed:
    """What a client has with some weights."""

    weights: Weights
    ranks: int
    lost: float
    """Share of the products' norm that did not fit into the ranks that were asked for."""
    measured: Mapping[str, Any]

    @property
    def worth(self) -> tuple[float, float, float]:
        """Success counts first. Of equals smaller weights are better, as by the paper's penalty, then more of the own."""
        macro = self.measured["macro"]
        return -1.0 if macro is None else macro, -sum(self.weights), self.weights.own


def grid(weights: Sequence[float]) -> list[Weights]:
    """Every pair, and each adapter as it is; nothing of both is the base model, which nobody asks for."""
    pairs = [Weights(own, shared) for own, shared in product(weights, repeat=2) if own or shared]
    return list(dict.fromkeys([OWN, SHARED, *pairs]))


def parted(gathered: Gathered) -> tuple[tuple[Source, ...], Source]:
    """The adapters that clients have of their own, and the one to add to them."""
    own = tuple(source for source in gathered.sources if source.client)
    others = [source for source in gathered.sources if not source.client]
    if not own or len(others) != 1 or len({source.client for source in own}) < len(own):
        raise BadInput(
            "weighing needs a finished run with `sharing: none`, whose clients have adapters of their own, and one adapter "
            "to add to them: a finished run that shares one, or the folder of one."
        )
    return own, others[0]


def combined(own: Adapter, shared: Adapter, weights: Weights) -> Adapter:
    """Both in one, the shared one as further ranks; one with the weight 0 is left out."""
    if not weights.shared:
        return Adapter(_times(own, weights.own), own.config)
    if not weights.own:
        return Adapter(_times(shared, weights.shared), own.config)
    first, second = _times(own, weights.own), _times(shared, weights.shared)
    lone = {name: tensor + second[name] for name, tensor in first.items() if not factor(name)}
    beside = {in_part(name, RESIDUAL): tensor for name, tensor in second.items() if factor(name)}
    return Adapter({**first, **lone, **beside}, own.config)


def weigh(
    own: Source,
    shared: Source,
    pairs: Sequence[Weights],
    measuring: Measuring,
    rank: int | None = None,
    tell: Callable[[Weighed], None] = lambda _: None,
) -> tuple[list[Weighed], Weighed, Adapter]:
    """All weights at one client, the best of them and its adapter. With `rank` no result has more ranks than that."""
    found: list[Weighed] = []
    kept: tuple[Weighed, Adapter] | None = None
    for weights in pairs:
        adapter, lost = combined(own.adapter, shared.adapter, weights), 0.0
        if rank is not None:
            adapter, lost = with_ranks(adapter, rank)
        ranks = rank_of(adapter) + further_ranks(adapter)
        found.append(Weighed(weights, ranks, lost, measuring.at(own.client, adapter)))
        if kept is None or found[-1].worth > kept[0].worth:
            kept = found[-1], adapter
        tell(found[-1])
    assert kept is not None, "there are weights"
    return found, *kept


def _times(adapter: Adapter, weight: float) -> Tensors:
    """The scale of B is the scale of the product."""
    return {
        name: tensor if factor(name) == "A" else np.asarray(np.float32(weight) * tensor)
        for name, tensor in adapter.tensors.items()
    }
