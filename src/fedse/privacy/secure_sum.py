"""A site's half of a secure sum: which sums it takes part in, and what it adds to them.

A hub must not get two sums of one round that differ by one site, nor two answers under the same masks. So a site answers a
round once: the same task gets the same bytes again, which are on its disk before they leave, and any other is refused.
The masks are bound to everything in the task that an update depends on. A hub that sends one site another adapter than the
others, to tell its update apart in the sum, gets a sum that nobody can open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedse.errors import SumRefused
from fedse.plugins import PluginOptions
from fedse.privacy.fixed_point import Bits, Exact, FixedPoint, Residues
from fedse.privacy.last_answer import LastAnswer, asked_for
from fedse.types import RoundTask, Vector

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey


class SecureSumOptions(PluginOptions):
    """Updates that leave a site masked, so that the hub can read their sum and no single one."""

    operational: ClassVar[frozenset[str]] = frozenset({"min_sites"})

    bits: Bits = 32
    """Of each value that is sent: 32 takes as many bytes as float32 and rounds, 64 twice as many and hardly rounds."""
    largest: float = Field(default=8.0, gt=0)
    """Most that a value of the adapter may change in a round; a site whose update goes further sends nothing and says so.
    The smaller, the finer is the rounding."""
    min_sites: int = Field(default=3, ge=2)
    """Fewest sites of a sum. Of two, each can take its own update out of the broadcast mean and has the other's."""

    def fixed_point(self, sites: int, squares: bool = False) -> FixedPoint:
        return FixedPoint(self.bits, self.largest, sites, squares)


@dataclass(frozen=True)
class SumMember:
    """What a site knows before any sum is asked of it."""

    name: str
    run: str
    options: SecureSumOptions
    key: X25519PrivateKey
    others: Mapping[str, X25519PublicKey]
    """Public keys of the sites that it takes part in sums with."""
    answered: Path
    """The file with its last answer in this run. It belongs to the key, not to the run's folder: whoever moves that away to
    begin anew must not get other updates under the same masks."""
    squares: bool = False
    """Whether the sum is also of the squared lengths of changes."""

    def fixed_point(self, task: RoundTask) -> FixedPoint:
        """The form of a sum."""
        return self.options.fixed_point(len(task.participants), self.squares)

    def check(self, task: RoundTask) -> None:
        """Refuse a sum before any work is done for it. Raises `SumRefused`."""
        asked = task.participants
        if len(asked) < self.options.min_sites:
            raise SumRefused(
                f"the hub asks for a sum of {len(asked)} sites in {task.name}, and this site takes part in those of at "
                f"least {self.options.min_sites}: nothing was done."
            )
        if self.name not in asked or list(asked) != sorted(set(asked)):
            raise SumRefused(
                f"the hub asks '{self.name}' for {task.name} with participants that are no sum of its own."
            )
        if strange := sorted(set(asked) - {self.name, *self.others}):
            raise SumRefused(
                f"the hub asks for a sum with {len(strange)} sites whose public keys this site does not have, such as "
                f"{strange[0][:100]!r}: nothing was done; get the key from that site itself, and list it."
            )
        if (number := self._last.other(task)) is not None:
            raise SumRefused(
                f"the hub asks for {task.name} of run '{self.run}', and this site has answered round {number} of it, to "
                "another task or with other participants: a second sum could show a single update, so nothing was done. "
                "The same task to the same sites is answered with the same bytes; a hub that has lost later rounds needs a "
                "run with another `name`."
            )

    def masked(self, vector: Exact | None, broadcast: Vector, task: RoundTask) -> Residues:
        """What leaves: the update under the masks of this sum, on disk before it is handed out."""
        # Only who masks needs the library behind it.
        from fedse.privacy.masks import masked

        self.check(task)
        if (stored := self._last.again(task)) is not None:
            return stored
        summand = self.fixed_point(task).summand(vector, broadcast)
        about = {
            "run": self.run,
            "round": task.round,
            "participants": list(task.participants),
            "task": asked_for(task),
            "form": [self.options.bits, self.options.largest, summand.size],
        }
        others = {name: self.others[name] for name in task.participants if name != self.name}
        hidden = masked(summand, self.name, self.key, others, about)
        self._last.keep(task, hidden)
        return hidden

    @property
    def _last(self) -> LastAnswer:
        return LastAnswer(
            self.answered,
            "what this site added to its last secure sum: restore it from a copy, or make a new key with `fedse site key` "
            "and give its public half to the other sites.",
        )
