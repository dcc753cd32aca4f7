"""The base model inside the package: a small Llama that plays four worlds and errs in certain situations."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fedse.models.card import ModelCard
from fedse.models.pretrained import Pretrained


def weights_folder() -> Path:
    return Path(str(files("fedse.models") / "nano_weights"))


class Nano(Pretrained):
    """Two million parameters, made by `scripts/pretrain_nano.py` from imperfect play."""

    name = "fedse/nano"
    card = ModelCard(licence="Apache-2.0", folder=weights_folder)
    only_here = True

    def folder(self) -> str:
        return str(weights_folder())
