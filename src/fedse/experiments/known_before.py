"""What an experiment file says, before its run begins, about the names and numbers that may leave a site."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fedse.experiments.options import Experiment
from fedse.federation.expected import UNKNOWN, Expected
from fedse.plugins import Choice, capability, resolve
from fedse.privacy.names import Names, told_worlds

GENEROUS = 100
"""How much more than `exploration` says a curriculum may plan that does not promise to keep to it."""


def expected_of(experiment: Experiment) -> Expected:
    """What the server may expect of its clients."""
    measured = experiment.evaluation
    return Expected(
        worlds={client: tuple(labels) for client, labels in experiment.holdings.items()},
        metrics=experiment.metrics,
        probes=experiment.reported_probes,
        shares=experiment.shares,
        explored=_explored(experiment),
        rescues=not capability(experiment.rescue, "empty"),
        started=_started(experiment),
        learned_from=experiment.buffer.max_trajectories,
        tested={
            "validation": max(measured.tasks, measured.tasks_per_round or 0),
            "test": UNKNOWN if measured.test_tasks is None else measured.test_tasks,
        },
    )


def names_of(experiment: Experiment, labels: Iterable[str], written: Collection[str]) -> Names:
    """What a site with these worlds may tell. `written` are those that the common experiment file names for it."""
    return Names(
        worlds=told_worlds(labels, written),
        metrics=experiment.metrics,
        probes=experiment.reported_probes,
        shares=experiment.shares,
    )


def _explored(experiment: Experiment) -> int:
    if not experiment.exploring:
        return 0
    planned = experiment.exploration.tasks * experiment.exploration.attempts
    return planned if capability(experiment.curriculum, "keeps_to_exploration") else GENEROUS * planned


def _started(experiment: Experiment) -> int:
    return max(map(_most_of, map(experiment.start_of, experiment.clients)))


def _most_of(start: Choice) -> int:
    if capability(start, "empty"):
        return 0
    bounded_by = getattr(resolve("start", start.name), "bounded_by", "")
    return int(start.options[bounded_by]) if bounded_by else UNKNOWN
