"""BuPO, bottom-up policy optimisation (arXiv 2512.19673): the first rounds train the policy of an inner layer.

The policy of layer l is softmax(head(H_l)), H_l the residual stream after it. The loss is the usual one with the ratio
p_l(token) / p_l,old(token), whoever drew the tokens: old is what the layer itself said when the lesson began. Layers above l
have no gradient. After the phase the loss is that of the whole network, which is the policy of its last layer.

The paper reads inner layers without the norm that stands before the output layer, and so does its code. It trains the whole
network, the output layer included; here adapters learn, and the output layer has none. A step of the paper, with new
attempts, is a round here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from pydantic import Field

from fedse.objectives.cases import Case
from fedse.plugins import PluginOptions

LAYER_ENTROPIES = tuple(f"entropy_layer_{number}" for number in range(1, 129))
"""Names under which the entropies of layers are told; further layers are not told of."""
_LOOKED_AT = 8

T = TypeVar("T")


class BottomUpOptions(PluginOptions):
    """Which layer's policy is trained first, and for how long."""

    layer: int = Field(ge=1)
    """Counted from 1, below the last one, which is the policy itself. The authors' scripts have 6 for Qwen3, 27 for a
    Llama."""
    rounds: int = Field(ge=1)
    """The first rounds, in which it is trained. The authors' scripts have 30 steps of 300, each with new attempts."""
    norm: bool = False
    """Whether the last norm comes before the output layer, as in the logit lens; the paper has none."""


def spread_out(items: Sequence[T]) -> Sequence[T]:
    """A few, from one end to the other.

    >>> spread_out(range(20))
    range(0, 20, 3)
    """
    return items[:: max(1, -(-len(items) // _LOOKED_AT))]


def as_if_not_drawn(case: Case) -> Case:
    """Without the probabilities that the whole network gave to the tokens when it drew them."""
    return replace(case, trajectories=tuple(replace(item, log_probs=()) for item in case.trajectories))
