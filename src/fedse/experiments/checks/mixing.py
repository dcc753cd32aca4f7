"""What does not go with a mix: whatever keeps from a client what it mixes with."""

from __future__ import annotations

from fedse.adapters.plan import plan_of, withholds
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import build, capability


def check_mix(experiment: ExperimentKeys) -> None:
    """Raises `ValueError`."""
    mix = experiment.mix
    if experiment.sharing == "none" and (capability(mix, "needs_others") or experiment.has_library):
        raise ValueError(
            f"`mix: {mix.name}` mixes with what others send, and with `sharing: none` nobody sends: leave `mix` out"
        )
    if capability(mix, "begins_alone"):
        _check_beginning(experiment)
    if capability(mix, "needs_plain_mean") and not capability(experiment.aggregator, "plain_mean"):
        raise ValueError(
            f"`mix: {mix.name}` takes its own share out of the mean, and the aggregator is "
            f"'{experiment.aggregator.name}': use `aggregator: mean`"
        )
    if experiment.has_library and not experiment.aggregator.foreign:
        _check_library(experiment)


def _check_beginning(experiment: ExperimentKeys) -> None:
    alone = build("mix", experiment.mix, "anybody", experiment.seed).rounds
    if experiment.learning and 0 < experiment.rounds < alone:
        raise ValueError(
            f"`mix: {experiment.mix.name}` leaves everybody alone for {alone} rounds, and `rounds: {experiment.rounds}` "
            "ends before they are joined: set `mix.rounds` lower, or use `method: local_se`"
        )


def _check_library(experiment: ExperimentKeys) -> None:
    """What a client sends has to be all that it learned, on top of what everybody has."""
    aggregator = build("aggregator", experiment.aggregator)
    if withholds(plan_of(aggregator)) or getattr(aggregator, "adds_ranks", False):
        raise ValueError(
            f"`mix: {experiment.mix.name}` mixes whole adapters of the clients, and with `aggregator: "
            f"{experiment.aggregator.name}` clients keep a factor or are sent further ranks beside it: use an aggregator "
            "such as `mean` or `fedexp`"
        )
