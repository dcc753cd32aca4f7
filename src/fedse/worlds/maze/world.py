"""Maze: walk to the goal. Clean: generated mazes, those of the test never seen before. Original: one fixed map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedse.errors import BadInput
from fedse.types import SPLITS, Split, Task
from fedse.worlds.hints import at_level
from fedse.worlds.made import change_of, draws, is_made, made_id, not_made
from fedse.worlds.maze.made import another, ends, farthest, told
from fedse.worlds.maze.maps import (
    DOUBLE_T_STARTS,
    SMALL,
    STEPS,
    Cell,
    Puzzle,
    double_t_puzzle,
    generated_puzzle,
    require_shapes,
)
from fedse.worlds.maze.texts import WORDINGS, Narrator
from fedse.worlds.splits import TaskLists, clean_tasks, official_ids
from fedse.worlds.two_modes import TwoModeOptions
from fedse.worlds.world import Turn, World

BANDS = ("short", "medium", "long")
_ORIGINAL_CALLS = 50
"""The original answers any later move with `Failure`."""


class Maze(World):
    """A maze described in words, one step at a time."""

    name = "maze"
    version = 1

    class Options(TwoModeOptions):
        CLEAN_ONLY = ("directions", "size", "loops", "shortest", "longest")

        observation: Literal["full", "walls"] = "full"
        """What is seen each turn: goal, position and walls, or the walls alone."""
        observation_length: Literal["full", "brief"] = "full"
        """Whole sentences each turn, or a line of keywords."""
        directions: Literal["moves", "compass"] = "moves"
        """Words for the directions: up, down, left, right, or north, south, west, east."""
        turn_limit: int | None = Field(default=None, ge=1)
        """Turns per episode; empty means 20 in clean mode and 15 in original mode."""
        size: int = Field(default=5, ge=3, le=20)
        """Rows and columns of a generated maze."""
        loops: float = Field(default=0.2, ge=0, le=0.8)
        """Share of the inner walls taken away from a maze that has only one way to each cell."""
        shortest: int = Field(default=2, ge=1)
        """Least number of steps from start to goal."""
        longest: int | None = Field(default=None, ge=1)
        """Greatest number of steps from start to goal; empty means twice the size, and never above the turn limit."""

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.mode == "clean":
                limit = self.turn_limit or 20
                if self.longest is not None and self.longest > limit:
                    raise ValueError(f"`longest` ({self.longest}) is above the turn limit ({limit})")
                longest = self.longest or min(limit, 2 * self.size)
                if longest - self.shortest < 2:
                    raise ValueError(f"`shortest` ({self.shortest}) must be at least 2 below the longest ({longest})")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._original = self.options.mode == "original"
        self._narrator = Narrator(
            original=self._original,
            wording=WORDINGS[self.options.directions],
            rules_length=self.options.rules,
            view_length=self.options.observation_length,
            sees_goal=self.options.observation == "full",
            turn_limit=self.turn_limit,
        )
        self._actions = self._narrator.wording.actions
        self._numbers = {action: number for number, action in enumerate(self._actions)}
        self._official = official_ids(self.options.ids) if self.options.ids else {}
        self._task = ""
        if not self._original and self.options.size <= SMALL:
            # Since version 2 the splits of small mazes differ by shape; larger ones are what they were.
            vars(self)["version"] = 2
            require_shapes(self.options.size, self.options.loops)

    @cached_property
    def rules(self) -> str:
        return self._narrator.rules()

    @property
    def turn_limit(self) -> int:
        return self.options.turn_limit or (15 if self._original else 20)

    # Tasks

    @cached_property
    def _bands(self) -> dict[str, tuple[int, int]]:
        """Least and greatest path length of each band: three near-equal parts of the whole range."""
        shortest = self.options.shortest
        longest = self.options.longest or min(self.turn_limit, 2 * self.options.size)
        edges = [shortest + round((longest + 1 - shortest) * part / 3) for part in range(4)]
        return {band: (edges[place], edges[place + 1] - 1) for place, band in enumerate(BANDS)}

    @cached_property
    def _lists(self) -> TaskLists:
        if self._original:
            everywhere = [str(number) for number in range(len(DOUBLE_T_STARTS))]
            distance = double_t_puzzle(0).distance
            found: dict[Split, list[Task]] = {}
            for split in ("train", "validation", "test"):
                # Official id 25 starts on the goal: there is nothing to play.
                ids = [task for task in self._official.get(split, everywhere) if task != str(len(DOUBLE_T_STARTS))]
                if not set(ids) <= set(everywhere):
                    raise BadInput(f"{self.options.ids}: the original maze has the ids 0 to 24 (25 is left out).")
                steps = [distance[DOUBLE_T_STARTS[int(task)]] for task in ids]
                found[split] = [
                    Task(task, BANDS[0 if length <= 4 else 1 if length <= 8 else 2])
                    for task, length in zip(ids, steps, strict=True)
                ]
            return TaskLists.of(found)
        options = self.options
        return clean_tasks(options.train_tasks, dict.fromkeys(SPLITS, BANDS), options.mix, options.mix_seed)

    @property
    def _known(self) -> Mapping[str, Split]:
        return self._lists.split_of

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._lists.tasks[split]

    def puzzle(self, task: str) -> Puzzle:
        """The maze of a task."""
        if is_made(task):
            return self._moved(task)
        split = self._known.get(task)
        if split is None:
            raise BadInput(f"maze: there is no task '{task}'; a task of this world is '{self.tasks('test')[0].id}'.")
        if self._original:
            return double_t_puzzle(int(task))
        _, band, number = task.split("-")
        shortest, longest = self._bands[band]
        pool = self.options.pool if split == "train" else 0
        return generated_puzzle(
            self.options.size, self.options.loops, shortest, longest, split, pool, band, int(number)
        )

    # Made tasks: the walls of a training maze with another start and goal. Splits differ by walls.

    @property
    def makes_tasks(self) -> bool:
        """In original mode there is one map, and every split has the same tasks."""
        return not self._original

    def vary(self, task: str, seed: int) -> Task | None:
        base, given = self.training_base(task), self.puzzle(task)
        lengths = self._bands[self._band(given.distance[given.start])]
        found = another(given, lengths, draws("maze", task, seed))
        return None if found is None else self.made(made_id(base, told(*found)))

    def achieved(self) -> Task | None:
        """The visited cell that is farthest from the start, if a shortest path to it is long enough for a task."""
        base = self.training_base(self._task)
        found = farthest(self._puzzle, [*self._trail, self._cell], self.options.shortest)
        return None if found is None else self.made(made_id(base, told(self._puzzle.start, found)))

    def made(self, task: str) -> Task:
        puzzle = self._moved(task)
        return Task(task, self._band(puzzle.distance[puzzle.start]))

    def _moved(self, task: str) -> Puzzle:
        layout = self.puzzle(self.training_base(task)).layout
        found = ends(change_of(task), layout)
        if found is None:
            raise not_made(self.name, task)
        start, goal = found
        distance = layout.distances(goal)
        if not self.options.shortest <= distance[start] <= self.turn_limit:
            raise not_made(self.name, task)
        return Puzzle(layout, start, goal, distance)

    def _band(self, length: int) -> str:
        """A way that the episodes of an agent have shown may be longer than any of a generated task."""
        return next((band for band, (_, longest) in self._bands.items() if length <= longest), BANDS[-1])

    # Play

    def begin(self, task: str) -> str:
        self._puzzle = self.puzzle(task)
        self._task, self._cell = task, self._puzzle.start
        self._trail: list[Cell] = []
        return self._view()

    def act(self, action: str) -> Turn:
        if self._original and self._turns >= _ORIGINAL_CALLS:
            return Turn("Failure", valid=action.strip() in self._numbers, done=True, score=-1.0)
        # The original takes an action only when it is spelled exactly so.
        spelled = action.strip() if self._original else action.strip().rstrip(".").lower()
        way = self._numbers.get(spelled)
        if way is None:
            return Turn(self._remark(self._narrator.not_an_action), valid=False)
        target = self._puzzle.layout.neighbours[self._cell][way]
        if target is None:
            return Turn(self._remark(self._narrator.blocked))
        self._trail.append(self._cell)
        self._cell = target
        if target == self._puzzle.goal:
            return Turn(self._narrator.success, done=True, success=True, score=1.0)
        return Turn(self._view())

    def _remark(self, sentence: str) -> str:
        """The view with a sentence before it; the original passes over such things in silence."""
        return self._view() if self._original else f"{sentence} {self._view()}"

    def _view(self) -> str:
        return self._narrator.view(self._puzzle.layout, self._cell, self._puzzle.goal)

    def state(self) -> Any:
        return (self._task, self._cell, tuple(self._trail))

    def set_state(self, state: Any) -> None:
        task, cell, trail = state
        self.begin(task)
        self._cell, self._trail = tuple(cell), [tuple(past) for past in trail]

    # Policies

    def legal_actions(self) -> list[str]:
        if self._original:
            return list(self._actions)
        neighbours = self._puzzle.layout.neighbours[self._cell]
        return [action for action, other in zip(self._actions, neighbours, strict=True) if other]

    def trivial(self, draw: float) -> str:
        """Any of the moves that are not walled off; in original mode any of the four, as published floors do."""
        actions = self.legal_actions()
        return actions[int(draw * len(actions))]

    def expert(self) -> tuple[str, str]:
        """The first step of a shortest path, with a reason that can be seen from the cell."""
        neighbours, distance = self._puzzle.layout.neighbours[self._cell], self._puzzle.distance
        goal = self._puzzle.goal
        offset = (goal[0] - self._cell[0], goal[1] - self._cell[1])
        towards = [way for way, (down, right) in enumerate(STEPS) if down * offset[0] + right * offset[1] > 0]
        open_ways = [way for way in range(len(STEPS)) if neighbours[way] is not None]
        # Of equally short ways the one towards the goal is easier to understand.
        best = min(open_ways, key=lambda way: (distance[neighbours[way] or goal], way not in towards, way))
        back = neighbours.index(self._trail[-1]) if self._trail else None
        return self._narrator.thought(best, towards, open_ways, back), self._actions[best]

    def hint(self, level: int) -> str:
        cell, goal = self._cell, self._puzzle.goal
        offset = (goal[0] - cell[0], goal[1] - cell[1])
        aim = self._narrator.aim(offset, self._puzzle.distance[cell])
        return at_level(level, self._narrator.advice, aim, self.expert()[1])

    @property
    def has_hints(self) -> bool:
        return True

    def drawing(self) -> str:
        """The map from above: where you are, where you have been, where the goal is."""
        layout = self._puzzle.layout
        places = {layout.place(cell): "\x1b[36m· \x1b[0m" for cell in self._trail}
        places[layout.place(self._puzzle.goal)] = "\x1b[1;32m★ \x1b[0m"
        places[layout.place(self._cell)] = "\x1b[1;33m● \x1b[0m"
        wall = "\x1b[90m██\x1b[0m"
        return "\n".join(
            "".join(
                places.get((row, column), wall if mark == "#" else "  ") for column, mark in enumerate(line)
            ).rstrip()
            for row, line in enumerate(layout.picture)
        )
