"""A site: its name, the worlds it owns, its seed and its place on disk. What every plug-in of a client is built with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from fedse.clients.notebook import Notebook
from fedse.plugins import PluginOptions
from fedse.plugins.schedules import Ramp, Scheduled
from fedse.protocols import Chat
from fedse.seeds import stream
from fedse.stopwatch import during
from fedse.types import Episode, Purpose, Sampling, Split, Task
from fedse.worlds.answers import is_made_by, tasks_of
from fedse.worlds.made import base_of, is_made
from fedse.worlds.world import World


class ExplorationOptions(PluginOptions):
    """How much a client explores. Temperature 1 is the paper's."""

    tasks: int = Field(default=50, ge=1)
    """Training tasks of each world that are explored in a round; fewer where the world has fewer."""
    attempts: int = Field(default=1, ge=1)
    """Attempts at each task."""
    temperature: Annotated[float | Ramp, Scheduled(above=0)] = 1.0
    """Sampling temperature, or `{from, to, over}` rounds."""


class Origin(NamedTuple):
    """The client that a world was written under in the experiment, and its label there.

    Random numbers are named by it, so a world meets the same tasks and draws whoever holds it.
    """

    client: str
    label: str


@dataclass(frozen=True)
class Place:
    """One world of a site."""

    label: str
    make: Callable[[], World]
    origin: Origin

    @property
    def training(self) -> frozenset[str]:
        """Ids of the tasks that may be explored."""
        return _training(self.make)

    def may_explore(self, task: str) -> bool:
        """Whether this is a training task of this place, or one that the world makes of it."""
        return task in self.training or (
            is_made(task) and base_of(task) in self.training and is_made_by(self.world, task)
        )

    @property
    def world(self) -> World:
        """An instance to ask for its expert; episodes are played in others."""
        return _instance(self.make)

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split. A world that cannot tell them is a `WorldBroke`, which is this site's trouble alone."""
        return tasks_of(self.world, split)


@dataclass(frozen=True)
class Site:
    """Plain facts, and the episodes that can be asked for here."""

    name: str
    places: Mapping[str, Place]
    chat: Chat
    seed: int
    folder: Path
    exploration: ExplorationOptions | None
    """None: it learns from what its buffer begins with."""
    learns: bool = True
    joins: int = 1
    """The first round that it takes part in."""
    context: int = 1 << 30
    """Longest conversation in tokens."""

    @property
    def explores(self) -> bool:
        return self.learns and self.exploration is not None

    def episode(
        self, label: str, task: Task, purpose: Purpose, round: int, attempt: int = 0, temperature: float = 0.0
    ) -> Episode:
        """An attempt at a task; the same arguments always draw the same numbers."""
        place = self.places[label]
        key = stream(self.seed, place.origin.client, round, place.origin.label, task.id, purpose, attempt)
        return Episode(self.name, label, place.make, task, purpose, round, attempt, Sampling(key, temperature))

    def notebook(self, slot: str) -> Notebook:
        """Where the plug-in of a slot keeps what it has to remember."""
        return Notebook(self.folder / "state" / slot)


@lru_cache(maxsize=32)
def _training(make_world: Callable[[], World]) -> frozenset[str]:
    return frozenset(task.id for task in tasks_of(_instance(make_world), "train"))


@lru_cache(maxsize=32)
def _instance(make_world: Callable[[], World]) -> World:
    """Sites whose worlds are alike share it; few are kept."""
    with during("world"):
        return make_world()
