"""Noise on the mean of sites: what does not go with it, too few sites for it, and the server's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedse.adapters.plan import sent
from fedse.errors import BadInput
from fedse.plugins import build, capability
from fedse.privacy.noise import NoiseKey
from fedse.runs.folder import RunFolder
from fedse.types import Adapter

if TYPE_CHECKING:
    from fedse.experiments.options import Experiment

KEY = "noise.key"
"""File of the server in a run's folder."""
SPREADS = 9.0
"""Of the noise on a value: further off there is none in billions of years."""


def has_noisy_mean(experiment: Experiment) -> bool:
    shares = experiment.learning and experiment.sharing == "all"
    return shares and not experiment.aggregator.foreign and capability(experiment.aggregator, "draws_noise")


def check_private_sites(experiment: Experiment) -> None:
    """Refuse what epsilon would not cover, and more rounds than a budget allows. Raises `ValueError`."""
    if not has_noisy_mean(experiment):
        return
    name = f"`aggregator: {experiment.aggregator.name}`"
    at_sites = capability(experiment.aggregator, "noise_at_sites")
    if at_sites:
        _check_shares(experiment, name)
    elif experiment.checks.max_ratio is not None or experiment.checks.governance is not None:
        raise ValueError(
            f"with {name} a site must not decide whether another counts, and it cuts every change by itself: set "
            "`checks.max_ratio` to null, and leave `checks.governance` out"
        )
    if experiment.promotion is not None:
        raise ValueError(
            f"{name} puts noise on adapters, and `promotion` chooses among them by scores without noise: leave it out"
        )
    if experiment.has_library() or experiment.shares():
        raise ValueError(
            f"{name} puts noise on the mean, and `mix: {experiment.mix.name}`, the curriculum or a probe sends sites what "
            "others told without noise: use others"
        )
    budget = experiment.aggregator.options.get("epsilon")
    if budget is None or experiment.rounds == 0:
        return
    made = build("aggregator", experiment.aggregator)
    if (spent := made.spent(experiment.rounds)) > budget:
        raise ValueError(
            f"aggregator.epsilon: {experiment.rounds} rounds spend epsilon = {spent:.2f}, and {budget:g} may be spent: "
            f"raise `noise_multiplier` to {made.enough_noise(experiment.rounds, budget):g}, or have fewer rounds"
        )


def _check_shares(experiment: Experiment, name: str) -> None:
    """Refuse parts of the noise that would be seen singly, or that a sum does not hold. Raises `ValueError`."""
    summing = experiment.sending.secure_sum
    if summing is None:
        raise ValueError(
            f"with {name} each site adds a part of the noise, which hides its update in a sum alone: add `sending: "
            "{secure_sum: {}}`, or use `dp_fedavg`, which trusts the server"
        )
    made = build("aggregator", experiment.aggregator)
    if made.options.colluding >= summing.least:
        raise ValueError(
            f"with {name} {made.options.colluding} sites may work together (`aggregator.colluding`), and a sum may have "
            f"{summing.least} (`sending.secure_sum.least`): have more in a sum, or allow fewer"
        )
    most = made.options.clip + SPREADS * made.share(NoiseKey.passing()).spread(summing.least)
    if most > summing.largest:
        raise ValueError(
            f"`sending.secure_sum.largest` is {summing.largest:g}, and with {name} a value may change by {most:.3g}, its "
            "noise included: choose a larger one, or less noise"
        )


def check_signal(experiment: Experiment, first: Adapter) -> None:
    """Refuse noise that leaves nothing of the mean, unless the experiment says that it is a study."""
    made = build("aggregator", experiment.aggregator)
    asked = sent(first, made.plan.in_round(1))
    if not made.options.simulation and (why := made.drowned(_asked(experiment), asked.size)):
        raise BadInput(f"aggregator: {experiment.aggregator.name}: the noise would drown what is learned. {why}.")


def settle(experiment: Experiment, aggregator: Any, run: RunFolder) -> None:
    """Give the aggregator of a run its key and the number of sites, where it is the server that puts noise on the mean."""
    if has_noisy_mean(experiment) and not capability(experiment.aggregator, "noise_at_sites"):
        aggregator.key = NoiseKey(run.path / KEY, nothing_left=not run.last_round())
        aggregator.sites = _asked(experiment)


def _asked(experiment: Experiment) -> int:
    return experiment.participation.asked(len(experiment.learners()))
