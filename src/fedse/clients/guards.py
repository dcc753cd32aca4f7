"""What a client demands of its plug-ins: nobody learns from held-out tasks, outcomes stay the world's, no text leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fedse.clients.site import Place, Site
from fedse.errors import BadInput
from fedse.plugins import described, list_of, numbers
from fedse.protocols import LearnsTogether
from fedse.types import Adapter, Episode, Learned, Outcome, Play, Purpose, RoundTask, Tensors, Trajectory, WorldScore
from fedse.worlds.hints import LEVELS
from fedse.worlds.training_part import part_of

T = TypeVar("T")
ENTERING = Adapter({})
"""Stands for the adapter that enters the round in what a curriculum asks for."""


def asked_of(plugin: object, made: Generator[Play, list[Trajectory], T]) -> Generator[Play, list[Trajectory], T]:
    """What a curriculum, a rescue or a judge returned, if it can ask for episodes, and for nothing else."""
    name = type(plugin).__name__
    if not isinstance(made, Generator):
        raise BadInput(f"{name}: it has to be a generator; one that asks for no episodes begins with `yield from ()`.")
    try:
        asked = next(made)
        while True:
            if not isinstance(asked, Play):
                raise BadInput(
                    f"{name}: it has to ask with `played = yield Play(adapter, episodes)`, not to yield {described(asked)}; "
                    "what it has to give is returned at the end."
                )
            try:
                played = yield asked
            except BaseException as error:
                asked = made.throw(error)
            else:
                asked = made.send(played)
    except StopIteration as ended:
        value: T = ended.value
        return value


def with_adapter(
    made: Generator[Play, list[Trajectory], T], entering: Callable[[], Adapter]
) -> Generator[Play, list[Trajectory], T]:
    """The same, with the adapter that enters the round where it asks for that."""
    try:
        asked = next(made)
        while True:
            filled = replace(asked, adapter=entering()) if asked.adapter is ENTERING else asked
            asked = made.send((yield filled))
    except StopIteration as ended:
        value: T = ended.value
        return value


def checked_plan(site: Site, task: RoundTask, planned: Sequence[Episode]) -> Sequence[Episode]:
    """What is explored: training tasks of this site and tasks made of them, each attempt once."""
    seen = set()
    for episode in list_of(Episode, planned, "curriculum"):
        place = site.places.get(episode.world)
        own = episode.client == site.name and episode.round == task.round and place is not None
        if not own or episode.purpose is not Purpose.EXPLORE:
            raise BadInput(
                f"curriculum: it planned an episode that is not an exploration of site '{site.name}' in round {task.round}: "
                "make episodes with `site.episode(label, task, Purpose.EXPLORE, round, ...)`."
            )
        assert place is not None
        if not place.may_explore(episode.task.id):
            raise BadInput(
                f"curriculum: '{episode.task.id}' is not a training task of the world '{episode.world}', nor made of one."
            )
        if episode.hint and (episode.hint not in LEVELS or not place.world.has_hints):
            raise BadInput(
                f"curriculum: it planned hints of level {episode.hint} for the world '{episode.world}', which gives "
                f"{f'those of the levels {LEVELS[0]} to {LEVELS[-1]}' if place.world.has_hints else 'none'}."
            )
        if not 0 <= episode.sampling.temperature < math.inf:
            raise BadInput(
                f"curriculum: it planned an episode at a temperature of {episode.sampling.temperature}: it is a number from "
                "0 on."
            )
        key = (episode.world, episode.task.id, episode.attempt)
        if key in seen:
            raise BadInput(
                f"curriculum: it planned attempt {episode.attempt} at task '{episode.task.id}' of '{episode.world}' twice: "
                "give each attempt at a task a number of its own."
            )
        seen.add(key)
    return planned


def checked_start(site: Site, place: Place, shown: Sequence[Trajectory]) -> Sequence[Trajectory]:
    """What a buffer begins with: where the site has a part of the training tasks, nothing of the other parts."""
    list_of(Trajectory, shown, "start")
    if part_of(place.world) is not None:
        for trajectory in shown:
            if trajectory.task not in place.training:
                raise BadInput(
                    f"start: it shows the task '{trajectory.task}' of '{place.label}', which is not in the part of the "
                    f"training tasks that site '{site.name}' has: list tasks with `fedse.worlds.answers.tasks_of`."
                )
    return shown


def checked_rescue(site: Site, finished: Sequence[Trajectory], rescued: Sequence[Trajectory]) -> Sequence[Trajectory]:
    """What was made of failures: of tasks that this site may explore, beside what it was given and in place of nothing.

    A rescue is not given attempts in which the world broke: it cannot know their numbers, and nobody remembers them.
    """
    seen = {_place(item) for item in finished}
    played = {(item.client, item.round, item.adapter) for item in finished}
    for item in list_of(Trajectory, rescued, "rescue"):
        place = site.places.get(item.world)
        if (
            item.purpose is not Purpose.RELABEL
            or (item.client, item.round, item.adapter) not in played
            or place is None
        ):
            raise BadInput(
                "rescue: it has to return trajectories with the purpose `RELABEL` that it made of those it was given: make "
                "them with `fedse.rollouts.replaying.relabelled`."
            )
        if not place.may_explore(item.task):
            raise BadInput(
                f"rescue: '{item.task}' is not a training task of the world '{item.world}', nor made of one."
            )
        if _place(item) in seen:
            raise BadInput(f"rescue: attempt {item.attempt} at task '{item.task}' of '{item.world}' is there already.")
        seen.add(_place(item))
    # Nobody drew these replies in these conversations.
    return [replace(item, log_probs=()) for item in rescued]


def with_rewards(explored: Sequence[Trajectory], judged: Sequence[Trajectory]) -> list[Trajectory]:
    """What was explored, with what the judge gave; everything else stays as it was played."""
    finished = [item for item in explored if item.outcome is not Outcome.ERROR]
    if [_place(item) for item in finished] != [_place(item) for item in list_of(Trajectory, judged, "judge")]:
        raise BadInput("judge: it has to return every trajectory that it was given, once and in order.")
    given = iter(judged)
    return [
        item if item.outcome is Outcome.ERROR else replace(item, rewards=_numbers(next(given).rewards))
        for item in explored
    ]


def _place(trajectory: Trajectory) -> tuple[str, str, int]:
    return trajectory.world, trajectory.task, trajectory.attempt


def _numbers(rewards: Mapping[str, Any]) -> dict[str, float]:
    found = {name: float(value) for name, value in numbers(rewards, "judge").items()}
    if not all(map(math.isfinite, found.values())):
        raise BadInput(f"judge: rewards have to be finite numbers, not {found}.")
    return found


def checked_kept(given: Sequence[Trajectory], kept: Sequence[Trajectory]) -> Sequence[Trajectory]:
    """What a filter lets through: some of what it was given, each once."""
    places = [_place(item) for item in list_of(Trajectory, kept, "filter")]
    if len(set(places)) < len(places) or not {_place(item) for item in given}.issuperset(places):
        raise BadInput("filter: it has to return some of the trajectories that it was given, each at most once.")
    return kept


def checked_learned(learner: object, learned: Any) -> Learned | None:
    """What a learner returned of a lesson; None where it abstained."""
    if learned is None:
        return None
    owner = f"learner '{type(learner).__name__}'"
    expected = f"{owner}: it has to return an adapter and its metrics, `(adapter, {{'loss': 0.5}})`, or None to abstain"
    if not (isinstance(learned, tuple | list) and len(learned) == 2):
        raise BadInput(f"{expected}, not {described(learned)}.")
    adapter, metrics = learned
    if not isinstance(adapter, Adapter):
        raise BadInput(f"{expected}; in the place of the `Adapter` is {described(adapter)}.")
    return an_adapter(adapter, owner), numbers(metrics, owner)


def checked_together(learner: object, learned: Any, lessons: int) -> list[Learned | None]:
    """What a learner returned of several lessons, in their order."""
    if not (isinstance(learned, tuple | list) and len(learned) == lessons):
        given = f"{len(learned)} items" if isinstance(learned, tuple | list) else described(learned)
        raise BadInput(
            f"learner '{type(learner).__name__}': `learn_together` was given {lessons} lessons and has to return a list "
            f"with one item for each, in their order, not {given}."
        )
    return [checked_learned(learner, item) for item in learned]


def checked_at_once(learner: LearnsTogether) -> int:
    """How many lessons a learner takes together."""
    number = learner.at_once
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise BadInput(
            f"learner '{type(learner).__name__}': `at_once` has to be a whole number of at least 1, not {described(number)}."
        )
    return number


def an_adapter(found: Any, owner: str) -> Adapter:
    """What a plug-in made, if it is an adapter of arrays."""
    if not isinstance(found, Adapter):
        raise BadInput(f"{owner}: it has to give an `Adapter`, not {described(found)}.")
    arrays(found.tensors, owner)
    return found


def arrays(found: Any, owner: str) -> Tensors:
    """Tensors that a plug-in made, if they are."""
    if not isinstance(found, Mapping):
        raise BadInput(f"{owner}: it has to give NumPy arrays by name, not {described(found)}.")
    for name, tensor in found.items():
        if not isinstance(tensor, np.ndarray | np.generic):
            raise BadInput(f"{owner}: '{name}' has to be a NumPy array, not {described(tensor)}.")
    return {name: np.asarray(tensor) for name, tensor in found.items()}


def checked_measuring(name: str, planned: Sequence[Episode]) -> Sequence[Episode]:
    """What a probe wants to be played."""
    return list_of(Episode, planned, f"probe '{name}'")


def checked_scores(site: Site, name: str, scores: Sequence[WorldScore]) -> tuple[WorldScore, ...]:
    """What a probe found. Its worlds are the site's: a sentence in their place would leave the site."""
    for score in list_of(WorldScore, scores, f"probe '{name}'"):
        try:
            score.check()
        except ValueError as error:
            raise BadInput(f"probe '{name}': {error}.") from error
        if score.world not in site.places:
            raise BadInput(f"probe '{name}': a score is of one of the worlds {', '.join(site.places)}, by its label.")
    return tuple(scores)


def plain(given: Tensors) -> Tensors:
    """Copies in float32: the same numbers in every engine, and nobody else's arrays."""
    return {name: np.array(tensor, dtype=np.float32) for name, tensor in given.items()}
