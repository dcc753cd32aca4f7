"""Whether noise on the mean of sites leaves anything of what they learned, found out before anything is written."""

from __future__ import annotations

from fedse.adapters.plan import sent
from fedse.errors import BadInput
from fedse.plugins import Choice, build
from fedse.types import Adapter


def check_noise(aggregator: Choice, learners: int, first: Adapter) -> None:
    """Refuse noise that drowns the mean of so many clients, unless the experiment says that it is a study. Raises
    `BadInput`."""
    made = build("aggregator", aggregator)
    asked = sent(first, made.plan.in_round(1))
    if not made.options.simulation and (why := made.drowned(learners, asked.size)):
        raise BadInput(f"aggregator: {aggregator.name}: the noise would drown what is learned. {why}.")
