"""Specialists first, then a generalist: for some rounds everybody evolves alone. What they have become is joined once, and
one adapter for all goes on from there.

    begin = own adapter in the first `rounds` rounds, the broadcast adapter in every later one

What joins the specialists is the aggregator, after round `rounds`. One that counts changes from the adapter that it
broadcast, as momentum does, counts from one that nobody began with: this is for `mean` and its like. A site's buffer keeps
what its specialist has found, so that the adapter for all learns from more successes than it would have found itself.
SEAgent (arXiv 2508.04700) trains its generalist on what the specialists have found, in one place; here that stays at the
sites. A client that is missing in round 1 begins with what is broadcast.
Cost: traffic as `broadcast`, though with a plain mean only the last of the first rounds matters; the client keeps its own
adapter of each round.
"""

from __future__ import annotations

from pydantic import Field

from fedse.mixes.blend import Blend
from fedse.plugins import PluginOptions
from fedse.types import Adapter, Sent, Tensors


class SpecialistsOptions(PluginOptions):
    """When the specialists are joined."""

    rounds: int = Field(default=10, ge=1)
    """Rounds in which every client goes on with its own adapter; the experiment has to have as many, or more."""


class Specialists(Blend):
    """A client's own adapter in the first rounds, the broadcast one afterwards."""

    Options = SpecialistsOptions
    begins_alone = True
    needs_same_factors = False

    def __init__(self, client: str, seed: int, rounds: int = 10) -> None:
        super().__init__(client, seed, share=0.0)
        self.rounds = rounds

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        return super().compose(sent, kept if sent.behind < self.rounds else {})
