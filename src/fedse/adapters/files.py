"""An adapter as a folder in PEFT's layout, which PEFT and vLLM load as it is.

PEFT knows one pair of factors for each module. Further pairs (`plan.py`) stand in the same tensors as further ranks,
before the shared ones; the file's header says how many, and `read_adapter` takes them apart again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from fedse.adapters.plan import PERSONAL, RESIDUAL, factor, in_part, part
from fedse.errors import BadInput
from fedse.storage import strict_json
from fedse.types import Adapter, Tensors, Vector

TENSORS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
_FURTHER = (RESIDUAL, PERSONAL)
_SCALE = ("r", "lora_alpha")


def write_adapter(adapter: Adapter, folder: Path) -> None:
    """Write into an existing folder. Making that atomic is the business of whoever owns the folder."""
    stored, header = _as_one_pair(adapter)
    tensors = {name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in sorted(stored.tensors.items())}
    # Written by Python, whose error says when the disk is full.
    (folder / TENSORS).write_bytes(save(tensors, metadata={"format": "pt", **header}))
    (folder / CONFIG).write_text(json.dumps(dict(stored.config), indent=2, sort_keys=True) + "\n")


def read_adapter(folder: Path) -> Adapter:
    for name in (TENSORS, CONFIG):
        if not (folder / name).is_file():
            raise BadInput(f"{folder} holds no adapter: {name} is missing.")
    try:
        with safe_open(folder / TENSORS, "numpy") as file:
            header = file.metadata() or {}
        config = strict_json.parse((folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError(f"{CONFIG} holds no object")
        return _taken_apart(Adapter(load_file(folder / TENSORS), config), header)
    except (SafetensorError, OSError, ValueError, TypeError, LookupError) as error:
        raise BadInput(f"the adapter in {folder} is damaged ({error}).") from error


def _as_one_pair(adapter: Adapter) -> tuple[Adapter, dict[str, str]]:
    """All pairs of a module in one, with the same scale, and what is needed to take them apart."""
    ranks = {part(name): tensor.shape[0] for name, tensor in adapter.tensors.items() if factor(name) == "A"}
    further = [other for other in _FURTHER if other in ranks]
    if not further:
        return adapter, {}
    tensors: dict[str, Vector] = {}
    for name, tensor in adapter.tensors.items():
        if not part(name):
            others = [adapter.tensors[in_part(name, other)] for other in further] if factor(name) else []
            tensors[name] = np.concatenate([*others, tensor], axis=0 if factor(name) == "A" else -1)
    header = {"further": json.dumps({other: ranks[other] for other in further})}
    header["shared"] = json.dumps({key: adapter.config[key] for key in _SCALE if key in adapter.config})
    return Adapter(tensors, _widened(adapter.config, sum(ranks.values()))), header


def _widened(config: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """PEFT multiplies the product by lora_alpha / r, or by lora_alpha / sqrt(r): with more ranks alpha has to grow alike."""
    if not all(key in config for key in _SCALE):
        return dict(config)
    wider = rank / config["r"]
    alpha = config["lora_alpha"] * (math.sqrt(wider) if config.get("use_rslora") else wider)
    return {**config, "r": rank, "lora_alpha": int(alpha) if alpha == int(alpha) else alpha}


def _taken_apart(stored: Adapter, header: Mapping[str, str]) -> Adapter:
    if "further" not in header:
        return stored
    tensors: dict[str, Vector] = {}
    further: dict[str, int] = json.loads(header["further"])
    for name, tensor in stored.tensors.items():
        tensors.update(_pieces(name, tensor, further))
    return Adapter(tensors, {**stored.config, **json.loads(header["shared"])})


def _pieces(name: str, tensor: Vector, further: Mapping[str, int]) -> Tensors:
    if not factor(name):
        return {name: tensor}
    axis = 0 if factor(name) == "A" else -1
    cuts = np.cumsum(list(further.values()))
    *others, shared = np.split(tensor, cuts, axis=axis)
    found = dict(zip([in_part(name, other) for other in further], others, strict=True))
    return {name: np.ascontiguousarray(shared)} | {key: np.ascontiguousarray(value) for key, value in found.items()}
