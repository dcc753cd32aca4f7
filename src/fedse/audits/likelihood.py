"""How likely a model with an adapter finds what an agent said: the number behind all attacks by loss.

loss(tau) = - 1/n * sum over the n tokens of the agent of log p(token | everything before it)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedse.networks.training.token_packing import micro_batches, opening_of
from fedse.objectives.cases import examples_of
from fedse.types import Adapter, Trajectory

if TYPE_CHECKING:
    from fedse.models.causal_lm import CausalLM

_TOKENS_AT_ONCE = 2_048


def losses(model: CausalLM, adapter: Adapter, trajectories: Sequence[Trajectory]) -> list[float]:
    """Of each trajectory, cut to the model's context; each has a reply within it. Leaves the adapter in the network."""
    from fedse.networks.swap import load_adapter, train_only
    from fedse.networks.training.passes import pass_for

    whole = replace(adapter, frozen=frozenset())
    load_adapter(model.network, whole)
    train_only(model.network, whole)
    through = pass_for(model.network, checkpointing=False)
    through.begin(whole)
    examples = examples_of(trajectories, model.context)
    if len(examples) < len(trajectories):
        raise ValueError("a trajectory without a reply has no loss")
    opening = opening_of(examples) if through.shares_opening else 0
    found: list[float] = []
    for part in micro_batches(examples, opening, _TOKENS_AT_ONCE):
        values = through.log_probabilities(part, opening).astype(np.float64)
        ends = np.cumsum([example.agent_tokens for example in part])
        found += [-float(own.mean()) for own in np.split(values, ends[:-1])]
    return found
