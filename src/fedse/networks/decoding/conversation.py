"""One conversation with a decoder: which of its tokens are in the cache, and its reply while it grows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from fedse.networks.decoding.decoder import Drawn, Due
from fedse.networks.decoding.legal_reply import LegalReply
from fedse.types import LegalActions, Sampling


@dataclass(frozen=True, slots=True)
class Complete:
    """A reply that has come to its end."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    """Of each token; empty at temperature 0, where none is drawn."""


@dataclass
class Conversation:
    sampling: Sampling
    adapter: int
    """Number of the one that it is held with."""
    length: int
    """Tokens whose keys and values are in the cache."""
    unfed: list[int] = field(default_factory=list)
    """Tokens that belong to the conversation and are not in the cache yet."""
    reply: list[int] | None = None
    """The reply so far; None while no reply is due."""
    log_probs: list[float] = field(default_factory=list)
    """Of its tokens."""
    most: int = 0
    """Longest reply, once it is under way."""
    drawn: int = 0
    actions: LegalActions | None = None
    """What the reply that is due may do, if not anything."""

    @property
    def waits(self) -> bool:
        """Whether a reply is due that has not begun."""
        return self.reply == [] and bool(self.unfed)

    @property
    def tokens(self) -> int:
        """Of all that was said, in the cache or not."""
        return self.length + len(self.unfed)

    def fork(self, sampling: Sampling | None) -> Conversation:
        """As it stands, for other replies."""
        return replace(self, sampling=sampling or self.sampling, unfed=list(self.unfed), log_probs=[])

    def extend(self, ids: Sequence[int]) -> None:
        """After these tokens a reply is due."""
        self.unfed.extend(ids)
        self.reply = []

    def begin(self, slot: int, most: int, legal: LegalReply | None) -> Due:
        """What a decoder needs for the reply that is due. All that was said is in the cache then."""
        start, ids = self.length, self.unfed
        self.length, self.unfed, self.actions, self.most = self.tokens, [], None, most
        return Due(slot, start, ids, self.sampling, self.drawn, most, legal)

    def grow(self, drawn: Drawn, ends: Collection[int]) -> Complete | None:
        """The reply, if it is complete with these tokens."""
        assert self.reply is not None
        self.reply.extend(drawn.tokens)
        self.log_probs.extend(drawn.log_probs)
        if self.reply[-1] not in ends and len(self.reply) < self.most:
            return None
        complete, self.reply = self.reply, None
        log_probs, self.log_probs = self.log_probs, []
        # The last token was drawn and not fed back.
        self.length += len(complete) - 1
        self.unfed = complete[-1:]
        self.drawn += len(complete)
        return Complete(tuple(complete), tuple(log_probs) if self.sampling.temperature > 0 else ())
