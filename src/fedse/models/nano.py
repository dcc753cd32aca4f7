"""The base model inside the package: a small Llama that plays four worlds and errs in certain situations."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fedse.models.card import ModelCard, WorldSettings
from fedse.models.pretrained import Pretrained


def weights_folder() -> Path:
    return Path(str(files("fedse.models") / "nano_weights"))


_FORM = {"mode": "clean", "rules": "bare", "observation_length": "brief"}
WORLDS = {
    "babyai": WorldSettings(
        _FORM,
        {
            "shortest": 4,
            "longest": 5,
            "turn_limit": 5,
            "levels": [
                *("OpenDoorsOrderN4Debug", "Pickup", "PutNextLocalS6N4", "PutNextS7N4Carrying", "UnlockLocalDist"),
                *("KeyInBox", "FindObjS7"),
            ],
        },
    ),
    "maze": WorldSettings(_FORM, {"shortest": 4, "longest": 6, "turn_limit": 6}),
    "textcraft": WorldSettings(_FORM, {"shallowest": 2, "deepest": 2, "turn_limit": 4}),
    "webshop": WorldSettings(_FORM, {"turn_limit": 5}),
}
"""What `scripts/pretrain_nano.py` played."""


class Nano(Pretrained):
    """Two million parameters, made by `scripts/pretrain_nano.py` from imperfect play."""

    name = "fedse/nano"
    card = ModelCard(licence="Apache-2.0", folder=weights_folder, worlds=WORLDS)
    only_here = True

    def folder(self) -> str:
        return str(weights_folder())
