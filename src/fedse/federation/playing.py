"""Any adapter, played on held-out tasks at clients that live in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol, runtime_checkable

from fedse.errors import BadInput
from fedse.probes.evaluation import Evaluation
from fedse.protocols import Engine
from fedse.types import Adapter, Episode, Learned, Lesson, RoundTask, Trajectory, WorldScore


@runtime_checkable
class PlaysAndTeaches(Protocol):
    """The engine of a process that holds all clients."""

    def play(self, adapter: Adapter, episodes: Sequence[Episode]) -> list[Trajectory]: ...

    def teach(self, lessons: Sequence[Lesson], round: int) -> Sequence[Learned | None]: ...


class Played(NamedTuple):
    episodes: Sequence[Trajectory]
    scores: Sequence[WorldScore]


def play_at(
    engine: Engine, evaluations: Mapping[str, Evaluation], adapter: Adapter, task: RoundTask
) -> dict[str, Played]:
    """What clients, by their names, measure of an adapter, all in one batch."""
    plans = {name: evaluation.plan(task) for name, evaluation in evaluations.items()}
    played = iter(of_one_process(engine).play(adapter, list(chain.from_iterable(plans.values()))))
    found = {}
    for name, evaluation in evaluations.items():
        own = list(islice(played, len(plans[name])))
        found[name] = Played(own, evaluation.score(task, own))
    return found


def of_one_process(engine: Engine) -> PlaysAndTeaches:
    if not isinstance(engine, PlaysAndTeaches):
        raise BadInput("this needs an engine that holds all clients in this process, such as `engine: local`.")
    return engine
