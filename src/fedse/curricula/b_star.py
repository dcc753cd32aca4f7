"""The temperature of exploration, tuned each round on some training tasks, after B-STaR (Zeng and others, arXiv 2412.17256).

    balance = mean over tasks of min(n' / n*, 1) n' / n

n of the attempts at a task would be kept and differ from each other, n' of these are successes; n* are enough. Taken is the
temperature with the highest balance: a low one finds the same again, a high one finds less. Where only successes are kept,
n' = n, and the balance is how many different successes there are. In the paper a threshold of the reward is tuned with it;
here filters have theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from pydantic import Field

from fedse.clients.guards import ENTERING
from fedse.clients.site import Site
from fedse.curricula.uniform import Uniform
from fedse.plugins import PluginOptions
from fedse.plugins.schedules import at
from fedse.protocols import Past
from fedse.seeds import generator
from fedse.types import Episode, Outcome, Planned, Play, Purpose, RoundTask, Trajectory


class BStarOptions(PluginOptions):
    """What is tried. Of the paper's code are n* = 8 and temperatures from 0.5 to 1.2; it has 15 of these and 64 samples."""

    temperatures: list[float] = Field(default=[0.5, 0.7, 0.9, 1.1], min_length=2)
    """Temperatures to choose from."""
    tasks: int = Field(default=4, ge=1)
    """Training tasks of each world on which they are tried in every round."""
    samples: int = Field(default=8, ge=1)
    """Attempts at each of them with each temperature. Nothing is learned from these, and they do not count as explored."""
    enough: int = Field(default=8, ge=1)
    """n*: so many different successes at a task are enough."""
    threshold: float | None = None
    """Score from which an attempt would be kept, as in `filter: threshold`; empty: successes are."""


class BStar(Uniform):
    """Uniform, with the temperature that balances exploring and exploiting best in each world."""

    Options = BStarOptions

    def __init__(
        self,
        site: Site,
        temperatures: Sequence[float] = (0.5, 0.7, 0.9, 1.1),
        tasks: int = 4,
        samples: int = 8,
        enough: int = 8,
        threshold: float | None = None,
    ) -> None:
        super().__init__(site)
        self.temperatures = sorted(temperatures)
        self.tasks = tasks
        self.samples = samples
        self.enough = enough
        self.threshold = threshold

    def plan(self, task: RoundTask, past: Past) -> Planned:
        tried = [(label, heat) for label in self.site.places for heat in self.temperatures]
        asked = [self._trial(label, task.round, heat) for label, heat in tried]
        played = iter((yield Play(ENTERING, [episode for own in asked for episode in own])))
        balances: dict[str, dict[float, float]] = {label: {} for label in self.site.places}
        for (label, heat), own in zip(tried, asked, strict=True):
            balances[label][heat] = self.balance([next(played) for _ in own])
        planned = yield from super().plan(task, past)
        best = {label: self._best(found, task.round) for label, found in balances.items()}
        return [replace(item, sampling=replace(item.sampling, temperature=best[item.world])) for item in planned]

    def _trial(self, label: str, round: int, heat: float) -> list[Episode]:
        """The same tasks at every temperature."""
        place = self.site.places[label]
        training = place.tasks("train")
        order = generator(self.site.seed, place.origin.client, round, place.origin.label, "b_star")
        chosen = [training[index] for index in order.permutation(len(training))[: self.tasks]]
        first = self.temperatures.index(heat) * self.samples
        return [
            self.site.episode(label, item, Purpose.EVALUATE, round, first + number, heat)
            for item in chosen
            for number in range(self.samples)
        ]

    def balance(self, played: Iterable[Trajectory]) -> float:
        """Of attempts with one temperature."""
        by_task: dict[str, list[Trajectory]] = {}
        for item in played:
            by_task.setdefault(item.task, []).append(item)
        return fmean(map(self._of_task, by_task.values()))

    def _of_task(self, played: Sequence[Trajectory]) -> float:
        kept = {item.token_ids: item for item in played if self._is_kept(item)}
        correct = sum(item.outcome is Outcome.SUCCESS for item in kept.values())
        return min(correct / self.enough, 1.0) * correct / len(kept) if kept else 0.0

    def _is_kept(self, item: Trajectory) -> bool:
        if item.outcome is Outcome.ERROR or self.threshold is None:
            return item.outcome is Outcome.SUCCESS
        return item.score >= self.threshold

    def _best(self, balances: Mapping[float, float], round: int) -> float:
        """The experiment's own temperature where nothing succeeded; of equally good ones that nearest to it."""
        assert self.site.exploration is not None, "a site that explores nothing plans nothing"
        usual = at(self.site.exploration.temperature, round)
        if not any(balances.values()):
            return usual
        return max(balances, key=lambda heat: (balances[heat], -abs(heat - usual)))
