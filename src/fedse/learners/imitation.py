"""Maximum likelihood on the agent's own tokens: the paper's learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from fedse.errors import BadInput
from fedse.plugins import PluginOptions
from fedse.types import Adapter, Trajectory

if TYPE_CHECKING:
    from fedse.models.causal_lm import CausalLM


class ImitationOptions(PluginOptions):
    """Two epochs of AdamW at 5e-5 with a cosine schedule are the paper's; small models want a larger rate."""

    epochs: int = Field(default=2, ge=1)
    """Passes over the buffer in each round."""
    learning_rate: float = Field(default=5e-5, gt=0)
    """Highest learning rate; the paper's value suits models of several billion parameters."""
    schedule: str = Field(default="cosine", pattern="^(cosine|constant)$")
    """"cosine" falls to zero over the round, without warm-up; "constant" stays."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's weight decay."""
    batch: int = Field(default=8, ge=1)
    """Trajectories behind one step of the optimiser."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Trajectories that go through the model at once; fewer than `batch` saves memory and changes no result."""
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of a gradient."""
    proximal: float = Field(default=0.0, ge=0)
    """Adds proximal / 2 * || adapter - adapter at the round's beginning ||^2 to the loss, which holds clients together
    (FedProx, arXiv 1812.06127)."""


class Imitation:
    """Fits the adapter to the trajectories token by token, from the broadcast adapter, with a fresh optimiser."""

    Options = ImitationOptions

    def __init__(self, model: CausalLM, **options: object) -> None:
        if not hasattr(model, "network"):
            raise BadInput(
                "learner: 'imitation' needs a language model; the model 'table' goes with learner 'table', the model "
                "'served' with learner 'none'."
            )
        self.model = model
        self.options = ImitationOptions.model_validate(options)

    def learn(
        self, start: Adapter, trajectories: Sequence[Trajectory], key: int
    ) -> tuple[Adapter, Mapping[str, float]]:
        from fedse.adapters.swap import load_adapter, read_adapter, train_only
        from fedse.learners.likelihood import fit

        load_adapter(self.model.network, start)
        train_only(self.model.network, start)
        metrics = fit(self.model.network, trajectories, self.model.context, key, **self.options.model_dump())
        return read_adapter(self.model.network, like=start), metrics
