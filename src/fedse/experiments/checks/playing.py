"""What could keep an experiment from being played as asked, found out before anything is written."""

from __future__ import annotations

from collections.abc import Collection

from fedse.events import Warned
from fedse.experiments.components import Components
from fedse.experiments.keys import ExperimentKeys
from fedse.experiments.task_counts import fewer_than_asked
from fedse.experiments.world_settings import not_made_for
from fedse.protocols import CanBeChecked
from fedse.rollouts.player import check_actions


def check_playing(experiment: ExperimentKeys, components: Components, begun: bool) -> list[Warned]:
    """What to warn of. Where a run has `begun`, its worlds and buffers have been looked at."""
    warnings = not_made_for(experiment)
    if not begun:
        worlds = [item for makers in components.worlds.values() for item in makers.items()]
        check_actions(components.policy, worlds)
        warnings += _check_start(components, experiment.learning_clients)
        warnings += fewer_than_asked(experiment, components.worlds)
    return warnings


def _check_start(components: Components, learning: Collection[str]) -> list[Warned]:
    """Whether the buffers of the clients that learn can begin as asked; what to warn of, each thing once."""
    if not isinstance(components.start, CanBeChecked):
        return []
    warnings = [
        warning
        for client, worlds in components.worlds.items()
        if client in learning
        for label, make_world in worlds.items()
        for warning in components.start.check(client, label, make_world(), components.model)
    ]
    return list({warning.message: warning for warning in warnings}.values())
