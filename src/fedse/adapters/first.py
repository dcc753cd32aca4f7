"""An adapter from outside a run as the one that the run begins with, if it is of the same make as the model's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedse.adapters.files import read_adapter
from fedse.adapters.plan import factor, part
from fedse.errors import BadInput
from fedse.types import Adapter

_SCALE: Mapping[str, Any] = {
    "r": None,
    "lora_alpha": None,
    "use_rslora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
}
"""What PEFT makes the factor of a product from, and what it takes where a configuration says nothing."""


def first_adapter(folder: Path, initial: Adapter) -> Adapter:
    """The adapter in a folder of PEFT's layout, in place of the model's initial one."""
    try:
        found = read_adapter(folder.expanduser())
    except BadInput as error:
        raise BadInput(f"start_adapter: {error}") from error
    if further := further_ranks(found):
        own = rank_of(initial)
        raise BadInput(
            f"start_adapter: {folder} has {further} ranks beside the {own} that clients train, and a run begins with those "
            f"alone: `fedse merge --rank {own}` makes an adapter without further ranks."
        )
    for problem in misfits(found, initial):
        raise BadInput(f"start_adapter: {folder} {problem}.")
    tensors = {name: tensor.astype(np.float32) for name, tensor in found.tensors.items()}
    return replace(initial, tensors=tensors)


def misfits(adapter: Adapter, own: Adapter) -> Iterator[str]:
    """Why an adapter cannot stand in the place of the model's own."""
    if not own.tensors:
        yield "cannot be used, because the model has no adapter: leave the key out"
    if further := further_ranks(adapter):
        yield f"has {further} ranks beside the {rank_of(own)} of the model's adapter"
    if odd := sorted(adapter.tensors.keys() ^ own.tensors.keys()):
        whose = "is not in the model's adapter" if odd[0] in adapter.tensors else "is missing"
        yield (
            f"has other tensors than the model's adapter ({odd[0]} {whose}): it belongs to another model, or to other layers"
        )
    for name in sorted(adapter.tensors.keys() & own.tensors.keys()):
        if adapter.tensors[name].shape != own.tensors[name].shape:
            yield (
                f"has {name} in the shape {adapter.tensors[name].shape}, and the model's adapter has it in "
                f"{own.tensors[name].shape}: it belongs to another model, or to another `model.lora.rank`"
            )
        if not np.isfinite(adapter.tensors[name]).all():
            yield f"has values in {name} that are no finite numbers"
    for key, usual in _SCALE.items():
        theirs, ours = ((one.config.get(key) or usual) for one in (adapter, own))
        if theirs != ours:
            yield f"has {key} {theirs}, and the model's adapter has {ours}: the same tensors would have another effect"


def further_ranks(adapter: Adapter) -> int:
    """Ranks beside the pair that clients train."""
    ranks = {part(name): len(tensor) for name, tensor in adapter.tensors.items() if factor(name) == "A"}
    return sum(rank for beside, rank in ranks.items() if beside)


def rank_of(adapter: Adapter) -> int:
    """Of the pair that clients train; 0 for an adapter without pairs."""
    return next((len(tensor) for name, tensor in adapter.tensors.items() if factor(name) == "A" and not part(name)), 0)


def without_effect(adapter: Adapter) -> Adapter:
    """The same with every B at zero, so that it changes nothing about the base model, for a learner that begins anew."""
    if adapter.frozen:
        raise BadInput(
            "learner.restart: aggregator or mix freeze a part of the adapter, so that it cannot begin anew: leave `restart` "
            "off, or let clients train everything."
        )
    tensors = {
        name: np.zeros_like(tensor) if factor(name) == "B" else tensor for name, tensor in adapter.tensors.items()
    }
    return replace(adapter, tensors=tensors)
