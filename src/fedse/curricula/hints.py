"""Help where everything fails, after the light form of SAGE (Liao and others, arXiv 2602.03143).

    level <- level + 1   if less than 0.1 of the last round's attempts succeeded, up to 3
    level <- level - 1   if more than 0.35 of them did, down to 0

Each category of tasks, or each task, has a level, which begins at 0: no hint. Attempts are made with the world's hint of
that level below every observation. The level is computed anew from all earlier attempts: there is nothing to lose.

In the paper the model writes its hints from a reference solution and learns from the prompt with the hint. Here the world's
expert gives them, in every turn, and what is learned has no hint in it unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal, Self

from pydantic import Field, model_validator

from fedse.clients.site import Site
from fedse.curricula.uniform import Uniform
from fedse.plugins import PluginOptions
from fedse.protocols import Past
from fedse.types import Attempt, Outcome, Planned, RoundTask
from fedse.worlds.hints import LEVELS


class HintsOptions(PluginOptions):
    """When there is help, and how much. 0.1 and 0.35 are the paper's."""

    per: Literal["category", "task"] = "category"
    """Whose attempts count together and have one level. A task that is seldom tried again seldom gets help by itself."""
    raise_below: float = Field(default=0.1, ge=0, le=1)
    """Share of successes below which the next hints are stronger."""
    lower_above: float = Field(default=0.35, ge=0, le=1)
    """Share of successes above which they are weaker."""
    strongest: int = Field(default=LEVELS[-1], ge=LEVELS[0], le=LEVELS[-1])
    """Highest level: 1 what to mind, 2 what to aim at, 3 the next good action."""
    learn_hints: bool = False
    """Leave hints in what is learned. An agent that learned to read them gets none in an evaluation."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.raise_below > self.lower_above:
            raise ValueError(f"`raise_below` ({self.raise_below}) must not be above `lower_above` ({self.lower_above})")
        return self


class Hints(Uniform):
    """Uniform, with hints of the world's expert for what fails."""

    Options = HintsOptions
    needs_hints = True

    def __init__(
        self,
        site: Site,
        per: Literal["category", "task"] = "category",
        raise_below: float = 0.1,
        lower_above: float = 0.35,
        strongest: int = LEVELS[-1],
        learn_hints: bool = False,
    ) -> None:
        super().__init__(site)
        self.per = per
        self.raise_below = raise_below
        self.lower_above = lower_above
        self.strongest = strongest
        self.learn_hints = learn_hints

    def plan(self, task: RoundTask, past: Past) -> Planned:
        planned = yield from super().plan(task, past)
        levels = {label: self.levels(past.attempts(label)) for label in self.site.places}
        return [
            replace(
                episode,
                hint=levels[episode.world].get(episode.task.category if self.per == "category" else episode.task.id, 0),
                learns_hint=self.learn_hints,
            )
            for episode in planned
        ]

    def levels(self, attempts: Sequence[Attempt]) -> dict[str, int]:
        """Of each category, or task, after these attempts, which come oldest first."""
        levels: dict[str, int] = {}
        finished = [item for item in attempts if item.outcome is not Outcome.ERROR]
        for _, of_round in groupby(finished, key=lambda item: item.round):
            tried: dict[str, list[bool]] = {}
            for item in of_round:
                tried.setdefault(item.category if self.per == "category" else item.task, []).append(
                    item.outcome is Outcome.SUCCESS
                )
            for name, successes in tried.items():
                share = sum(successes) / len(successes)
                step = 1 if share < self.raise_below else -1 if share > self.lower_above else 0
                levels[name] = min(max(levels.get(name, 0) + step, 0), self.strongest)
        return levels
