"""Noise on the mean of sites: too few sites for it, and the server's key."""

from __future__ import annotations

from typing import Any

from fedse.adapters.plan import sent
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.plugins import build
from fedse.privacy.noise import NoiseKey
from fedse.runs.folder import RunFolder
from fedse.types import Adapter

KEY = "noise.key"
"""File of the server in a run's folder."""


def check_signal(experiment: Experiment, first: Adapter) -> None:
    """Refuse noise that leaves nothing of the mean, unless the experiment says that it is a study."""
    made = build("aggregator", experiment.aggregator)
    asked = sent(first, made.plan.in_round(1))
    if not made.options.simulation and (why := made.drowned(_asked(experiment), asked.size)):
        raise BadInput(f"aggregator: {experiment.aggregator.name}: the noise would drown what is learned. {why}.")


def settle(experiment: Experiment, aggregator: Any, run: RunFolder) -> None:
    """Give the aggregator of a run its key and the number of sites."""
    if experiment.has_noisy_mean:
        aggregator.key = NoiseKey(run.path / KEY, nothing_left=not run.last_round())
        aggregator.sites = _asked(experiment)


def _asked(experiment: Experiment) -> int:
    return experiment.participation.asked(len(experiment.learners))
