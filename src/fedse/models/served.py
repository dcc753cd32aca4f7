"""A model that runs elsewhere, behind a server that the policy `api` talks to. Nothing of it is loaded or trained here."""

from __future__ import annotations

from pydantic import Field

from fedse.models.card import BRING_YOUR_OWN
from fedse.models.chat import ByteChat
from fedse.plugins import PluginOptions
from fedse.types import Adapter


class Served:
    """A model behind a server, for evaluation and for collecting experience: goes with policy `api`, learner `none`.

    The tokenizer is the server's own, so conversations are recorded as bytes, and the adapter is empty.
    """

    card = BRING_YOUR_OWN

    class Options(PluginOptions):
        context: int = Field(default=100_000, ge=1024)
        """Longest conversation in bytes of text, about four for each token of English; a longer episode ends there.
        The server's own limit, which is in tokens, holds besides."""

    def __init__(self, context: int = 100_000) -> None:
        self.context = context
        self.chat = ByteChat()

    def initial_adapter(self, seed: int) -> Adapter:
        del seed  # There is nothing to adapt, and so nothing to draw.
        return Adapter({}, {"peft_type": "NONE"})
