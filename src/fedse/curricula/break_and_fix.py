"""Tasks that the agent first makes harder for itself, after self-play SWE-RL (Wei and others, arXiv 2512.18552).

For a part of a round's tasks the agent plays the first turns hot, without a care: it walks away from the goal, or spends
what it needs. From there it has to solve the task all the same, with the turns that are left: who learns from smooth
successes alone never sees how to come back. Of the conversation the careless turns are read, and not learned. In the paper
the agent breaks a repository of code and is trained to break it well, with 1 - 1.8 p for what is fixed with the share p;
the one who fixes does not see how it was broken. Here nothing is learned from breaking, and the turns stay in sight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from fedse.clients.guards import ENTERING
from fedse.clients.site import Site
from fedse.curricula.uniform import Uniform
from fedse.plugins import PluginOptions
from fedse.protocols import Past
from fedse.rollouts.replaying import replies_of
from fedse.types import Episode, Outcome, Planned, Play, Purpose, RoundTask, Trajectory
from fedse.worlds.cut_short import MakeCutShort

Prefix = tuple[tuple[int, ...], ...]


class BreakAndFixOptions(PluginOptions):
    """How much is broken, and how badly. The numbers are not the paper's."""

    share: float = Field(default=0.5, gt=0, le=1)
    """Share of a round's tasks that begin broken."""
    turns: int = Field(default=2, ge=1)
    """Turns that are played without a care."""
    temperature: float = Field(default=1.5, gt=0)
    """Sampling temperature of these turns."""


class BreakAndFix(Uniform):
    """Uniform, with a part of the tasks begun after careless turns."""

    Options = BreakAndFixOptions

    def __init__(self, site: Site, share: float = 0.5, turns: int = 2, temperature: float = 1.5) -> None:
        super().__init__(site)
        self.share = share
        self.turns = turns
        self.temperature = temperature

    def plan(self, task: RoundTask, past: Past) -> Planned:
        asked = [episode for label in self.site.places for episode in self._breaking(label, task.round, past)]
        played = yield Play(ENTERING, asked)
        broken = {(item.world, item.task): self.broken(item) for item in played}
        planned = yield from super().plan(task, past)
        return [replace(item, prefix=broken.get((item.world, item.task.id), ())) for item in planned]

    def _breaking(self, label: str, round: int, past: Past) -> Sequence[Episode]:
        budget, place = self.site.exploration, self.site.places[label]
        assert budget is not None, "a site that explores nothing plans nothing"
        first = self.chosen(label, round, past)[: budget.tasks][: int(self.share * budget.tasks + 0.5)]
        whole = [self.site.episode(label, item, Purpose.EVALUATE, round, 0, self.temperature) for item in first]
        return [replace(episode, make_world=MakeCutShort(place.make, self.turns)) for episode in whole]

    def broken(self, played: Trajectory) -> Prefix:
        """The careless turns; nothing where they ended the episode, or where no room is left after them."""
        goes_on = played.outcome is Outcome.FAILURE and played.truncated and len(played.steps) == self.turns
        chat = self.site.chat
        # A reply that was cut off lacks its end, which the player appends before the next turn.
        end = [] if played.token_ids[-1] in chat.end_ids else chat.reply("")
        needed = len(played.token_ids) + len(end) + len(chat.turn(played.closing))
        return tuple(replies_of(played) or ()) if goes_on and needed < self.site.context else ()
