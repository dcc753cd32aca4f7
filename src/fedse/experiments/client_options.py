"""One site in an experiment file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from fedse.plugins import Choice, ChoiceOf, PluginOptions
from fedse.worlds.contract import ContractOptions
from fedse.worlds.training_part import TrainingPart


def numbered(names: Iterable[str]) -> list[str]:
    """
    >>> numbered(["maze", "wordle", "maze"])
    ['maze', 'wordle', 'maze#2']
    """
    seen: dict[str, int] = {}
    labels = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        labels.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return labels


class ClientOptions(PluginOptions):
    """One site."""

    worlds: list[Annotated[Choice, ChoiceOf("world")]] = Field(min_length=1, examples=[["maze"]])
    """The worlds it owns, by name, each with options of its own if wanted."""
    learns: bool = True
    """False for a site that only measures the shared adapter: how well it does in a world it has not learned from."""
    training: TrainingPart | None = Field(default=None, examples=[{"part": 1, "of": 2}])
    """Its part of its worlds' training tasks, such as `{part: 1, of: 2}`: sites of one world that have different parts never
    explore or demonstrate the same task. Without it a site has all of them."""

    contract: ContractOptions | None = None
    """What the agent may never do in its worlds; every reply is checked before a world hears of it. Null checks nothing."""
    start: Annotated[Choice, ChoiceOf("start", "demonstrations")] | None = None
    """What its buffer begins with, in place of the experiment's `start`."""
    joins: int = Field(default=1, ge=1)
    """The first round that it takes part in. Before, it does nothing; then the adapter that enters the round is measured in
    its worlds before it learns. Evaluations after the last round ask every site."""

    @property
    def labels(self) -> list[str]:
        """A name for each world; a second world of the same name gets a number."""
        return numbered(choice.name.rsplit(":", 1)[-1] for choice in self.worlds)
