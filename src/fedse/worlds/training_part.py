"""A part of a world's training tasks, so that several sites of one world have none in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, model_validator

from fedse.plugins import PluginOptions
from fedse.seeds import stream
from fedse.types import Task


class TrainingPart(PluginOptions):
    """Which of a world's training tasks a site has. Validation and test are whole at every site."""

    part: int = Field(ge=1)
    """Which of the parts, from 1."""
    of: int = Field(ge=2)
    """Number of parts. Tasks about the same thing (a word, a goal, a product) are in the same part, at every site and in
    every run; a part has about its share of each category."""

    @model_validator(mode="after")
    def _is_there(self) -> Self:
        if self.part > self.of:
            raise ValueError(f"there is no part {self.part} of {self.of}: choose one from 1 to {self.of}")
        return self

    def among(self, world: Any, tasks: Sequence[Task]) -> Sequence[Task]:
        """The tasks of this part, in their order. A hash of what a task is about decides, so whatever else differs between
        two sites, they never meet in a task."""
        subject = getattr(world, "subject", str)
        return [task for task in tasks if stream("training part", subject(task.id)) % self.of == self.part - 1]


def part_of(world: object) -> TrainingPart | None:
    """The part that a world was made with; None where it has all of its training tasks."""
    return getattr(world, "training_part", None)
