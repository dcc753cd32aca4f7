"""BabyAI: do what a sentence asks for in rooms with balls, boxes, keys and doors, seen through words.

minigrid makes the levels. Clean: unseen layouts in the test, every finish counts. Original: AgentGym's text wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedse.errors import BadInput
from fedse.plugins import nearest
from fedse.types import SPLITS, Split, Task
from fedse.worlds.babyai.expert import Advice, advise
from fedse.worlds.babyai.goals import CONTINUE, SUCCESS
from fedse.worlds.babyai.hints import to_aim_at, to_mind
from fedse.worlds.babyai.levels import LEVELS, OFFICIAL_NUMBERS, ORDERED_LEVELS, remembered
from fedse.worlds.babyai.made import both, reached, with_mission, words
from fedse.worlds.babyai.offers import VIEW, Item, Offer, clean_offers, items, original_offers
from fedse.worlds.babyai.rooms import Layout, Room, Sight, look, picture
from fedse.worlds.babyai.tasks import DEFAULT_LEVELS, chosen_layout, turns_needed
from fedse.worlds.babyai.texts import Narrator
from fedse.worlds.babyai.thoughts import thought
from fedse.worlds.babyai.words import CHECK, ORIGINAL, WORDINGS
from fedse.worlds.hints import at_level
from fedse.worlds.made import change_of, draws, is_made, made_id, not_made
from fedse.worlds.splits import TaskLists, clean_tasks, official_ids
from fedse.worlds.two_modes import TwoModeOptions
from fedse.worlds.world import Turn, World

_TURNS = 20
_LONGEST = 10
# As many seeds per official level as the official lists have; the original has no validation split.
_ORIGINAL_SEEDS: dict[Split, range] = {"train": range(5, 50), "validation": range(1_000, 1_012), "test": range(5)}


@dataclass(frozen=True, slots=True)
class _Scene:
    """What the present state looks like and offers."""

    sight: Sight
    items: list[Item]
    offers: dict[str, Offer]
    """Actions as the agent writes them."""


class BabyAI(World):
    """A house of rooms described in words, with actions that walk to what is in view."""

    name = "babyai"
    version = 1

    class Options(TwoModeOptions):
        CLEAN_ONLY = ("observation_length", "wording", "view", "levels", "shortest", "longest")

        observation_length: Literal["full", "brief"] = "full"
        """Whole sentences with all possible actions each turn, or a short list of things and where they are."""
        wording: Literal["plain", "other"] = "plain"
        """Words for things and actions: ball, box, key, door and go to, or orb, crate, card, gate and walk to."""
        order_words: bool | None = None
        """Whether the goal tells what comes first; empty means yes in clean mode and no in original mode."""
        view: int = Field(default=VIEW, ge=5, le=11)
        """Side of the square of cells before the agent that it can see; an odd number."""
        turn_limit: int = Field(default=_TURNS, ge=1)
        """Turns per episode."""
        levels: list[str] | None = None
        """Levels to take tasks from, by minigrid's names; empty means those that random play does not solve."""
        shortest: int = Field(default=1, ge=1)
        """Least number of turns the expert needs for a task."""
        longest: int | None = Field(default=None, ge=1)
        """Greatest number of turns the expert needs for a task; empty means 10, or the turn limit if that is less."""

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.mode == "original":
                return self
            if self.view % 2 == 0:
                raise ValueError(f"`view` must be an odd number, not {self.view}")
            self._check_levels(self.levels)
            if self.longest is not None and self.longest > self.turn_limit:
                raise ValueError(f"`longest` ({self.longest}) is above the turn limit ({self.turn_limit})")
            if self.shortest > self.most_turns:
                raise ValueError(f"`shortest` ({self.shortest}) is above the greatest number ({self.most_turns})")
            return self

        def _check_levels(self, levels: list[str] | None) -> None:
            if levels is None:
                return
            if not levels or len(set(levels)) != len(levels):
                raise ValueError("`levels` must name at least one level, and none twice")
            for level in levels:
                if level not in LEVELS:
                    raise ValueError(f"there is no level '{level}'; {nearest(level, LEVELS)}known: {', '.join(LEVELS)}")
            if self.mix is not None and len(levels) == 1:
                raise ValueError("`mix` has no effect with one level; leave it out")
            if self.order_words is not None and not ORDERED_LEVELS & set(levels):
                raise ValueError("`order_words` has no effect on these `levels`; leave it out")

        @property
        def most_turns(self) -> int:
            return self.longest or min(_LONGEST, self.turn_limit)

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._original = self.options.mode == "original"
        order = self.options.order_words
        self._tells_order = not self._original if order is None else order
        self._wording = ORIGINAL if self._original else WORDINGS[self.options.wording]
        self._narrator = Narrator(
            original=self._original,
            wording=self._wording,
            rules_length=self.options.rules,
            view_length=self.options.observation_length,
            turn_limit=self.turn_limit,
        )
        self._official = official_ids(self.options.ids) if self.options.ids else {}
        self._present: _Scene | None = None

    @cached_property
    def rules(self) -> str:
        return self._narrator.rules()

    @property
    def turn_limit(self) -> int:
        return self.options.turn_limit

    # Tasks

    @cached_property
    def _lists(self) -> TaskLists:
        if self._original:
            return TaskLists.of(
                {split: [Task(task, LEVELS[int(task) % 40]) for task in self._ids(split)] for split in SPLITS}
            )
        options = self.options
        levels = options.levels or DEFAULT_LEVELS
        return clean_tasks(options.train_tasks, dict.fromkeys(SPLITS, levels), options.mix, options.mix_seed)

    def _ids(self, split: Split) -> list[str]:
        """Ids of the original: 40 times the seed, plus the number of the level less one."""
        numbers = [str(seed * 40 + level - 1) for seed in _ORIGINAL_SEEDS[split] for level in OFFICIAL_NUMBERS]
        return self._official.get(split, numbers)

    @property
    def _known(self) -> Mapping[str, Split]:
        return self._lists.split_of

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._lists.tasks[split]

    def layout(self, task: str) -> Layout:
        """The rooms and the mission of a task."""
        if is_made(task):
            return self._remade(task)
        split = self._known.get(task)
        if split is None:
            raise BadInput(f"babyai: there is no task '{task}'; a task of this world is '{self.tasks('test')[0].id}'.")
        if self._original:
            return remembered(LEVELS[int(task) % 40], int(task) // 40)
        _, level, number = task.split("-")
        options = self.options
        pool = options.pool if split == "train" else 0
        return chosen_layout(level, split, pool, int(number), options.view, options.shortest, options.most_turns)

    def mission(self) -> str:
        """The goal of the present task as the agent is told it."""
        layout = self._room.layout
        if self._original:
            told = layout.mission
            return told if self._tells_order else told.replace("then", "and").replace("after you", "and")
        return self._wording.mission(layout.goal, self._tells_order)

    # Made tasks: the rooms of a training task with another mission.

    @property
    def makes_tasks(self) -> bool:
        """The original's missions are those of its seeds."""
        return not self._original

    def vary(self, task: str, seed: int) -> Task | None:
        base, layout, options = self.training_base(task), self.layout(task), self.options
        left, drawn = words(layout), draws("babyai", task, seed)
        while left:
            word = left.pop(int(next(drawn) * len(left)))
            found = with_mission(layout, word)
            if found is not None and found.mission != layout.mission:
                turns = turns_needed(found, options.view, options.most_turns)
                if turns is not None and turns >= options.shortest:
                    return self.made(made_id(base, word))
        return None

    def compose(self, one: str, other: str) -> Task | None:
        """Both missions, in any order."""
        base, options = self.training_base(one), self.options
        if self.training_base(other) != base:
            return None
        word = both(change_of(one), change_of(other))
        found = with_mission(self.layout(base), word)
        solved = found is not None and turns_needed(found, options.view, options.most_turns) is not None
        return self.made(made_id(base, word)) if solved else None

    @property
    def composes_tasks(self) -> bool:
        return self.makes_tasks

    def achieved(self) -> Task | None:
        """A locked door that is open now, a thing carried, a door that is open now, or what the agent stands before."""
        base, layout = self.training_base(self._task), self._room.layout
        for word in reached(self._room):
            found = with_mission(layout, word)
            if found is not None and found.mission != layout.mission:
                return self.made(made_id(base, word))
        return None

    def made(self, task: str) -> Task:
        return Task(task, self._remade(task).level)

    def _remade(self, task: str) -> Layout:
        found = with_mission(self.layout(self.training_base(task)), change_of(task))
        if found is None:
            raise not_made(self.name, task)
        return found

    # Play

    def begin(self, task: str) -> str:
        self._room = Room(self.layout(task), mended=not self._original)
        self._task = task
        self._reward = self._score = 0.0
        self._present = None
        return self._narrator.start(self.mission(), self._view())

    def _scene(self) -> _Scene:
        if self._present is None:
            room = self._room
            sight = look(room, self.options.view)
            seen = items(room, sight)
            offers = (original_offers if self._original else clean_offers)(room, sight, seen)
            self._present = _Scene(sight, seen, {self._wording.action(room, offer): offer for offer in offers})
        return self._present

    def _view(self) -> str:
        scene = self._scene()
        seen = self._narrator.view(self._room, scene.sight, scene.items, list(scene.offers))
        return seen + self._narrator.offered(self.legal_actions()) if self._original else seen

    def act(self, action: str) -> Turn:
        return self._act_original(action) if self._original else self._act_clean(action)

    def _act_clean(self, action: str) -> Turn:
        room, scene = self._room, self._scene()
        spelled = self._spelled(action)
        offer = scene.offers.get(spelled) or self._loosely(spelled)
        if offer is None:
            why = self._narrator.refusal(room, spelled, scene.items)
            return Turn(f"{why} {self._view()}", valid=False)
        self._present = None
        for step in offer.steps:
            verdict = room.step(step)
            if verdict == SUCCESS:
                return Turn(self._narrator.success, done=True, success=True, score=1.0)
            if verdict != CONTINUE:
                return Turn(self._narrator.failure, done=True)
        return Turn(self._view())

    def _spelled(self, action: str) -> str:
        words = action.strip().rstrip(".").lower().replace("pickup ", "pick up ").split()
        return " ".join(word for word in words if word not in ("the", "a", "an"))

    def _loosely(self, action: str) -> Offer | None:
        """The offer meant by a name without the state of a door, or with the number 1 where none is needed."""
        meant: dict[str, list[Offer]] = {}
        for spelled, offer in self._scene().offers.items():
            if offer.thing >= 0:
                verb = self._wording.verb(offer)
                plain = self._wording.plain(self._room, offer.thing)
                for other in {f"{spelled} 1", f"{verb} {plain}", f"{verb} {plain} 1"}:
                    meant.setdefault(other, []).append(offer)
        found = meant.get(action, [])
        return found[0] if len(found) == 1 else None

    def _act_original(self, action: str) -> Turn:
        """An action runs until a step changes nothing in view, and only what its last step brings is looked at."""
        room, scene = self._room, self._scene()
        spelled = " ".join(re.sub(r"[^A-Za-z0-9, ]+", "", action).lower().split())
        offer = scene.offers.get(spelled)
        if offer is None and "check" in spelled:
            return self._answer(f"You can do the following now: {', '.join(self.legal_actions())}.")
        if offer is None:
            why = self._narrator.refusal(room, spelled, scene.items) if spelled else self._narrator.unchanged
            return self._answer(why, valid=False)
        if not offer.steps:
            return self._answer(self._narrator.unchanged)
        self._present = None
        verdict = self._run(offer)
        self._reward = room.reward() if verdict == SUCCESS else 0.0
        scene = self._scene()
        seen = self._narrator.view(room, scene.sight, scene.items, ())
        # A finish worth no more than a half is announced and yet not taken as the end.
        return self._answer(seen + (self._narrator.success if verdict != CONTINUE else ""), done=self._reward > 0.5)

    def _run(self, offer: Offer) -> int:
        """Take the steps of an offer, as far as each changes the picture; the verdict on the last one taken."""
        room = self._room
        before = picture(room, VIEW) if len(offer.steps) > 1 else None
        verdict = CONTINUE
        for left, step in zip(range(len(offer.steps) - 1, -1, -1), offer.steps, strict=True):
            verdict = room.step(step)
            if left:
                after = picture(room, VIEW)
                if after == before:
                    break
                before = after
        return verdict

    def _answer(self, text: str, valid: bool = True, done: bool = False) -> Turn:
        # The last reward is added once more for every action that moves nothing.
        self._score += self._reward
        observation = text + self._narrator.offered(self.legal_actions())
        return Turn(observation, valid, done, self._score > 0, self._score)

    def state(self) -> Any:
        return (self._task, self._reward, self._score, self._room.saved())

    def set_state(self, state: Any) -> None:
        task, reward, score, room = state
        self._room = Room(self.layout(task), mended=not self._original)
        self._room.restore(room)
        self._task, self._reward, self._score, self._present = task, reward, score, None

    # Policies

    def legal_actions(self) -> list[str]:
        return [*self._scene().offers, CHECK] if self._original else list(self._scene().offers)

    def trivial(self, draw: float) -> str:
        """Any of the offered actions."""
        actions = self.legal_actions()
        return actions[int(draw * len(actions))]

    def expert(self) -> tuple[str, str]:
        """The action that brings the next thing to do nearest, with a reason told from what is in view."""
        scene, room, advice = self._scene(), self._room, self._advice()
        if self.options.rules == "bare":
            return "", self._wording.action(room, advice.offer)
        seen = {item.thing for item in scene.items}
        why = thought(room, advice, seen, self._wording, self.options.rules == "brief")
        return why, self._wording.action(room, advice.offer)

    def _advice(self) -> Advice:
        return advise(self._room, list(self._scene().offers.values()), any_finish_counts=not self._original)

    def hint(self, level: int) -> str:
        advised, seen = self._advice(), {item.thing for item in self._scene().items}
        aimed = to_aim_at(self._room, advised, seen, self._wording)
        return at_level(level, to_mind(self._wording), aimed, self._wording.action(self._room, advised.offer))

    @property
    def has_hints(self) -> bool:
        return True

    def drawing(self) -> str:
        """The rooms from above, the goal and what is carried."""
        return self._narrator.drawing(self._room, self._scene().sight, self.mission())
