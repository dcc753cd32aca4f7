"""Everything the TextCraft world says in clean mode, and what both modes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fedse.worlds.reply_form import RulesLength, asked_for, asked_for_briefly
from fedse.worlds.textcraft.names import Names
from fedse.worlds.textcraft.plans import Move
from fedse.worlds.textcraft.recipes import Need, Recipe, Variant

_BOLD, _READY, _DIM, _OFF = "\x1b[1m", "\x1b[1;32m", "\x1b[90m", "\x1b[0m"
_GOAL, _TILE = "\x1b[1;33m", "\x1b[1;30;46m"


@dataclass(frozen=True)
class Wording:
    """The words of the action grammar."""

    craft: str
    using: str
    get: str
    inventory: str


WORDINGS = {
    "craft": Wording("craft", "using", "get", "inventory"),
    "make": Wording("make", "from", "take", "bag"),
}
EXAMPLE_NAMES = ("kite", "paper", "stick", "planks", "oak planks", "oak log", "reed")
"""Things in the rules' examples."""


@dataclass(frozen=True)
class Narrator:
    """The texts for one choice of options."""

    wording: Wording
    listing: Literal["commands", "formulas"]
    names: Names
    kinds: Mapping[str, Sequence[str]]
    """Names that stand for any of several items."""
    rules_length: RulesLength
    view_length: Literal["full", "brief"]
    turn_limit: int

    # Commands

    def amount(self, item: str, count: int) -> str:
        return f"{count} {self.names.shown[item]}"

    def amounts(self, needs: Iterable[Need]) -> str:
        return ", ".join([self.amount(item, count) for item, count in needs])

    def craft(self, made: Recipe | Variant) -> str:
        words = self.wording
        return f"{words.craft} {self.amount(made.makes, made.count)} {words.using} {self.amounts(made.needs)}"

    def get(self, item: str, count: int) -> str:
        return f"{self.wording.get} {self.amount(item, count)}"

    def line(self, recipe: Recipe) -> str:
        """A recipe as it is listed."""
        if self.listing == "formulas":
            needs = " + ".join(self.amount(item, count) for item, count in recipe.needs)
            return f"{needs} -> {self.amount(recipe.makes, recipe.count)}"
        return self.craft(recipe)

    # Observations

    def start(self, recipes: Sequence[Recipe], goal: str) -> str:
        lines = "\n".join(self.line(recipe) for recipe in recipes)
        shown = self.names.shown
        kinds = sorted({name for recipe in recipes for name, _ in recipe.needs} & set(self.kinds))
        members = {shown[kind]: [shown[item] for item in self.kinds[kind]] for kind in kinds}
        if self.view_length == "brief":
            told = "".join(f"\n{kind}: {', '.join(own)}" for kind, own in members.items())
            return f"{lines}{told}\ngoal: {shown[goal]}"
        told = "".join(f"\nFor {kind} use {_either(own)}." for kind, own in members.items())
        return f"What can be made:\n{lines}\n{told}\nGoal: {self.wording.craft} {shown[goal]}."

    def got(self, item: str, count: int, carried: Mapping[str, int]) -> str:
        if self.view_length == "brief":
            return f"Got {self.amount(item, count)}."
        return f"You got {self.amount(item, count)}. {self.inventory(carried)}"

    def crafted(self, variant: Variant, carried: Mapping[str, int]) -> str:
        what = self.amount(variant.makes, variant.count)
        return f"Made {what}." if self.view_length == "brief" else f"You made {what}. {self.inventory(carried)}"

    def solved(self, variant: Variant) -> str:
        what = self.amount(variant.makes, variant.count)
        return f"Made {what}: done." if self.view_length == "brief" else f"You made {what}. The goal is reached."

    def inventory(self, carried: Mapping[str, int]) -> str:
        return f"You carry {self.amounts(carried.items()) or 'nothing'}."

    def lacking(self, item: str, missing: Sequence[Need]) -> str:
        if self.view_length == "brief":
            return f"You lack {self.amounts(missing)}."
        return f"You cannot make {self.names.shown[item]} yet: you lack {self.amounts(missing)}."

    def made_only(self, item: str) -> str:
        name = self.names.shown[item]
        if self.view_length == "brief":
            return f"{name} must be made."
        return f"There is no {name} to be found; it has to be made."

    def no_such_recipe(self, item: str, count: int) -> str:  # noqa: ARG002
        if self.view_length == "brief":
            return "Not a listed recipe."
        made = f"makes {self.names.shown[item]}" if item in self.names.shown else "makes that"
        return f"No listed recipe {made} from exactly these things."

    def unknown(self, name: str) -> str:  # noqa: ARG002
        if self.view_length == "brief":
            return "No such item."
        return "There is no such item. Use the names in the list, and for a kind the name of one of its items."

    def kind_named(self, kind: str) -> str:
        name = self.names.shown[kind]
        if self.view_length == "brief":
            return f"{name} is a kind: name an item."
        return f"The name {name} stands for a kind of thing. Name one of its items instead."

    def unreadable(self, need: str) -> str:
        return self.not_executed(need)

    def not_executed(self, action: str) -> str:  # noqa: ARG002
        if self.view_length == "brief":
            return "Not an action."
        words = self.wording
        return (
            f'That is not an action. Use "{words.get} <number> <item>", "{words.craft} <number> <item> {words.using} '
            f'<number> <item>, ..." or "{words.inventory}".'
        )

    # Thoughts

    def thought(self, move: Move) -> str:
        """Why to make this move, told from the listed recipes and what is carried."""
        if self.rules_length == "bare":
            return ""
        brief = self.rules_length == "brief"
        item = self.names.shown[move.item]
        if not move.chain:
            return f"All there for {item}." if brief else f"I have everything that {item} needs, so I can make it."
        purpose, needed = self.names.shown[move.chain[-1]], self.amount(move.need, move.needed)
        fill = "" if move.need == move.item else f", {item} will do" if brief else f", and {item} will do"
        if brief:
            told = f"{purpose} needs {needed}{fill}"
            return f"{told}." if move.craft or move.amount == move.needed else f"{told}; {move.amount} in all."
        parts = [*(self.names.shown[name] for name in move.chain), needed]
        steps = [f"for {made}, {part}" for made, part in pairwise(parts[1:])]
        why = "; ".join([f"For {parts[0]} I need {parts[1]}", *steps]) + f"{fill}."
        if move.craft is not None:
            return f"{why} I have what it takes to make {item}."
        total = f"{move.amount} of it in all" if move.amount != move.needed else "it"
        return f"{why} Nothing listed makes {item}, so I {self.wording.get} {total}."

    # Hints

    def advice(self) -> str:
        words = self.wording
        return (
            f"{words.craft.capitalize()} only with what you carry. First {words.get} the things that no listed recipe "
            "makes, in the numbers that the recipes name."
        )

    def aim(self, move: Move) -> str:
        """What the next things to do are for."""
        item = self.names.shown[move.item]
        if not move.chain:
            return f"You carry everything that {item} takes."
        fill = "" if move.need == move.item else f", for which {item} will do"
        needed, purpose = self.amount(move.need, move.needed), self.names.shown[move.chain[-1]]
        return f"Next you need {needed}{fill}, to {self.wording.craft} {purpose}."

    # Rules

    def rules(self) -> str:
        return self._full_rules() if self.rules_length == "full" else self._brief_rules()

    def _examples(self) -> tuple[str, str]:
        planks = Recipe("stick", 4, (("oak planks", 2),))
        return self.get("oak log", 1), self.craft(planks)

    def _brief_rules(self) -> str:
        fetch, craft = self._examples()
        shown, words = self.names.shown, self.wording
        return (
            f"Make the goal with the listed recipes. {words.get.capitalize()} what no listed recipe makes, in any number. "
            f"{words.craft.capitalize()} with exactly the numbers listed, once per turn. For a kind such as "
            f"{shown['planks']} name one of its items.\n"
            f"Actions like: {fetch} | {craft} | {words.inventory}\n"
            f"Answer in {asked_for_briefly(self.rules_length, 'action')}"
        )

    def _full_rules(self) -> str:
        words, shown = self.wording, self.names.shown
        fetch, craft = self._examples()
        return (
            "You are an expert at crafting. You are shown what can be made and out of what, and a goal; make the goal in "
            "as few turns as you can. Some of the recipes are of no use for it.\n"
            "There are three actions:\n"
            f'- "{fetch}": fetch something, as much as you like at once. Only things that no listed recipe '
            "makes can be fetched.\n"
            f'- "{craft}": carry a recipe out once, with exactly the numbers it names. To make more, do it again.\n'
            f'- "{words.inventory}": see what you carry.\n'
            f"Some recipes need a kind of thing, such as {shown['planks']}; put one of its items, such as "
            f"{shown['oak planks']}, into the command instead. "
            "An action that cannot be carried out changes nothing and costs a turn. "
            f"You have {self.turn_limit} turns.\n\n"
            f"A game may go like this:\n{self._worked_game()}\n\n"
            "Give exactly one action per turn, in this form:\n"
            + asked_for("what is missing and how to come by it", "one action")
        )

    def _worked_game(self) -> str:
        paper, kite = Recipe("paper", 2, (("reed", 2),)), Recipe("kite", 1, (("paper", 2), ("stick", 1)))
        carried: dict[str, int] = {}
        lines = [f"environment: {self.start((kite, paper), 'kite')}"]

        def say(action: str, answer: str) -> None:
            lines.extend((f"action: {action}", f"environment: {answer}"))

        for item, count in (("reed", 2), ("stick", 1)):
            carried[item] = count
            say(self.get(item, count), self.got(item, count, carried))
        made = Variant("paper", 2, paper.needs, paper)
        say(self.craft(paper), self.crafted(made, {"stick": 1, "paper": 2}))
        say(self.craft(kite), self.solved(Variant("kite", 1, kite.needs, kite)))
        return "\n".join(lines)

    # For people

    def board(
        self, recipes: Sequence[Recipe], ready: set[Recipe], goal: str, carried: Mapping[str, int], left: int
    ) -> str:
        """The goal, the recipes with those lit that can be carried out now, and the bag."""
        lines = []
        for recipe in recipes:
            light = _READY if recipe in ready else _GOAL if recipe.makes == goal else ""
            mark = "▶" if recipe in ready else "★" if recipe.makes == goal else " "
            lines.append(f"{light}{mark} {self.line(recipe)}{_OFF if light else ''}")
        tiles = " ".join(f"{_TILE} {self.amount(item, count)} {_OFF}" for item, count in carried.items())
        turns = f"{left} turn{'s' * (left != 1)} left"
        return "\n".join(
            [
                f"{_GOAL}★ {self.names.shown[goal]}{_OFF}  {_DIM}{turns}{_OFF}",
                *lines,
                f"{_BOLD}bag{_OFF} {tiles or f'{_DIM}empty{_OFF}'}",
            ]
        )


def _either(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
