"""What goes into every layer that has an adapter while a model reads a trajectory, where it is about to say something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedse.types import Adapter, Trajectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedse.models.causal_lm import CausalLM

Matrix = npt.NDArray[np.float64]
Inputs = Mapping[str, Matrix]
"""A row for each token of the agent, under the name of the layer's tensor A."""

_INTO_A = ".lora_A.default"


@contextmanager
def reading(model: CausalLM, adapter: Adapter) -> Iterator[Callable[[Trajectory], Inputs]]:
    """A function that gives the inputs of a trajectory, cut to the model's context. Leaves the adapter in the network."""
    import torch

    from fedse.networks.swap import load_adapter, log_probabilities

    load_adapter(model.network, adapter)
    heard: dict[str, Any] = {}

    def listen(name: str) -> Callable[[Any, Any], None]:
        return lambda _, given: heard.__setitem__(name, given[0][0])

    layers = {
        f"{name.removesuffix('.default')}.weight": layer
        for name, layer in model.network.named_modules()
        if name.endswith(_INTO_A)
    }
    hooks = [layer.register_forward_pre_hook(listen(name)) for name, layer in layers.items()]

    def inputs(trajectory: Trajectory) -> Inputs:
        log_probabilities(model.network, list(trajectory.token_ids[: model.context]))
        about_to_speak = np.flatnonzero(trajectory.train_mask[1 : model.context])
        return {name: given.detach().to("cpu", torch.float64).numpy()[about_to_speak] for name, given in heard.items()}

    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()
