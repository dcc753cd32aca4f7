"""TextCraft: make a thing out of other things. Clean: goals of the test never trained for. Original: 544 Minecraft goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedse.errors import BadInput
from fedse.seeds import stream
from fedse.types import SPLITS, Split, Task
from fedse.worlds.hints import at_level
from fedse.worlds.made import change_of, draws, is_made, made_id, not_made
from fedse.worlds.splits import TaskLists, clean_tasks, official_ids
from fedse.worlds.textcraft.files import book_of_folder, package_folder
from fedse.worlds.textcraft.grammar import Craft, Get, Inventory, parsed
from fedse.worlds.textcraft.items import workshop
from fedse.worlds.textcraft.names import made_up_names, plain_names
from fedse.worlds.textcraft.options import TextCraftOptions
from fedse.worlds.textcraft.original import OriginalNarrator
from fedse.worlds.textcraft.plans import Move, next_move
from fedse.worlds.textcraft.recipes import Book, Recipe, Variant, ingredients_key, part_of
from fedse.worlds.textcraft.tasks import (
    Goals,
    category,
    goal_order,
    goal_split,
    goals_among,
    goals_by_depth,
    listed_recipes,
    named_goal,
    reachable_goals,
)
from fedse.worlds.textcraft.texts import EXAMPLE_NAMES, WORDINGS, Narrator
from fedse.worlds.world import Turn, World

_ORIGINAL_DISTRACTORS = 10


@dataclass(frozen=True, eq=False)
class Offer:
    """A task made ready for play: the goal, the listed recipes, the first observation and the actions as texts."""

    goal: str
    recipes: tuple[Recipe, ...]
    start: str
    crafts: dict[str, Variant]
    by_first: dict[str, list[tuple[str, Variant]]]
    """The same, by the first thing they need."""
    gets: tuple[str, ...]
    raw: frozenset[str]
    """What can be fetched."""


class TextCraft(World):
    """Make the goal from a list of recipes: fetch what is raw, craft the rest step by step."""

    name = "textcraft"
    version = 1

    class Options(TextCraftOptions):
        """What an experiment file may set."""

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._original = self.options.mode == "original"
        self._official = official_ids(self.options.ids) if self.options.ids else {}
        self._offers: dict[str, Offer] = {}
        self._task = ""
        self._carried: dict[str, int] = {}

    @cached_property
    def book(self) -> Book:
        """The recipes of this world."""
        options = self.options
        if options.recipes is not None:
            whole = book_of_folder(options.recipes)
        elif self._original or options.book == "textcraft":
            whole = book_of_folder(package_folder())
        else:
            whole = workshop()
        return whole if options.subset == 1 else part_of(whole, options.subset, options.subset_seed)

    @cached_property
    def _narrator(self) -> Narrator:
        options = self.options
        known = {*self.book.items, *self.book.kinds, *EXAMPLE_NAMES}
        wording = WORDINGS[options.wording]
        if options.names == "made_up":
            reserved = {wording.craft, wording.using, wording.get, wording.inventory}
            names = made_up_names(known, options.names_seed, reserved)
        else:
            names = plain_names(known)
        kind = OriginalNarrator if self._original else Narrator
        return kind(
            wording=wording,
            listing=options.listing,
            names=names,
            kinds=self.book.kinds,
            rules_length=options.rules,
            view_length=options.observation_length,
            turn_limit=self.turn_limit,
        )

    @cached_property
    def rules(self) -> str:
        return self._narrator.rules()

    @property
    def turn_limit(self) -> int:
        return self.options.turn_limit

    # Tasks

    @cached_property
    def _goals(self) -> Goals:
        options = self.options
        goals = reachable_goals(self.book, options.shallowest, options.deepest, self.turn_limit)
        for split, own in goals.items():
            if not own:
                raise BadInput(
                    f"textcraft: no goal of the {split} split has a depth of {options.shallowest} to {options.deepest} "
                    f"and can be reached in {self.turn_limit} turns; use more recipes or wider limits."
                )
        return goals

    @cached_property
    def _lists(self) -> TaskLists:
        if self._original:
            return TaskLists.of(self._numbered())
        options = self.options
        categories = {split: sorted(self._goals[split]) for split in SPLITS}
        return clean_tasks(options.train_tasks, categories, options.mix, options.mix_seed)

    @cached_property
    def _numbers(self) -> list[str]:
        return goals_by_depth(self.book)

    def _numbered(self) -> dict[Split, list[Task]]:
        """Tasks of original mode: numbers of goals. A split that the user's file leaves out gets the unlisted numbers."""
        listed = {task for ids in self._official.values() for task in ids}
        found: dict[Split, list[Task]] = {}
        for split in SPLITS:
            if self._official:
                ids = self._official.get(split) or [
                    str(place) for place in range(len(self._numbers)) if str(place) not in listed
                ]
            else:
                ids = [str(place) for place, item in enumerate(self._numbers) if goal_split(item) == split]
            if not ids:
                raise BadInput(f"{self.options.ids} lists no {split} ids and leaves none over for that split.")
            if any(int(task) >= len(self._numbers) for task in ids):
                raise BadInput(f"{self.options.ids}: these recipes have the ids 0 to {len(self._numbers) - 1}.")
            found[split] = [Task(task, category(self.book.depths[self._numbers[int(task)]])) for task in ids]
        return found

    @property
    def _known(self) -> Mapping[str, Split]:
        return self._lists.split_of

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._lists.tasks[split]

    def subject(self, task: str) -> str:
        """The goal."""
        if is_made(task):
            return named_goal(change_of(task))
        return self._numbers[int(task)] if self._original else self._goal("train", task)[0]

    def _goal(self, split: Split, task: str) -> tuple[str, int]:
        """The goal of a task of clean mode, and how many earlier tasks of its category have the same one."""
        _, name, number = task.split("-")
        order = goal_order(self._goals[split][name], self._pool(split))
        return order[int(number) % len(order)], int(number) // len(order)

    def _pool(self, split: Split) -> int:
        return self.options.pool if split == "train" else 0

    def offer(self, task: str) -> Offer:
        """The goal of a task and what is listed with it."""
        if task not in self._offers:
            if is_made(task):
                return self._offers.setdefault(task, self._made_of(task))
            split = self._known.get(task)
            if split is None:
                raise BadInput(
                    f"textcraft: there is no task '{task}'; a task of this world is '{self.tasks('test')[0].id}'."
                )
            if self._original:
                goal, count, key = self._numbers[int(task)], _ORIGINAL_DISTRACTORS, stream("textcraft original", task)
            else:
                goal, earlier = self._goal(split, task)
                count, key = self.options.distractors, stream("textcraft", split, self._pool(split), goal, earlier)
            self._offers[task] = self._made_offer(goal, count, key)
        return self._offers[task]

    def _made_offer(self, goal: str, distractors: int, key: int) -> Offer:
        book, say = self.book, self._narrator
        recipes = listed_recipes(book, goal, distractors, key, any_other=not self._original)
        needs = [(item, count) for recipe in recipes for name, count in recipe.needs for item in book.members(name)]
        # What is listed is all there is, and what no listed recipe makes can be fetched. Every recipe that can be of use is
        # listed, so this gives nothing away. The original goes by the whole book, listed or not.
        raw = book.raw if self._original else frozenset(item for item, _ in needs) - {one.makes for one in recipes}
        crafts = {say.craft(variant): variant for recipe in recipes for variant in book.variants(recipe)}
        by_first: dict[str, list[tuple[str, Variant]]] = {}
        for text, variant in crafts.items():
            by_first.setdefault(variant.needs[0][0], []).append((text, variant))
        gets = tuple(dict.fromkeys(say.get(item, count) for item, count in needs if item in raw))
        return Offer(goal, recipes, say.start(recipes, goal), crafts, by_first, gets, raw)

    # Made tasks: the recipes of a training task with another goal. Splits differ by goal.

    @property
    def makes_tasks(self) -> bool:
        """The original's goals are all there are, and its rules look beyond what is listed."""
        return not self._original

    def vary(self, task: str, seed: int) -> Task | None:
        base, drawn = self.training_base(task), next(draws("textcraft", task, seed))
        others = self._other_goals(self.offer(task))
        return self._aiming_at(base, others[int(drawn * len(others))]) if others else None

    def achieved(self) -> Task | None:
        """The crafted thing in the bag that lies deepest."""
        base, depths = self.training_base(self._task), self.book.depths
        found = [item for item in self._other_goals(self._offer) if item in self._carried]
        return self._aiming_at(base, max(found, key=lambda item: (depths[item], item))) if found else None

    def made(self, task: str) -> Task:
        return Task(task, category(self.book.depths[self.offer(task).goal]))

    def _aiming_at(self, base: str, goal: str) -> Task:
        return self.made(made_id(base, goal.replace(" ", "_")))

    def _other_goals(self, given: Offer) -> list[str]:
        return [item for item in goals_among(self.book, self._goals["train"], given.recipes) if item != given.goal]

    def _made_of(self, task: str) -> Offer:
        given, goal = self.offer(self.training_base(task)), named_goal(change_of(task))
        if goal not in goals_among(self.book, self._goals["train"], given.recipes):
            raise not_made(self.name, task)
        return replace(given, goal=goal, start=self._narrator.start(given.recipes, goal))

    # Play

    def begin(self, task: str) -> str:
        self._offer = self.offer(task)
        self._task, self._carried = task, {}
        return self._offer.start

    def act(self, action: str) -> Turn:
        text = action.strip()
        if not self._original:
            text = text.rstrip(".").lower()
        variant = self._offer.crafts.get(text)
        if variant is not None:
            return self._craft(variant)
        command = parsed(text, self._narrator.wording)
        if isinstance(command, Get):
            return self._get(command)
        if isinstance(command, Craft):
            return self._find_recipe(command)
        if isinstance(command, Inventory):
            return Turn(self._narrator.inventory(self._carried))
        return Turn(self._narrator.not_executed(text), valid=False)

    def _meant(self, name: str) -> str:
        """The item or kind behind a name that the agent wrote; in original mode unknown names stand for themselves."""
        return self._narrator.names.meant.get(name, name if self._original else "")

    def _get(self, command: Get) -> Turn:
        item = self._meant(command.name)
        if item in self.book.kinds:
            return Turn(self._narrator.kind_named(item), valid=False)
        if item not in self._offer.raw:
            known = (
                item in self.book.makers if self._original else any(item == one.makes for one in self._offer.recipes)
            )
            if known:
                return Turn(self._narrator.made_only(item))
            return Turn(self._narrator.unknown(command.name), valid=False)
        self._carried[item] = self._carried.get(item, 0) + command.count
        return Turn(self._narrator.got(item, command.count, self._carried))

    def _find_recipe(self, command: Craft) -> Turn:
        """A craft action that is not spelled like a listed one: its ingredients may stand in another order."""
        say, book = self._narrator, self.book
        if command.unreadable:
            return Turn(say.unreadable(command.unreadable), valid=False)
        item = self._meant(command.name)
        needs = ingredients_key((self._meant(name), count) for name, count in command.needs)
        variant = book.by_ingredients(item).get(needs) if item in book.makers else None
        if self._original:
            # The original looks into the bag first, knows unlisted recipes too and does not read the number made.
            if any(self._carried.get(name, 0) < count for name, count in needs):
                return Turn(say.lacking(item, ()), valid=variant is not None)
        elif variant is not None and (
            variant.recipe not in self._offer.recipes or command.count not in (None, variant.count)
        ):
            variant = None
        elif kinds := [name for name, _ in needs if name in book.kinds]:
            return Turn(say.kind_named(kinds[0]), valid=False)
        if variant is None:
            return Turn(say.no_such_recipe(item, command.count or 1), valid=False)
        return self._craft(variant)

    def _craft(self, variant: Variant) -> Turn:
        carried = self._carried
        missing = [
            (item, count - carried.get(item, 0)) for item, count in variant.needs if carried.get(item, 0) < count
        ]
        if missing:
            return Turn(self._narrator.lacking(variant.makes, missing))
        for item, count in variant.needs:
            carried[item] -= count
            if not carried[item]:
                del carried[item]
        carried[variant.makes] = carried.get(variant.makes, 0) + variant.count
        if variant.makes == self._offer.goal:
            return Turn(self._narrator.solved(variant), done=True, success=True, score=1.0)
        return Turn(self._narrator.crafted(variant, carried))

    def state(self) -> Any:
        return (self._task, tuple(self._carried.items()))

    def set_state(self, state: Any) -> None:
        task, carried = state
        self.begin(task)
        self._carried = dict(carried)

    # Policies

    def _ready(self) -> list[str]:
        """The craft actions that can be carried out now."""
        carried, by_first = self._carried, self._offer.by_first
        return [
            text
            for first in carried
            for text, variant in by_first.get(first, ())
            if all(carried.get(item, 0) >= count for item, count in variant.needs)
        ]

    def legal_actions(self) -> list[str]:
        """Crafts that can be carried out now, and fetching any raw item in a number that some listed recipe names."""
        return [*self._ready(), *self._offer.gets, self._narrator.wording.inventory]

    def trivial(self, draw: float) -> str:
        """Any of the listed crafts that are possible and of the raw items, in numbers that a recipe names."""
        actions = [*self._ready(), *self._offer.gets]
        return actions[int(draw * len(actions))]

    def expert(self) -> tuple[str, str]:
        """The next command of a shortest plan."""
        move, say = self._move(), self._narrator
        return say.thought(move), say.get(move.item, move.amount) if move.craft is None else say.craft(move.craft)

    def _move(self) -> Move:
        return next_move(self.book, self._offer.goal, tuple(sorted(self._carried.items())))

    def hint(self, level: int) -> str:
        return at_level(level, self._narrator.advice(), self._narrator.aim(self._move()), self.expert()[1])

    @property
    def has_hints(self) -> bool:
        return True

    def drawing(self) -> str:
        """The goal, the recipes with those lit that can be carried out now, and the bag."""
        ready = {self._offer.crafts[text].recipe for text in self._ready()}
        return self._narrator.board(
            self._offer.recipes if self._turns else (),  # the first observation lists them anyway
            ready,
            self._offer.goal,
            self._carried,
            self.turn_limit - self._turns,
        )
