"""Trials: what a mix plays on training tasks before it decides what its client begins with."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, runtime_checkable

from fedse.clients.guards import plain
from fedse.clients.site import Site
from fedse.errors import BadInput
from fedse.types import Play, Sent, Tensors, Trajectory

Trial = Generator[Play, list[Trajectory], Tensors]
"""Numbers, on the way to which episodes may be asked for."""


@runtime_checkable
class TriesOut(Protocol):
    """A mix that plays before it composes.

    Composing is repeated within a round and must cost no episodes, so it is apart from playing: what the trial finds, under
    names of its own, is given to `compose` together with what the client keeps, and stays with it until the next trial.
    """

    def try_out(self, site: Site, sent: Sent, earlier: Tensors) -> Trial:
        """Asks with `played = yield Play(adapter, episodes)`. `earlier` is what the last trial found; what is returned takes
        its place. Depends on its arguments alone."""
        ...


def on_training_tasks(site: Site, trial: Trial) -> Trial:
    """A trial that asks for nothing else: whoever chooses by a task learns from it."""
    try:
        asked = next(trial)
        while True:
            asked = trial.send((yield _checked(site, asked)))
    except StopIteration as ended:
        return plain(ended.value)


def _checked(site: Site, asked: Play) -> Play:
    for episode in asked.episodes:
        place = site.places.get(episode.world)
        if place is None or episode.task.id not in place.training:
            raise BadInput(
                f"mix: it tries an adapter on '{episode.task.id}', which is not a training task of the world "
                f"'{episode.world}' of site '{site.name}': list tasks with `site.places[label].tasks(\"train\")`."
            )
    return asked
