"""What does not go with noise on the mean of sites: whatever epsilon would not cover."""

from __future__ import annotations

from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import build, capability
from fedse.privacy.noise import NoiseKey

SPREADS = 9.0
"""Of the noise on a value: further off there is none in billions of years."""


def check_private_sites(experiment: ExperimentKeys) -> None:
    """Refuse what epsilon would not cover, and more rounds than a budget allows. Raises `ValueError`."""
    if not experiment.has_noisy_mean:
        return
    name = f"`aggregator: {experiment.aggregator.name}`"
    if capability(experiment.aggregator, "noise_at_sites"):
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
    if experiment.has_library or experiment.shares:
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


def _check_shares(experiment: ExperimentKeys, name: str) -> None:
    """Refuse parts of the noise that would be seen singly, or that a sum does not hold. Raises `ValueError`."""
    summing = experiment.sending.secure_sum
    if summing is None:
        raise ValueError(
            f"with {name} each site adds a part of the noise, which hides its update in a sum alone: add `sending: "
            "{secure_sum: {}}`, or use `dp_fedavg`, which trusts the server"
        )
    measured = experiment.evaluation
    if measured.learned_by_world or measured.after_learning or experiment.learned_probes:
        raise ValueError(
            f"with {name} leave `evaluation.learned_by_world`, `evaluation.after_learning` and `learned` of probes out: "
            "they tell what a single site learned, and epsilon covers the sum alone"
        )
    made = build("aggregator", experiment.aggregator)
    if made.options.colluding >= summing.min_sites:
        raise ValueError(
            f"with {name} {made.options.colluding} sites may work together (`aggregator.colluding`), and a sum may have "
            f"{summing.min_sites} (`sending.secure_sum.min_sites`): have more in a sum, or allow fewer"
        )
    most = made.options.clip + SPREADS * made.share(NoiseKey.passing()).spread(summing.min_sites)
    if most > summing.largest:
        raise ValueError(
            f"`sending.secure_sum.largest` is {summing.largest:g}, and with {name} a value may change by {most:.3g}, its "
            "noise included: choose a larger one, or less noise"
        )
