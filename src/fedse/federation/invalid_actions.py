"""Notices an agent that does not speak the form of a reply: almost all of its actions mean nothing to the world."""

from __future__ import annotations

from dataclasses import dataclass

from fedse.types import ClientUpdate

MOSTLY_INVALID = 0.9
"""From this share of invalid actions on, an agent is taken not to know the form of a reply."""


@dataclass(frozen=True, slots=True)
class MostlyInvalid:
    """Shares of invalid actions of one client in one world; None where it did not act, or acted well enough."""

    client: str
    world: str
    """Empty when a client with several worlds explored: its counts are of all of them together."""
    exploring: float | None
    evaluating: float | None

    def message(self, round: int) -> str:
        where = f"{self.client}, {self.world}" if self.world else self.client
        shares = [
            f"{100 * share:.0f} % while {doing}"
            for doing, share in (("exploring", self.exploring), ("evaluating", self.evaluating))
            if share is not None
        ]
        return (
            f"{where}: almost all actions in round {round} were invalid ({', '.join(shares)}): the model does not speak the "
            "reply format yet; see whether it was made for these settings of the world (`fedse models`), give it more "
            "demonstrations, or a small model a higher learning rate (docs/models.md)."
        )


def mostly_invalid(update: ClientUpdate) -> list[MostlyInvalid]:
    """Where an update tells of almost nothing but invalid actions."""
    evaluating = {score.world: _share(score.invalid, score.steps) for score in update.scores}
    exploring = _share(update.counts.get("invalid", 0), update.counts.get("steps", 0))
    if len(evaluating) == 1:
        (world,) = evaluating
        found = [MostlyInvalid(update.client, world, exploring, evaluating[world])]
    else:
        found = [MostlyInvalid(update.client, world, None, share) for world, share in evaluating.items()]
        found.append(MostlyInvalid(update.client, "", exploring, None))
    return [item for item in found if item.exploring is not None or item.evaluating is not None]


def _share(invalid: int, steps: int) -> float | None:
    return invalid / steps if steps and invalid / steps >= MOSTLY_INVALID else None
