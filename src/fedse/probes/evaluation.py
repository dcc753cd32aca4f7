"""Success on tasks nobody learns from: greedy, frozen, the same tasks in every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pydantic import Field, model_validator

from fedse.clients.client import EVALUATION
from fedse.clients.site import Site
from fedse.evaluation.metrics import score
from fedse.plugins import PluginOptions
from fedse.protocols import Probe
from fedse.seeds import generator
from fedse.stopwatch import during
from fedse.types import Ahead, Episode, Purpose, RoundTask, Split, Task, Trajectory, WorldScore
from fedse.worlds import reference
from fedse.worlds.answers import blamed, tasks_of
from fedse.worlds.world import World

HeldOut = tuple[str, Split, int | None]
"""A world's label, and how many tasks of which split it is measured on; None is all."""


class EvaluationOptions(PluginOptions):
    """How the adapter that enters a round is measured: greedy, frozen, on tasks nobody learns from."""

    tasks: int = Field(default=40, ge=1)
    """Validation tasks of each world before a site's first and after the last round; fewer where the world has fewer."""
    tasks_per_round: int | None = Field(default=None, ge=0)
    """Validation tasks in each round after the first, likewise; as many as `tasks` when not set, none when 0."""
    test_tasks: int | None = Field(default=200, ge=0)
    """Test tasks of each world, played once after the last round; fewer where the world has fewer, all of them when null, no
    test when 0."""
    after_learning: int = Field(default=0, ge=0)
    """Validation tasks of each world that a site also plays in every round with what it has learned, before it sends; they
    are among those that the next broadcast adapter is measured on, so that both numbers can be compared. None when 0."""

    mean_of_last: int = Field(default=1, ge=1)
    """Evaluations after the last round, `fedse eval` and `fedse export` take the mean of the shared adapters after so many
    rounds, the last ones up to theirs; FedExP's paper has 2. Rounds begin with the last adapter all the same."""

    learned_by_world: bool = False
    """Sites with several worlds also tell how many trajectories and tokens of each they learn from in a round."""

    @model_validator(mode="after")
    def _played_both_times(self) -> EvaluationOptions:
        measured = self.tasks if self.tasks_per_round is None else min(self.tasks, self.tasks_per_round)
        if self.after_learning > measured:
            raise ValueError(
                f"`after_learning` is {self.after_learning}, and adapters that enter a round are measured on {measured} "
                "tasks: choose no more, or raise `tasks` and `tasks_per_round`"
            )
        return self


class Evaluation:
    """The probe that every client has."""

    def __init__(self, site: Site, options: EvaluationOptions) -> None:
        self.site = site
        self.options = options
        self._references: dict[HeldOut, tuple[float, float | None]] = {}
        self._beside: dict[HeldOut, Callable[[], list[reference.Outcomes] | None]] = {}

    def plan(self, task: RoundTask) -> list[Episode]:
        return self.first(task, self._count(task))

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> list[WorldScore]:
        return self.score_of(task, played, self._count(task))

    def first(self, task: RoundTask, count: int | None) -> list[Episode]:
        """So many tasks of each world; more of them begin with the same ones."""
        return [
            self.site.episode(label, item, Purpose.EVALUATE, task.round)
            for label in self.site.places
            if task.world in ("", label)
            for item in _tasks(self.site.places[label].world, task.split, count)
        ]

    def score_of(self, task: RoundTask, played: Sequence[Trajectory], count: int | None) -> list[WorldScore]:
        """What came of so many tasks of each world."""
        scores = []
        for label in self.site.places:
            own = [item for item in played if item.world == label]
            if own:
                held_out = label, task.split, count
                if held_out not in self._references:
                    self._references[held_out] = self._measured(held_out)
                scores.append(score(label, task.split, own, *self._references[held_out]))
        return scores

    def ahead(self, task: RoundTask) -> list[Ahead]:
        found = []
        for label, place in self.site.places.items():
            held_out = label, task.split, self._count(task)
            if task.world in ("", label) and held_out not in self._references and held_out not in self._beside:
                episodes = (1 + reference.REPEATS) * len(_tasks(place.world, *held_out[1:]))
                share = partial(_share, place.make, *held_out[1:])
                found.append(Ahead(share, partial(self._beside.__setitem__, held_out), episodes))
        return found

    def _count(self, task: RoundTask) -> int | None:
        if task.split == "test":
            return self.options.test_tasks
        if task.kind == "evaluate" or task.round == self.site.joins or self.options.tasks_per_round is None:
            return self.options.tasks
        return self.options.tasks_per_round

    def _measured(self, held_out: HeldOut) -> tuple[float, float | None]:
        label, split, count = held_out
        world = self.site.places[label].world
        with during("world"), blamed(world, "its expert"):
            told = self._beside.pop(held_out, lambda: None)()
            return reference.references(
                reference.outcomes(world, _tasks(world, split, count)) if told is None else told
            )


def _tasks(world: World, split: Split, count: int | None) -> list[Task]:
    """The same tasks every time, in an order that does not depend on the run's seed, so that runs can be paired."""
    tasks = tasks_of(world, split)
    order = generator("held out", world.name, split).permutation(len(tasks))
    return [tasks[index] for index in order[:count]]


def _share(
    make_world: Callable[[], World], split: Split, count: int | None, number: int, processes: int
) -> list[reference.Outcomes]:
    world = make_world()
    return reference.outcomes(world, _tasks(world, split, count)[number::processes])


def evaluation_of(probes: Mapping[str, Probe]) -> Evaluation:
    """The one among a client's probes that measures success."""
    found = probes[EVALUATION]
    assert isinstance(found, Evaluation)
    return found
