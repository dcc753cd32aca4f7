"""What does not go with who takes part in a round, and from which round on."""

from __future__ import annotations

import math

from fedse.experiments.keys import POOLED, ExperimentKeys


def check_newcomers(experiment: ExperimentKeys) -> None:
    """Refuse clients that would never be there, or not when they are needed. Raises `ValueError`."""
    if not experiment.learning:
        return
    if all(options.joins > 1 for options in experiment.clients.values()):
        raise ValueError("every client joins after round 1, so nobody would be there: let one of them join in round 1")
    for name, options in experiment.clients.items():
        if options.joins > max(1, experiment.rounds):
            raise ValueError(
                f"client '{name}' has `joins: {options.joins}` and would never take part, because the experiment has "
                f"{experiment.rounds} rounds: let it join earlier, or raise `rounds`"
            )
        if experiment.pooled and options.learns and options.joins > 1:
            raise ValueError(
                f"client '{name}' has `joins: {options.joins}`, and `pooled: true` leaves one client with all worlds "
                "from the first round on: set its `joins` to 1"
            )


def check_participation(experiment: ExperimentKeys) -> None:
    """Refuse rounds that could never be closed, or that wait for nothing. Raises `ValueError`."""
    taking_part = experiment.participation
    asked = taking_part.asked(sum(options.joins == 1 for options in experiment.clients.values()))
    if not experiment.pooled and taking_part.min_clients > asked:
        raise ValueError(
            f"`participation.min_clients` is {taking_part.min_clients}, and {asked} clients are asked in a "
            "round: choose fewer"
        )
    clients = len(experiment.clients)
    asks_all = taking_part.fraction == 1 or 1 < clients == taking_part.asked(clients)
    if taking_part.draw == "in_turn" and asks_all:
        # Rounded down: a little more than one client's part would ask two.
        one = math.floor(1e6 / max(2, clients)) / 1e6
        raise ValueError(
            "`participation.draw: in_turn` is about who is asked where not all clients are, and `participation.fraction: "
            f"{taking_part.fraction:g}` asks all: set it to the part of the clients that one round asks, {one:g} for one "
            "client, or leave `draw` out"
        )
    everybody = taking_part.fraction == taking_part.quorum == 1 and taking_part.deadline_minutes is None
    if experiment.learning and experiment.sharing == "none" and not everybody:
        raise ValueError(
            "clients that share nothing wait for nobody: leave `fraction`, `quorum` and `deadline_minutes` of "
            "`participation` out with `sharing: none`"
        )
    if experiment.pooled and POOLED in experiment.measuring:
        raise ValueError(f"a client beside the pooled one cannot be called '{POOLED}': give it another name")
