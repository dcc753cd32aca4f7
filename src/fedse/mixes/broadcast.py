"""The broadcast adapter as it is: the paper's way."""

from __future__ import annotations

from typing import ClassVar

from fedse.types import Adapter, Lessons, Sent, Tensors


class Broadcast:
    """Takes what the server sends and keeps nothing. A variant overrides what it does otherwise."""

    one_lesson: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.one_lesson = cls.__dict__.get("one_lesson", False)

    def __init__(self, client: str, seed: int) -> None:
        self.client = client
        self.seed = seed

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        return Adapter({**sent.adapter.tensors, **kept}, sent.adapter.config)

    def lessons(self, sent: Sent, adapter: Adapter) -> Lessons:
        del sent
        return (yield adapter)

    def keep(self, learned: Adapter) -> Tensors:
        del learned
        return {}
