"""What mixes share that try adapters before a round: the broadcast one and each client's last one, on the same tasks.

    success_j = share of the trial tasks that adapter j solves        training tasks of the client, greedy, drawn anew
    begin     = sum over j of weight_j * (A_j, B_j)                   the weights are what a variant makes of successes

Only training tasks are played, and nothing of the trials leaves the client: the weights stay with it (`state/trial/`) and
are used until the next trial. A client that only measures, and everybody before there is a library, takes the broadcast
adapter.
Cost: upload as `broadcast`; download of one adapter more for each client; `tasks` episodes of each world for the broadcast
adapter and for each client's, every `every` rounds. Every client sees the others' single updates.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field

from fedse.clients.site import Site
from fedse.clients.trials import Trial
from fedse.errors import BadInput
from fedse.mixes.broadcast import Broadcast
from fedse.plugins import PluginOptions
from fedse.seeds import generator
from fedse.types import Adapter, Episode, Outcome, Play, Purpose, Sent, Tensors, Trajectory

SHARED = ""
"""In the place of a client's name: the broadcast adapter."""
_WEIGHT = "weight/"
_ROUND = "before_round"
"""When the weights were found out."""


class TrialOptions(PluginOptions):
    """How much is tried, and how often."""

    tasks: int = Field(default=10, ge=1)
    """Training tasks of each world on which every adapter is tried."""
    every: int = Field(default=1, ge=1)
    """Rounds from one trial of a client to its next; the first comes as soon as there is something to try."""


class TrialMix(Broadcast):
    """A variant overrides `weights`."""

    Options = TrialOptions
    needs_others = True
    needs_library = True
    needs_same_factors = True
    own_mixture = True

    def __init__(self, client: str, seed: int, tasks: int = 10, every: int = 1) -> None:
        super().__init__(client, seed)
        self.tasks = tasks
        self.every = every

    @abstractmethod
    def weights(self, success: Mapping[str, float]) -> Mapping[str, float]:
        """How much of each adapter is taken, by the names of `success`, among which is `SHARED`. They add up to 1."""
        raise NotImplementedError

    def try_out(self, site: Site, sent: Sent, earlier: Tensors) -> Trial:
        round = sent.behind + 1
        if not sent.library or (_ROUND in earlier and round - int(earlier[_ROUND][0]) < self.every):
            return earlier
        success = {}
        episodes = self._episodes(site, round)
        # In the same order at all clients, so that an engine can play the same adapter for many of them at once.
        for name in (SHARED, *sorted(sent.library)):
            played = yield Play(Adapter(candidate(sent, name), sent.adapter.config), episodes)
            success[name] = _success(played)
        weights = self.weights(success)
        if not math.isclose(sum(weights.values()), 1.0, abs_tol=1e-6):
            raise BadInput(f"mix, `weights`: they add up to {sum(weights.values()):g}, and have to add up to 1.")
        found = {f"{_WEIGHT}{name}": np.array([weight]) for name, weight in weights.items() if weight}
        return {**found, _ROUND: np.array([round])}

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        weights = {
            name.removeprefix(_WEIGHT): float(value[0]) for name, value in kept.items() if name.startswith(_WEIGHT)
        }
        own = {name: tensor for name, tensor in kept.items() if name != _ROUND and not name.startswith(_WEIGHT)}
        return super().compose(sent, {**weighted(sent, weights), **own})

    def _episodes(self, site: Site, round: int) -> list[Episode]:
        found = []
        for label, place in site.places.items():
            training = place.tasks("train")
            order = generator(site.seed, place.origin.client, round, place.origin.label, "trial")
            chosen = [training[index] for index in order.permutation(len(training))[: self.tasks]]
            found += [site.episode(label, task, Purpose.EVALUATE, round) for task in chosen]
        return found


def candidate(sent: Sent, name: str) -> Tensors:
    """In arrays of the client's own."""
    tensors = sent.adapter.tensors if name == SHARED else sent.library[name]
    return {key: tensor.copy() for key, tensor in tensors.items()}


def weighted(sent: Sent, weights: Mapping[str, float]) -> Tensors:
    """Tensor by tensor; nothing without weights."""
    if len(weights) == 1:
        return candidate(sent, next(iter(weights)))
    taken = {one: candidate(sent, one) for one in sorted(weights)}
    return {
        name: np.asarray(
            sum(weights[one] * tensors[name].astype(np.float64) for one, tensors in taken.items()), dtype=np.float32
        )
        for name in (sent.adapter.tensors if weights else ())
    }


def _success(played: Sequence[Trajectory]) -> float:
    """Episodes that a broken world ended say nothing of the adapter."""
    finished = [item.outcome is Outcome.SUCCESS for item in played if item.outcome is not Outcome.ERROR]
    return sum(finished) / len(finished) if finished else 0.0
