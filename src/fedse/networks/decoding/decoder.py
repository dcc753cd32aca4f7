"""What the transformer policy asks of whatever runs the network for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from fedse.networks.decoding.legal_reply import LegalReply
from fedse.types import Sampling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Due:
    """A conversation that waits for a reply."""

    slot: int
    start: int
    """Tokens whose keys and values are there already."""
    ids: Sequence[int]
    """The tokens that follow them, up to where the reply begins."""
    sampling: Sampling
    drawn: int
    """Random numbers that earlier replies have used."""
    most: int
    """Longest reply, in tokens."""
    legal: LegalReply | None = None
    """What the reply may say, if not anything. Only `StepwiseDecoder` looks at it."""


class Drawn(NamedTuple):
    """The next tokens of a reply."""

    tokens: Sequence[int]
    log_probs: Sequence[float]
    """Of each, under the distribution that it was drawn from: at the reply's temperature, and without the tokens that it
    could not have been. The likeliest token, at temperature 0, is not drawn, and its number means nothing."""


class Decoder(Protocol):
    """Keeps the keys and values of all slots and draws replies. A reply ends with an end id or at its longest."""

    def load(self) -> None:
        """Take the adapter that the network holds now and forget every conversation."""
        ...

    def encode(self, slot: int, ids: Sequence[int]) -> torch.Tensor:
        """Begin a conversation with these tokens; returns the logits of the token after them."""
        ...

    def copy_out(self, slot: int, length: int) -> Any:
        """What the conversation has of its first tokens."""
        ...

    def copy_in(self, slot: int, content: Any) -> None:
        """Begin a conversation with what was copied out of another."""
        ...

    def close(self, slot: int) -> None:
        """Nobody will come back to this conversation."""
        ...

    def begin(self, due: Sequence[Due]) -> None:
        """Encode what these conversations have not encoded yet and start their replies."""
        ...

    def advance(self) -> Mapping[int, Drawn]:
        """New tokens of replies under way, by slot: at least one token of one reply."""
        ...


@runtime_checkable
class SeveralAdapters(Protocol):
    """A decoder that holds several adapters, and each conversation with one of them."""

    most_adapters: int
    """Each adds its rank to every product."""

    def hold(self, adapter: int, of: int) -> None:
        """Take what the network holds now as one of so many, and forget every conversation."""
        ...

    def assign(self, slot: int, adapter: int) -> None:
        """The conversation that begins in this slot is held with this one."""
        ...
