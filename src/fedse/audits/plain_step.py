"""One step along the plain gradient of some trajectories, as federated SGD sends it: the update that tells most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedse.networks.training.token_packing import micro_batches, opening_of
from fedse.objectives.cases import examples_of
from fedse.types import Adapter, Trajectory

if TYPE_CHECKING:
    from fedse.models.causal_lm import CausalLM

_TOKENS_AT_ONCE = 2_048


def plain_step(model: CausalLM, start: Adapter, trajectories: Sequence[Trajectory]) -> Adapter:
    """The adapter after a step of length 1 (how long it is changes no direction)."""
    import torch

    from fedse.networks.training.passes import pass_for

    through = pass_for(model.network, checkpointing=False)
    through.begin(start)
    examples = examples_of(trajectories, model.context)
    opening = opening_of(examples) if through.shares_opening else 0
    importance = 1.0 / sum(example.agent_tokens for example in examples)
    vector = through.vector
    vector.gradient.zero_()
    for part in micro_batches(examples, opening, _TOKENS_AT_ONCE):
        through.add_gradient(part, opening, importance)
    with torch.no_grad():
        vector.values.sub_(vector.gradient / vector.gradient.norm())
    return through.result(like=start)
