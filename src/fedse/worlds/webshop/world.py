"""WebShop: find a product in an online shop and buy it. Clean: test products are never asked for in training."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal, Self

import gymnasium
from pydantic import Field, model_validator

from fedse.errors import BadInput
from fedse.plugins import FilePath
from fedse.types import Split, Task
from fedse.worlds.hints import at_level
from fedse.worlds.made import change_of, draws, is_made, made_id, not_made
from fedse.worlds.splits import official_ids
from fedse.worlds.two_modes import TwoModeOptions
from fedse.worlds.webshop.catalogue import Product, read_products
from fedse.worlds.webshop.drawing import drawing
from fedse.worlds.webshop.expert import (
    Advice,
    Expert,
    Plan,
    four_clicks,
    four_clicks_suffice,
    is_solvable,
    plan,
    remembered,
)
from fedse.worlds.webshop.generator import MOST_LOOKALIKES, generated_products
from fedse.worlds.webshop.goals import Goal
from fedse.worlds.webshop.made import other_options, told, wish
from fedse.worlds.webshop.pages import BRIEF, FULL, ORIGINAL, Page, Shop, parsed
from fedse.worlds.webshop.reward import require_fuzzy_matching, reward
from fedse.worlds.webshop.tasks import Book, clean_tasks, original_tasks, sold
from fedse.worlds.webshop.texts import Narrator
from fedse.worlds.world import Turn, World

Indexed = Literal["title", "description", "features", "options"]
"""What the search engine can read of a product."""


class _AnyText(gymnasium.spaces.Text):
    """Texts in any alphabet: which characters a catalogue uses is known only when it is read."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class WebShop(World):
    """An online shop in text: search, open products, choose options, buy."""

    name = "webshop"
    version = 1

    observation_space = _AnyText(max_length=100_000, min_length=0, charset=string.printable)
    action_space = _AnyText(max_length=1_000, min_length=0, charset=string.printable)

    class Options(TwoModeOptions):
        CLEAN_ONLY = (
            "observation_length",
            "lookalikes",
            "part",
            "part_seed",
            "indexed",
            "k1",
            "b",
            "rank_noise",
            "hardness",
        )

        observation_length: Literal["full", "brief"] = "full"
        """Whole pages with ten hits, or short ones with three."""
        turn_limit: int = Field(default=10, ge=4)
        """Turns per episode."""
        products: FilePath | None = None
        """File with a catalogue in the layout of the original, JSON or gzipped, in place of the built-in one."""
        lookalikes: int = Field(default=1, ge=0, le=MOST_LOOKALIKES)
        """Products of the built-in catalogue that resemble a wanted one but differ in one thing, for each wanted one."""
        part: float = Field(default=1.0, gt=0, le=1)
        """Share of the products for training tasks that the shop sells; those for validation and test stay."""
        part_seed: int = 0
        """Which part, so that clients sell different ones."""
        indexed: tuple[Indexed, ...] = Field(default=("title", "description", "features", "options"), strict=False)
        """What the search engine reads of a product."""
        k1: float = Field(default=0.9, ge=0)
        """BM25 weight: how much it counts that a word occurs often."""
        b: float = Field(default=0.4, ge=0, le=1)
        """BM25 weight: how much long texts are marked down."""
        rank_noise: float = Field(default=0.0, ge=0, lt=1)
        """Each score of a search is changed by up to this share, always alike for the same words."""
        hardness: Literal["all", "easy", "hard"] = "all"
        """Training tasks that a rule of four clicks solves (easy), those it does not (hard), or both."""

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.ids and not self.products:
                raise ValueError("`ids` are positions among the goals of a catalogue; give it as `products`")
            if self.products and self.is_set("lookalikes"):
                raise ValueError("`lookalikes` has no effect on a catalogue from a file; leave it out")
            if self.part == 1 and self.is_set("part_seed"):
                raise ValueError("`part_seed` has no effect without `part`; leave it out")
            if self.k1 == 0 and self.is_set("b"):
                raise ValueError("`b` has no effect when `k1` is 0; leave it out")
            if not self.indexed or len(set(self.indexed)) < len(self.indexed):
                raise ValueError("`indexed` must name at least one field, and each once")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        require_fuzzy_matching()
        self._original = self.options.mode == "original"
        self._layout = ORIGINAL if self._original else BRIEF if self.options.observation_length == "brief" else FULL
        self._official = official_ids(self.options.ids) if self.options.ids else {}
        self._narrator = Narrator(
            original=self._original,
            rules_length=self.options.rules,
            view_length=self.options.observation_length,
            layout=self._layout,
            turn_limit=self.turn_limit,
        )
        self._plans: dict[str, Plan | None] = {}
        self._task = ""

    @cached_property
    def rules(self) -> str:
        return self._narrator.rules()

    @property
    def turn_limit(self) -> int:
        return self.options.turn_limit

    # The shop and its tasks

    @cached_property
    def _products(self) -> tuple[Product, ...]:
        if self.options.products:
            return read_products(self.options.products)
        return generated_products(self.options.lookalikes)

    @cached_property
    def shop(self) -> Shop:
        """What is on sale here."""
        options = self.options
        return _shop(
            self._products,
            options.part,
            options.part_seed,
            frozenset(options.indexed),
            options.k1,
            options.b,
            options.rank_noise,
        )

    @cached_property
    def _book(self) -> Book:
        if self._original:
            return _original_book(self._products, tuple((split, tuple(ids)) for split, ids in self._official.items()))
        return _clean_book(self.options, self._products, self.shop, self._narrator)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._book[0][split]

    def subject(self, task: str) -> str:
        """The family of the product, by which splits differ too."""
        return self.goal(task).product.family

    def goal(self, task: str) -> Goal:
        """What a task asks for."""
        if is_made(task):
            return self._wish(task)
        found = self._book[1].get(task)
        if found is None:
            raise BadInput(f"webshop: there is no task '{task}'; a task of this world is '{self.tasks('test')[0].id}'.")
        return found

    # Made tasks: other wishes for products that training asks for.

    @property
    def makes_tasks(self) -> bool:
        """Goals of the original are in one split each, but several splits ask for the same product."""
        return not self._original

    def vary(self, task: str, seed: int) -> Task | None:
        """The same product in other options."""
        base, given = self.training_base(task), self.goal(task)
        left, drawn = list(other_options(given)), draws("webshop", task, seed)
        while left:
            found = made_id(base, left.pop(int(next(drawn) * len(left))))
            if is_solvable(self.shop, self._wish(found), self._layout, self.turn_limit):
                return self.made(found)
        return None

    def achieved(self) -> Task | None:
        """What was bought, with the options that were chosen, if it is a product that training may ask for."""
        base = self.training_base(self._task)
        if self._score < 0 or self._score == 1:
            return None
        word = told(self.shop.by_id[self._page.product], dict(self._page.chosen))
        return self.made(made_id(base, word)) if self._can_be_wished(word) else None

    def made(self, task: str) -> Task:
        return Task(task, self._wish(task).product.category)

    def _wish(self, task: str) -> Goal:
        self.training_base(task)
        found = wish(self._products, change_of(task))
        if found is None or not self._can_be_wished(change_of(task)):
            raise not_made(self.name, task)
        return found

    def _can_be_wished(self, word: str) -> bool:
        """Whether it is on sale, and the product itself is worth everything."""
        found = wish(self._products, word)
        if found is None or found.product.id not in self.shop.by_id:
            return False
        return reward(found, found.product, dict(found.options), both_sides=True) == 1

    # Play

    def begin(self, task: str) -> str:
        self._goal = self.goal(task)
        self._task, self._page, self._score = task, Page(), -1.0
        self._seen: tuple[str, ...] = ()
        return self._view()

    def act(self, action: str) -> Turn:
        verb, text = parsed(action, self._original)
        if verb == "search":
            self._page = Page(text, 1)
            return Turn(self._view())
        try:
            target = self.shop.followed(self._page, self._layout, text)
        except KeyError:
            return Turn(self._narrator.impossible(bool(action.strip())) + self._view(), valid=False)
        if target is not None:
            self._page = target
            self._seen = remembered(self._seen, target)
            return Turn(self._view())
        product = self.shop.by_id[self._page.product]
        self._score = reward(self._goal, product, dict(self._page.chosen), both_sides=not self._original)
        return Turn(self._narrator.sold(product, self._score), done=True, success=self._score == 1, score=self._score)

    def _view(self) -> str:
        return self._narrator.view(self.shop, self._page, self._goal)

    def state(self) -> Any:
        return (self._task, tuple(self._page), self._seen, self._score)

    def set_state(self, state: Any) -> None:
        task, page, seen, score = state
        self.begin(task)
        query, number, product, section, chosen = page
        self._page = Page(query, number, product, section, tuple((name, value) for name, value in chosen))
        self._seen, self._score = tuple(seen), score

    # Policies

    def legal_actions(self) -> list[str]:
        """The clicks of this page; on the search page the one search that needs no thought."""
        clicks = [f"click[{text}]" for text in self.shop.links(self._page, self._layout)]
        return clicks or [f"search[{self._narrator.wish(self._goal)}]"]

    def open_actions(self) -> list[tuple[str, str]]:
        """One can search from any page."""
        return [("search[", "]")]

    def trivial(self, draw: float) -> str:
        """Any click of this page; on the search page a search for the whole wish."""
        actions = self.legal_actions()
        return actions[int(draw * len(actions))]

    def four_clicks(self) -> str:
        """The next action of a rule that does not think either, but does better: see `webshop_expert.four_clicks`."""
        return four_clicks(self.shop, self._page, self._narrator.wish(self._goal))

    def expert(self) -> tuple[str, str]:
        """The next step towards a product that fits, from any page."""
        advice = self._advice()
        return self._narrator.thought(advice, self._goal), advice.action

    def _advice(self) -> Advice:
        if self._task not in self._plans:
            self._plans[self._task] = plan(self.shop, self._goal, self._layout, may_use_title=self._original)
        expert = Expert(self.shop, self._goal, self._layout, self._plans[self._task], only_target=self._original)
        return expert.advice(self._page, self._seen)

    def hint(self, level: int) -> str:
        advice = self._advice()
        return at_level(level, self._narrator.advice, self._narrator.aim(advice, self._goal), advice.action)

    @property
    def has_hints(self) -> bool:
        return True

    def drawing(self) -> str:
        """The wish as a shopping list, and the page: prices against the limit, or the options of a product."""
        return drawing(self.shop, self._page, self._goal, self._layout, self._score)


@lru_cache(maxsize=16)
def _shop(
    products: tuple[Product, ...],
    part: float,
    part_seed: int,
    fields: frozenset[str],
    k1: float,
    b: float,
    noise: float,
) -> Shop:
    return Shop(sold(products, part, part_seed), fields, k1, b, noise)


@lru_cache(maxsize=8)
def _original_book(products: tuple[Product, ...], official: tuple[tuple[Split, tuple[str, ...]], ...]) -> Book:
    return original_tasks(products, dict(official))


@lru_cache(maxsize=32)
def _clean_book(options: WebShop.Options, products: tuple[Product, ...], shop: Shop, narrator: Narrator) -> Book:
    def is_solved_in_time(goal: Goal) -> bool:
        return goal.product.id in shop.by_id and is_solvable(shop, goal, narrator.layout, options.turn_limit)

    def is_as_hard(goal: Goal) -> bool:
        if options.hardness == "all":
            return True
        easy = four_clicks_suffice(shop, goal, narrator.wish(goal), both_sides=True)
        return easy == (options.hardness == "easy")

    return clean_tasks(
        products,
        options.train_tasks,
        options.pool,
        options.mix,
        options.mix_seed,
        is_solved_in_time,
        is_as_hard,
    )
