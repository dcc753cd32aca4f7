"""The options that every world with a clean and an original mode has."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedse.plugins import FilePath
from fedse.worlds.reply_form import RulesLength
from fedse.worlds.world import World


class TwoModeOptions(World.Options):
    """Tasks of the clean mode come from a generator, those of the original from ids. What has no effect is refused."""

    CLEAN_ONLY: ClassVar[tuple[str, ...]] = ()
    """Options of the world itself without effect in original mode."""

    mode: Literal["clean", "original"] = "clean"
    """Disjoint splits with defects mended, or the tasks, texts and quirks of the original."""
    rules: RulesLength = "full"
    """Length of the opening text and of the expert's thoughts; bare: the brief text, and an action without a thought."""
    train_tasks: int = Field(default=600, ge=3)
    """Number of training tasks."""
    pool: int = 0
    """Which training tasks: clients with different numbers train on different ones, or in another order."""
    mix: float | None = Field(default=None, gt=0)
    """Dirichlet concentration of the training mix of the world's categories; empty means equal shares."""
    mix_seed: int = 0
    """Seed of the draw that `mix` makes, so that clients get different mixes."""
    ids: FilePath | None = None
    """JSON file with the official ids of the original."""

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        clean_only = (*self.CLEAN_ONLY, "train_tasks", "pool", "mix", "mix_seed")
        for name in clean_only if self.mode == "original" else ("ids",):
            if self.is_set(name):
                raise ValueError(f"`{name}` has no effect in {self.mode} mode; leave it out")
        if self.is_set("mix_seed") and not self.is_set("mix"):
            raise ValueError("`mix_seed` has no effect without `mix`; leave it out")
        return self

    def is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)
