"""Demonstrations, and canaries beside them: invented episodes, each planted by a fair coin, that an audit then looks for.

Whoever can tell the planted ones from the others, by whatever means, knows more than differential privacy with a small
epsilon allows (arXiv 2305.08846). `fedse audit` makes them again from the seed. A run with canaries is made to be
audited: its agent learns some nonsense.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pydantic import Field

from fedse.errors import BadInput
from fedse.events import Warned
from fedse.protocols import Chat, Model
from fedse.seeds import generator
from fedse.starts.demonstrations import Demonstrations, demonstrate, tokenised
from fedse.starts.invented import names_of, says_a_name, with_invented_names
from fedse.types import Outcome, Trajectory
from fedse.worlds.answers import BREAKING, tasks_of
from fedse.worlds.world import World

CATEGORY = "canary"
_LOOKED_AT = 60
"""Demonstrations that tell names from grammar."""


class Canary(NamedTuple):
    trajectory: Trajectory
    planted: bool


class Canaries(Demonstrations):
    """What the expert shows, and invented episodes of which a fair coin plants about half: a run to audit, not to use."""

    bounded_by = ""

    class Options(Demonstrations.Options):
        canaries: int = Field(default=200, ge=20, le=10_000)
        """Invented episodes of each world, of which each is learned from or not by a fair coin. 200 resolve an epsilon of
        3.8 at best."""

    def __init__(self, tasks: int = 200, canaries: int = 200) -> None:
        super().__init__(tasks)
        self.number = canaries

    def size(self, client: str, label: str, world: World) -> int:
        return super().size(client, label, world) + self.number // 2

    def check(self, client: str, label: str, world: World, model: Model) -> list[Warned]:
        made = self.canaries(client, label, world, model.chat, seed=0)
        if all(not any(one.trajectory.train_mask[1 : model.context]) for one in made):
            raise BadInput(f"start: no canary of world '{label}' has a reply within the model's context.")
        return [
            Warned(
                kind="canaries",
                message=f"{client}, {label}: each of {self.number} invented episodes is learned from or not, by a fair "
                "coin: this run is there to be audited (`fedse audit`), do not use its adapter.",
                details={"client": client, "world": label, "canaries": self.number},
            )
        ]

    def trajectories(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        shown = super().trajectories(client, label, world, chat, seed)
        made = self.canaries(client, label, world, chat, seed)
        return [*shown, *(one.trajectory for one in made if one.planted)]

    def canaries(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Canary]:
        """All of a world, planted or not: the same for the same arguments."""
        models = self._models(client, label, world, chat, seed)
        names = names_of(models)
        models = [item for item in models if says_a_name(item, names)]
        if not models:
            raise BadInput(
                f"start: the agent uses no names in world '{label}' of client '{client}' that could be invented, so it can "
                "have no canaries: use `start: demonstrations` for this client."
            )
        coins = generator(seed, client, label, "canaries", "coins").integers(0, 2, self.number)
        made = []
        for number, planted in enumerate(coins):
            random = generator(seed, client, label, "canaries", number)
            renamed = with_invented_names(models[int(random.integers(len(models)))], names, random)
            marked = replace(renamed, attempt=1 + number, category=CATEGORY)
            made.append(Canary(tokenised(marked, chat), bool(planted)))
        return made

    def _models(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        """Episodes of the expert on training tasks, to be renamed."""
        training = tasks_of(world, "train")
        order = generator(seed, client, label, "canaries").permutation(len(training))[:_LOOKED_AT]
        found = []
        for index in order:
            try:
                shown = demonstrate(client, label, world, training[index], chat)
            except BREAKING:
                continue
            if shown.outcome is Outcome.SUCCESS:
                found.append(shown)
        return found
