"""What TextCraft says in original mode: the sentences of the game in AgentGym, and its rules in our own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedse.worlds.textcraft.recipes import Need, Recipe, Variant
from fedse.worlds.textcraft.texts import Narrator


def _game_name(item: str) -> str:
    return f"minecraft:{item.replace(' ', '_')}"


@dataclass(frozen=True)
class OriginalNarrator(Narrator):
    """The original's answers; thoughts, rules' form and drawing are those of clean mode."""

    def start(self, recipes: Sequence[Recipe], goal: str) -> str:
        lines = "\n".join(self.line(recipe) for recipe in recipes)
        return f"Crafting commands:\n{lines}\n\nGoal: craft {goal}."

    def got(self, item: str, count: int, carried: Mapping[str, int]) -> str:  # noqa: ARG002
        return f"Got {count} {item}"

    def crafted(self, variant: Variant, carried: Mapping[str, int]) -> str:  # noqa: ARG002
        return f"Crafted {variant.count} {_game_name(variant.makes)}"

    def solved(self, variant: Variant) -> str:
        return self.crafted(variant, {})

    def inventory(self, carried: Mapping[str, int]) -> str:
        if not carried:
            return "Inventory: You are not carrying anything."
        return "Inventory: " + "".join(f"[{item}] ({count}) " for item, count in carried.items())

    def lacking(self, item: str, missing: Sequence[Need]) -> str:  # noqa: ARG002
        # The original has no name for a kind here.
        return f"Could not find enough items to craft {None if item in self.kinds else _game_name(item)}"

    def made_only(self, item: str) -> str:
        return f"Could not find {item}"

    def no_such_recipe(self, item: str, count: int) -> str:
        # The original prints the object itself.
        tag, own = (_game_name(item), None) if item in self.kinds else (None, _game_name(item))
        return (
            f"Could not find a valid recipe for ItemTagWithCount(item_tag=ItemTag(tag={tag!r}, item_id={own!r}), "
            f"count={count})"
        )

    def unknown(self, name: str) -> str:
        return f"Could not find {name}"

    def kind_named(self, kind: str) -> str:
        return self.unknown(kind)

    def not_executed(self, action: str) -> str:
        return f"Could not execute {action}"

    def unreadable(self, need: str) -> str:
        return f"Wrong item format: {need}"
