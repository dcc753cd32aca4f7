"""Maximum likelihood on the agent's own tokens: the paper's learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from fedse.errors import BadInput
from fedse.plugins import PluginOptions
from fedse.types import Adapter, Trajectory

if TYPE_CHECKING:
    from fedse.learners.passes import Pass
    from fedse.models.causal_lm import CausalLM

_TOKENS_ON_GPU, _TOKENS_ELSEWHERE = 16_384, 2_048


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
    tokens_at_once: int | None = Field(default=None, ge=1)
    """Tokens that go through the model at once, in whole trajectories: fewer save memory and change roundings only. null is
    16,384 on a GPU and 2,048 elsewhere."""
    checkpointing: bool = False
    """Computes the inside of each layer twice instead of keeping it: saves memory, takes longer."""
    compile: bool = False
    """Fuses small operations with torch.compile, which takes time at the beginning of a run. For Llama, Mistral and Qwen in
    bfloat16 on a GPU; on a CPU it made nano slower."""
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
        self._through: Pass | None = None
        self._suits: object = None

    def learn(
        self, start: Adapter, trajectories: Sequence[Trajectory], key: int
    ) -> tuple[Adapter, Mapping[str, float]]:
        from fedse.adapters.swap import load_adapter, read_adapter, train_only
        from fedse.learners.likelihood import fit
        from fedse.learners.passes import pass_for

        network = self.model.network
        settings = self.options.model_dump()
        checkpointing, compiled = settings.pop("checkpointing"), settings.pop("compile")
        load_adapter(network, start)
        train_only(network, start)
        if self._through is None or self._suits != (start.layout, start.frozen):
            self._through, self._suits = pass_for(network, checkpointing, compiled), (start.layout, start.frozen)
        if settings["tokens_at_once"] is None:
            on_gpu = self._through.vector.values.device.type == "cuda"
            settings["tokens_at_once"] = _TOKENS_ON_GPU if on_gpu else _TOKENS_ELSEWHERE
        metrics = fit(self._through, trajectories, self.model.context, key, **settings)
        return read_adapter(network, like=start), metrics
