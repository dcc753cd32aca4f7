"""What can be set in the TextCraft world."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedse.plugins import FilePath
from fedse.worlds.two_modes import TwoModeOptions

_SEED_OF = {"names_seed": "names", "subset_seed": "subset"}
"""A seed has no effect unless the option it belongs to is set."""


class TextCraftOptions(TwoModeOptions):
    """Options of both modes. One that has no effect is refused."""

    CLEAN_ONLY = (
        "observation_length",
        "listing",
        "wording",
        "names",
        "names_seed",
        "subset",
        "subset_seed",
        "distractors",
        "shallowest",
        "deepest",
    )

    observation_length: Literal["full", "brief"] = "full"
    """Sentences that also say what is carried, or a few words."""
    listing: Literal["commands", "formulas"] = "commands"
    """How recipes are listed: as the command that carries them out, or like `2 planks -> 4 stick`."""
    wording: Literal["craft", "make"] = "craft"
    """Words of the actions: craft ... using, get, inventory, or make ... from, take, bag."""
    names: Literal["plain", "made_up"] = "plain"
    """What items are called: their plain names, or made-up words."""
    names_seed: int = 0
    """Seed of the made-up words."""
    book: Literal["workshop", "textcraft"] | None = None
    """Recipes: those built in, or the 860 files of the package `textcraft`; empty means workshop in clean mode."""
    recipes: FilePath | None = None
    """Folder with recipe files in the format of Minecraft 1.16, in place of `book`."""
    subset: float = Field(default=1.0, gt=0, le=1)
    """Share of the craftable items that keep their recipes; the others can be fetched instead."""
    subset_seed: int = 0
    """Seed of the choice that `subset` makes, so that clients know different recipes."""
    distractors: int = Field(default=4, ge=0)
    """Listed recipes that are of no use for the goal."""
    shallowest: int = Field(default=1, ge=1)
    """Least depth of a goal: how many crafts stand above one another."""
    deepest: int = Field(default=4, ge=1)
    """Greatest depth of a goal."""
    turn_limit: int = Field(default=20, ge=2)
    """Turns per episode; clean mode leaves out the goals that no plan reaches in so many."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for seed, needed in _SEED_OF.items():
            if self.is_set(seed) and not self.is_set(needed):
                raise ValueError(f"`{seed}` has no effect without `{needed}`; leave it out")
        if self.book is not None and self.recipes is not None:
            raise ValueError("`book` has no effect with a folder of `recipes`; leave it out")
        if self.mode == "original" and self.book == "workshop":
            raise ValueError("original mode needs the recipes of the original: book `textcraft`, or `recipes`")
        if self.shallowest > self.deepest:
            raise ValueError(f"`shallowest` ({self.shallowest}) is above `deepest` ({self.deepest})")
        return self
