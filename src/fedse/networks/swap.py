"""Put an adapter into a PEFT model, take it out again, and prove that the model answers with it.

An adapter may have further pairs beside the shared one (`plan.py`). Each is an adapter of its own in PEFT's model, active
together with the shared one, with the same scale.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from fedse.adapters.plan import PERSONAL, RESIDUAL, factor, part
from fedse.errors import SwapFailed
from fedse.types import Adapter


def lora_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    """LoRA parameters of a PEFT model under the names PEFT uses on disk."""
    return {
        name.replace(".default.", "."): parameter for name, parameter in model.named_parameters() if ".lora_" in name
    }


@torch.no_grad()
def load_adapter(model: Any, adapter: Adapter) -> None:
    """Overwrite the model's LoRA tensors. Exact: a tensor that is missing, left over or misshapen is an error."""
    _make_room(model, adapter)
    parameters = lora_parameters(model)
    if parameters.keys() != adapter.tensors.keys():
        odd = sorted(parameters.keys() ^ adapter.tensors.keys())
        raise SwapFailed(f"the adapter does not fit the model: {len(odd)} tensors differ, the first is {odd[0]}.")
    for name, parameter in parameters.items():
        tensor = adapter.tensors[name]
        if tuple(parameter.shape) != tensor.shape:
            raise SwapFailed(
                f"the adapter does not fit the model: {name} is {tensor.shape}, not {tuple(parameter.shape)}."
            )
    for name, parameter in parameters.items():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(adapter.tensors[name])))


def _make_room(model: Any, adapter: Adapter) -> None:
    """Give the model the further pairs that the adapter has, at their ranks, and no others."""
    wanted = {part(name): tensor.shape[0] for name, tensor in adapter.tensors.items() if factor(name) == "A"}
    wanted.pop("", None)
    present = {name: model.peft_config[name].r for name in (RESIDUAL, PERSONAL) if name in model.peft_config}
    if wanted == present:
        return
    for name in present:
        model.delete_adapter(name)
    for name in sorted(wanted):
        config = deepcopy(model.peft_config["default"])
        config.r = wanted[name]
        model.add_adapter(name, config)
    model.base_model.set_adapter(["default", *sorted(wanted)])
    for module in model.modules():
        scaling = getattr(module, "scaling", None)
        if isinstance(scaling, dict) and "default" in scaling:
            scaling.update(dict.fromkeys(wanted, scaling["default"]))


def train_only(model: Any, adapter: Adapter) -> None:
    """Let gradients reach every LoRA tensor but the adapter's frozen ones."""
    for name, parameter in lora_parameters(model).items():
        parameter.requires_grad_(name not in adapter.frozen)


@torch.no_grad()
def read_adapter(model: Any, like: Adapter) -> Adapter:
    """The model's LoRA tensors as an adapter with the configuration of `like`."""
    tensors = {name: parameter.float().cpu().numpy().copy() for name, parameter in lora_parameters(model).items()}
    return Adapter(tensors, like.config)


def check_holds(model: Any, adapter: Adapter) -> None:
    """Whether an adapter that was loaded is the one that is there."""
    if read_adapter(model, like=adapter).digest() != adapter.digest():
        raise SwapFailed("after the swap the model holds other LoRA tensors than were given to it.")


@torch.no_grad()
def log_probabilities(model: Any, ids: list[int]) -> torch.Tensor:
    """Log-probability of each token of `ids` after the first, by one plain forward pass: the learner's view."""
    tokens = torch.tensor([ids], device=next(model.parameters()).device)
    logits = model(input_ids=tokens, use_cache=False).logits[0, :-1].float()
    return torch.log_softmax(logits, dim=-1).gather(1, tokens[0, 1:, None]).squeeze(1).cpu()
