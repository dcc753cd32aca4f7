"""An adapter as a folder in PEFT's layout, which PEFT and vLLM load as it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedse.errors import BadInput
from fedse.types import Adapter

TENSORS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def write_adapter(adapter: Adapter, folder: Path) -> None:
    """Write into an existing folder. Making that atomic is the business of whoever owns the folder."""
    save_file(
        {name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in sorted(adapter.tensors.items())},
        folder / TENSORS,
        metadata={"format": "pt"},
    )
    (folder / CONFIG).write_text(json.dumps(dict(adapter.config), indent=2, sort_keys=True) + "\n")


def read_adapter(folder: Path) -> Adapter:
    try:
        return Adapter(load_file(folder / TENSORS), json.loads((folder / CONFIG).read_text()))
    except FileNotFoundError as error:
        raise BadInput(f"{folder} holds no adapter: {Path(error.filename).name} is missing.") from error
    except (SafetensorError, json.JSONDecodeError) as error:
        raise BadInput(f"the adapter in {folder} is damaged ({error}).") from error
