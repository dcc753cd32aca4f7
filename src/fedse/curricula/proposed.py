"""Tasks that the model itself proposes in words, and that the world accepts, after Absolute Zero (Zhao and others, arXiv
2505.03335).

Before a round the agent is shown how some training tasks begin, and what other tasks there are called. It names one of its
own (`worlds/proposing.py`). The world checks it: a name that stands for no task, for one that is held out or for one of the
examples is dropped. What is left is explored beside tasks that are drawn uniformly. In the paper the proposer is trained,
with 1 - p for a task that the solver solves with the share p; here nothing is learned from proposing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from fedse.clients.site import Place, Site
from fedse.curricula.self_play import SelfPlay, SelfPlayOptions
from fedse.seeds import stream
from fedse.types import Episode, Outcome, Task, Trajectory
from fedse.worlds.proposing import MakeProposing
from fedse.worlds.proposing import proposed as task_of


class ProposedOptions(SelfPlayOptions):
    """How much of a round the model proposes, and what it is shown. The numbers are not the paper's."""

    share: float = Field(default=0.5, gt=0, le=1)
    """Share of a round's tasks for which the model is asked; what the world does not accept is drawn uniformly."""
    temperature: float | None = Field(default=None, gt=0)
    """Sampling temperature of proposals; empty: that of `exploration`."""
    examples: int = Field(default=3, ge=0)
    """Tasks that the world made of the same training task, whose names the model is shown."""


class Proposed(SelfPlay):
    """Uniform, with tasks that the model names and the world accepts."""

    Options = ProposedOptions

    def __init__(self, site: Site, share: float = 0.5, temperature: float | None = None, examples: int = 3) -> None:
        super().__init__(site, share, temperature)
        self.examples = examples

    def proposing(self, label: str, round: int) -> list[Episode]:
        place = self.site.places[label]
        seed = stream(self.site.seed, place.origin.client, round, place.origin.label, "proposed")
        elsewhere = MakeProposing(place.make, self.examples, seed)
        return [replace(episode, make_world=elsewhere) for episode in super().proposing(label, round)]

    def proposals(self, place: Place, played: Sequence[Trajectory]) -> list[Task]:
        accepted = [item for item in played if item.outcome is Outcome.SUCCESS]
        ids = dict.fromkeys(task_of(item.task, item.steps[-1].action) for item in accepted)
        return [place.world.made(task) for task in ids]
