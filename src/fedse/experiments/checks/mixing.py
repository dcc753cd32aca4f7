"""What does not go with a mix: whatever keeps from a client what it mixes with."""

from __future__ import annotations

from fedse.adapters.plan import Alternation, TensorPlan, plan_of, withholds
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import build, capability


def check_mix(experiment: ExperimentKeys) -> None:
    """Raises `ValueError`."""
    mix = experiment.mix
    if experiment.sharing == "none" and (capability(mix, "needs_others") or experiment.has_library):
        raise ValueError(
            f"`mix: {mix.name}` mixes with what others send, and with `sharing: none` nobody sends: leave `mix` out"
        )
    if experiment.rounds_alone:
        _check_beginning(experiment)
    if capability(mix, "needs_plain_mean") and not capability(experiment.aggregator, "plain_mean"):
        raise ValueError(
            f"`mix: {mix.name}` takes its own share out of the mean, and the aggregator is "
            f"'{experiment.aggregator.name}': use `aggregator: mean`"
        )
    if capability(mix, "needs_plain_mean") and experiment.start_adapter is not None:
        raise ValueError(
            f"`mix: {mix.name}` puts what clients send in the place of the others' adapters, and an adapter to begin with "
            "would be gone after a round: leave `start_adapter` out"
        )
    if capability(mix, "adds_server_step") and mix.options.get("weight"):
        _check_server_step(experiment)
    if (experiment.has_library or capability(mix, "needs_whole_adapters")) and not experiment.aggregator.foreign:
        _check_whole_adapters(experiment)


def _check_beginning(experiment: ExperimentKeys) -> None:
    """Everybody has to evolve alone from the first round on, and what is joined has to be what everybody became."""
    mix, aggregator, alone = experiment.mix.name, experiment.aggregator.name, experiment.rounds_alone
    if experiment.learning and 0 < experiment.rounds < alone:
        raise ValueError(
            f"`mix: {mix}` leaves everybody alone for {alone} rounds, and `rounds: {experiment.rounds}` ends before they "
            "are joined: set `mix.rounds` lower, or use `method: local_se`"
        )
    if experiment.participation.fraction < 1:
        raise ValueError(
            f"`mix: {mix}` joins what everybody has become in round {alone}, and `participation.fraction` leaves clients "
            "out of a round: leave it out"
        )
    for client, options in experiment.clients.items():
        if 1 < options.joins <= alone:
            raise ValueError(
                f"client '{client}' has `joins: {options.joins}`, and with `mix: {mix}` everybody evolves alone from "
                f"round 1 to round {alone}: let it join in round 1, or after round {alone}"
            )
    if not experiment.aggregator.foreign and plan_of(build("aggregator", experiment.aggregator)) != TensorPlan():
        raise ValueError(
            f"`mix: {mix}` joins whole adapters, and with `aggregator: {aggregator}` clients do not train and send both "
            "factors in every round: use an aggregator such as `mean`"
        )


def _check_server_step(experiment: ExperimentKeys) -> None:
    """There has to be one, and what clients begin with has to be, on average, what the server made."""
    mix = experiment.mix.name
    if capability(experiment.aggregator, "plain_mean"):
        raise ValueError(
            f"`mix: {mix}` adds the step that the server makes beyond the mean of all clients, and with `aggregator: "
            f"{experiment.aggregator.name}` there is none: use an aggregator such as `fedavgm`, or another mix"
        )
    if experiment.participation.fraction < 1:
        raise ValueError(
            f"`mix: {mix}` adds the server's step to the adapters of all clients, and `participation.fraction` leaves some "
            "out of a round, which the server would take for a step: leave it out"
        )


def _check_whole_adapters(experiment: ExperimentKeys) -> None:
    """What a client sends has to be all that it learned, on top of what everybody has."""
    aggregator = build("aggregator", experiment.aggregator)
    if withholds(plan_of(aggregator)) or getattr(aggregator, "adds_ranks", False):
        raise ValueError(
            f"`mix: {experiment.mix.name}` mixes whole adapters of the clients, and with `aggregator: "
            f"{experiment.aggregator.name}` clients keep a factor or are sent further ranks beside it: use an aggregator "
            "such as `mean` or `fedexp`"
        )
    changing = getattr(aggregator, "new_factors", False) or isinstance(plan_of(aggregator), Alternation)
    if changing and capability(experiment.mix, "needs_same_factors"):
        raise ValueError(
            f"`mix: {experiment.mix.name}` adds up factors of different adapters, and `aggregator: "
            f"{experiment.aggregator.name}` makes new factors or has them trained in turn, so that they do not belong "
            "together: use an aggregator such as `mean` or `fedavgm`"
        )
