"""What rules have in common that put noise on the mean of sites: its price, and when it leaves nothing of the mean."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from fedse.plugins import PluginOptions


class NoisyMeanOptions(PluginOptions):
    """Noise and its price."""

    clip: float = Field(default=1.0, gt=0)
    """Largest norm of a site's change; a longer one is cut."""
    noise_multiplier: float = Field(default=1.0, gt=0)
    """Noise on the sum in units of `clip`, the most that one site adds to it."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """Chance that is left to a loss of privacy beyond epsilon: less than one divided by the number of sites."""
    epsilon: float | None = Field(default=None, gt=0)
    """The most that may be spent: a file with more rounds is refused. null is no bound."""
    factors: Literal["both", "B"] = "both"
    """Which factors of LoRA clients train and send: with B alone half the values get noise, and no noise is multiplied."""
    simulation: bool = False
    """This simulates a study: run also where the noise drowns the mean."""


def drowned(told: NoisyMeanOptions, counted: float, noise: float, values: int, enough: int) -> str:
    """Why noise of this length on each value of a sum leaves nothing of the mean of `counted` sites, with the numbers;
    nothing where it leaves something. `enough` sites would do."""
    on_each = noise / counted
    length = math.sqrt(values) * on_each
    if length <= told.clip:
        return ""
    return (
        f"{counted:g} sites that count in a round, a clip of {told.clip:g} and a noise multiplier of "
        f"{told.noise_multiplier:g} put noise of {on_each:.3g} on each of {values:,} values of the mean change, which "
        f"is a length of {length:.3g}; the mean change itself has a length of {told.clip:g} at most, and of about "
        f"{told.clip / math.sqrt(counted):.3g} where sites do not agree: have {enough:,} sites or more, fewer values or "
        "less noise, or say with `aggregator.simulation: true` that this is a study"
    )
