"""An adapter as a folder in PEFT's layout, which PEFT and vLLM load as it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from fedse.errors import BadInput
from fedse.types import Adapter

TENSORS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def write_adapter(adapter: Adapter, folder: Path) -> None:
    """Write into an existing folder. Making that atomic is the business of whoever owns the folder."""
    tensors = {name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in sorted(adapter.tensors.items())}
    # Written by Python, whose error says when the disk is full.
    (folder / TENSORS).write_bytes(save(tensors, metadata={"format": "pt"}))
    (folder / CONFIG).write_text(json.dumps(dict(adapter.config), indent=2, sort_keys=True) + "\n")


def read_adapter(folder: Path) -> Adapter:
    for name in (TENSORS, CONFIG):
        if not (folder / name).is_file():
            raise BadInput(f"{folder} holds no adapter: {name} is missing.")
    try:
        return Adapter(load_file(folder / TENSORS), json.loads((folder / CONFIG).read_text()))
    except (SafetensorError, ValueError) as error:
        raise BadInput(f"the adapter in {folder} is damaged ({error}).") from error
