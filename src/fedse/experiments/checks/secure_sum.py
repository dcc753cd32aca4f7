"""What does not go with a secure sum: whatever needs single updates, or leaves a sum without some of its sites."""

from __future__ import annotations

from fedse.aggregators.rule import ONLY_THE_SUM, SUM_AND_SQUARES
from fedse.experiments.keys import ExperimentKeys
from fedse.federation.advice import IN_A_SUM_OF_TWO
from fedse.federation.summed import FEWEST_APART
from fedse.plugins import build, capability


def check_secure_sum(experiment: ExperimentKeys) -> None:
    """Raises `ValueError`."""
    options = experiment.sending.secure_sum
    if options is None or not experiment.learning:
        return
    if experiment.sharing == "none":
        raise ValueError("with `sharing: none` nobody sends anything: leave `sending.secure_sum` out")
    aggregator = experiment.aggregator
    promised = () if aggregator.foreign else getattr(build("aggregator", aggregator), "promises", ())
    if not aggregator.foreign and not {ONLY_THE_SUM, SUM_AND_SQUARES} & {*promised}:
        raise ValueError(
            f"`aggregator: {aggregator.name}` looks at single updates, and `sending.secure_sum` shows their sum alone: use "
            f"one that promises '{ONLY_THE_SUM}' or '{SUM_AND_SQUARES}' (docs/aggregators.md), such as `mean`"
        )
    if experiment.checks.governance is not None:
        raise ValueError(
            "`checks.governance` compares single updates, and `sending.secure_sum` shows their sum alone: leave one of "
            "them out"
        )
    if experiment.has_library:
        raise ValueError(
            f"`mix: {experiment.mix.name}` needs what each client sent, and `sending.secure_sum` shows the sum alone: leave "
            "one of them out"
        )
    if experiment.participation.quorum < 1:
        raise ValueError(
            "a secure sum needs all sites that were asked, and `participation.quorum` closes rounds without some: "
            "leave it out"
        )
    first = [name for name in experiment.holdings if experiment.joins(name) == 1]
    measuring = sum(name not in experiment.learners for name in first)
    adding = experiment.participation.asked(len(first)) - measuring
    if capability(experiment.mix, "needs_plain_mean") and min(adding, options.min_sites) < FEWEST_APART:
        raise ValueError(
            f"with `mix: {experiment.mix.name}` each site takes its own update out of the mean, and of two sites that "
            f"leaves the other's: have {FEWEST_APART} clients that learn in every round, and "
            f"`sending.secure_sum.min_sites` of {FEWEST_APART} or more"
        )
    if adding < options.min_sites:
        raise ValueError(
            f"`sending.secure_sum.min_sites` is {options.min_sites}, and a round may have only {max(adding, 0)} "
            f"{'client that learns' if adding == 1 else 'clients that learn'}: {_more_of_them(adding)}"
        )


def _more_of_them(adding: int) -> str:
    """What to do about a sum of too few. A smaller `min_sites` is no advice where it gives away what the sum is for."""
    more = "let more clients that learn take part in every round"
    if adding >= FEWEST_APART:
        return f"set it to {FEWEST_APART}{f' to {adding}' if adding > FEWEST_APART else ''}, or {more}"
    return f"{more}, {FEWEST_APART} or more of them, because {IN_A_SUM_OF_TWO}"
