"""What does not go with noise on the mean of sites: whatever epsilon would not cover."""

from __future__ import annotations

from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import build


def check_private_sites(experiment: ExperimentKeys) -> None:
    """Refuse what epsilon would not cover, and more rounds than a budget allows. Raises `ValueError`."""
    if not experiment.has_noisy_mean:
        return
    name = f"`aggregator: {experiment.aggregator.name}`"
    if experiment.checks.max_ratio is not None or experiment.checks.governance is not None:
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
