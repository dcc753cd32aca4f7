"""No learning: a run that measures a model, or collects experience with it, and leaves it as it is."""

from __future__ import annotations

from fedse.types import Lesson


class NoLearning:
    """Trains nothing: experience is filtered and remembered, and clients send no update. Goes with every model."""

    def __init__(self, model: object) -> None:
        del model  # Any model will do, as nothing happens to it.

    def learn(self, lesson: Lesson) -> None:
        del lesson
