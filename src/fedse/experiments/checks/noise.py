"""Whether there can be noise, and whether that on the mean of sites leaves anything of what they learned, found out before
anything is written."""

from __future__ import annotations

from importlib.util import find_spec

from fedse.adapters.plan import sent
from fedse.errors import BadInput, MissingExtra
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import Choice, build, capability
from fedse.types import Adapter

_LIBRARIES = {"dp_accounting": "dp-accounting", "cryptography": "cryptography"}


def check_noise_libraries(experiment: ExperimentKeys, learns_here: bool) -> None:
    """Raises `MissingExtra` where noise is asked for and could be neither drawn nor accounted for. Where clients do not
    learn here, only the server's noise counts."""
    of_learner = learns_here and experiment.learning and capability(experiment.learner, "draws_noise")
    if of_learner or experiment.has_noisy_mean:
        for module, library in _LIBRARIES.items():
            if find_spec(module) is None:
                raise MissingExtra("noise for privacy", library, "dp")


def check_noise(aggregator: Choice, learners: int, first: Adapter) -> None:
    """Refuse noise that drowns the mean of so many clients, unless the experiment says that it is a study. Raises
    `BadInput`."""
    made = build("aggregator", aggregator)
    asked = sent(first, made.plan.in_round(1))
    if not made.options.simulation and (why := made.drowned(learners, asked.size)):
        raise BadInput(f"aggregator: {aggregator.name}: the noise would drown what is learned. {why}.")
