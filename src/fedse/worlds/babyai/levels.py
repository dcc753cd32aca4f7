"""The forty levels, and minigrid as their generator."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

from fedse.errors import MissingExtra
from fedse.worlds.babyai.goals import NOTHING, Both, Clause, Goal, Ordered, Phrase
from fedse.worlds.babyai.rooms import CLOSED, EMPTY, LOCKED, MARGIN, OPEN, WALL, Layout, Thing

# Level n of the original is the n-th name here.
LEVELS = (
    "GoToRedBallGrey", "GoToRedBall", "GoToRedBallNoDists", "GoToObjS6", "GoToLocalS8N7", "GoToObjMazeS7",
    "GoToImpUnlock", "GoToSeqS5R2", "GoToRedBlueBall", "GoToDoor", "GoToObjDoor", "Open", "OpenRedDoor", "OpenDoorLoc",
    "OpenRedBlueDoorsDebug", "OpenDoorsOrderN4Debug", "Pickup", "UnblockPickup", "PickupLoc", "PickupDistDebug",
    "PickupAbove", "PutNextLocalS6N4", "PutNextS7N4Carrying", "Unlock", "UnlockLocalDist", "KeyInBox",
    "UnlockPickupDist", "BlockedUnlockPickup", "UnlockToUnlock", "ActionObjDoor", "FindObjS7", "KeyCorridorS6R3",
    "OneRoomS20", "MoveTwoAcrossS8N9", "SynthS5R2", "SynthLoc", "SynthSeq", "MiniBossLevel", "BossLevel",
    "BossLevelNoUnlock",
)  # fmt: skip
OFFICIAL_NUMBERS = (*range(1, 12), 19, 20, 21, 30, 31, 33, 36)
"""The levels that the official ids use."""
ORDERED_LEVELS = frozenset(
    {
        "GoToSeqS5R2", "OpenRedBlueDoorsDebug", "OpenDoorsOrderN4Debug", "MoveTwoAcrossS8N9", "SynthSeq",
        "MiniBossLevel", "BossLevel", "BossLevelNoUnlock",
    }
)  # fmt: skip
"""Levels some of whose missions tell an order."""

_REVISED = {"GoToObjS6": "v1"}
"""minigrid refuses the first version of this level, which had the wrong room size."""


class _Later(ModuleType):
    """Stands for a module until something of it is wanted."""

    def __getattr__(self, name: str) -> Any:
        self.step_aside()
        return getattr(importlib.import_module(self.__name__), name)

    def step_aside(self) -> None:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextlib.contextmanager
def _imported_later(name: str) -> Iterator[None]:
    """Whatever is imported meanwhile gets this module only when it uses it."""
    if name in sys.modules or importlib.util.find_spec(name) is None:
        yield
        return
    later = sys.modules[name] = _Later(name)
    try:
        yield
    finally:
        later.step_aside()


@lru_cache(maxsize=1)
def _library() -> tuple[Any, Any, Any]:
    """gymnasium's registry with minigrid's levels in it, minigrid's room generator and its rejection."""
    try:
        # It may announce news of its project on first import. Most of the import's time would go into networkx, which no
        # level of BabyAI uses.
        with contextlib.redirect_stderr(io.StringIO()), _imported_later("networkx"):
            importlib.import_module("minigrid")
    except ModuleNotFoundError as error:
        raise MissingExtra("the BabyAI world", "minigrid", "babyai") from error
    rooms = importlib.import_module("minigrid.core.roomgrid")
    levels = importlib.import_module("minigrid.envs.babyai.core.roomgrid_level")
    return importlib.import_module("gymnasium"), rooms.RoomGrid, levels.RejectSampling


def make(level: str) -> Any:
    """minigrid's environment of a level, changed so that it neither prints nor draws, and searches quickly."""
    gymnasium, _, _ = _library()
    spec = gymnasium.spec(f"BabyAI-{level}-{_REVISED.get(level, 'v0')}")
    env = gymnasium.make(spec, disable_env_checker=True).unwrapped
    env._gen_grid = partial(_build, env)
    env.gen_obs = dict
    env.check_objs_reachable = partial(_reaches_all, env)
    return env


def _build(env: Any, width: int, height: int) -> None:
    """What minigrid does here, less a line on standard output for every attempt it rejects."""
    _, grid, rejection = _library()
    while True:
        try:
            grid._gen_grid(env, width, height)
            env.gen_mission()
            env.validate_instrs(env.instrs)
            break
        except (RecursionError, rejection):
            continue
    env.surface = env.mission = env.instrs.surface(env)


def _reaches_all(env: Any, raise_exc: bool = True) -> bool:
    """What minigrid asks of many layouts, on its flat list of cells: can the agent get at everything, nothing moved?"""
    cells, width = env.grid.grid, env.grid.width
    x, y = env.agent_pos
    reached: set[int] = set()
    # The outer wall keeps the search inside the grid.
    waiting = [int(y) * width + int(x)]
    while waiting:
        place = waiting.pop()
        if place not in reached:
            reached.add(place)
            if cells[place] is None or cells[place].type == "door":
                waiting += (place + 1, place - 1, place + width, place - width)
    found = all(item is None or place in reached or item.type == "wall" for place, item in enumerate(cells))
    if raise_exc and not found:
        raise _library()[2]("unreachable object")
    return found


def generate(level: str, seed: int) -> Layout:
    """The layout that minigrid makes of a seed."""
    env = make(level)
    env.reset(seed=seed)
    return read(env, level)


@lru_cache(maxsize=1024)
def remembered(level: str, seed: int) -> Layout:
    return generate(level, seed)


def read(env: Any, level: str) -> Layout:
    """The present state of one of minigrid's environments."""
    things: list[Thing] = []
    doors: list[int] = []
    numbers: dict[int, int] = {}

    def enter(item: Any) -> int:
        inside = NOTHING if item.contains is None else enter(item.contains)
        numbers[id(item)] = len(things)
        things.append(Thing(item.type, item.color, inside))
        is_door = item.type == "door"
        doors.append((LOCKED if item.is_locked else OPEN if item.is_open else CLOSED) if is_door else OPEN)
        return numbers[id(item)]

    stride = int(env.width) + 2 * MARGIN
    cells = [WALL] * (stride * (env.height + 2 * MARGIN))

    def place(x: Any, y: Any) -> int:
        return int(y + MARGIN) * stride + int(x + MARGIN)

    for index, item in enumerate(env.grid.grid):
        if item is None or item.type != "wall":
            here = place(index % env.width, index // env.width)
            cells[here] = EMPTY if item is None else enter(item)
    carried = env.carrying
    return Layout(
        level=level,
        mission=env.mission,
        held=NOTHING if carried is None else enter(carried),
        held_from=NOTHING if carried is None else place(*carried.init_pos),
        goal=_Reader(numbers).goal(env.instrs),
        stride=stride,
        cells=tuple(cells),
        things=tuple(things),
        doors=tuple(doors),
        start=place(*env.agent_pos),
        facing=int(env.agent_dir),
        most_steps=int(env.max_steps),
    )


class _Reader:
    """Turns minigrid's instructions into goals."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers
        self._marks = 0

    def goal(self, instruction: Any) -> Goal:
        kind = type(instruction).__name__
        if kind in ("BeforeInstr", "AfterInstr"):
            parts = self._part(instruction.instr_a), self._part(instruction.instr_b)
            backwards = kind == "AfterInstr"
            first, second = reversed(parts) if backwards else parts
            return Ordered(first, second, bool(instruction.strict), backwards, self._take(1))
        return self._part(instruction)

    def _part(self, instruction: Any) -> Clause | Both:
        if type(instruction).__name__ == "AndInstr":
            return Both((self._clause(instruction.instr_a), self._clause(instruction.instr_b)), self._take(2))
        return self._clause(instruction)

    def _take(self, count: int) -> int:
        self._marks += count
        return self._marks - count

    def _clause(self, instruction: Any) -> Clause:
        kind, mark = type(instruction).__name__, self._take(1)
        if kind == "GoToInstr":
            return Clause("go to", *self._described(instruction.desc), False, mark)
        strict = bool(instruction.strict)
        if kind == "OpenInstr":
            return Clause("open", *self._described(instruction.desc), strict, mark)
        if kind == "PickupInstr":
            return Clause("pick up", *self._described(instruction.desc), strict, mark)
        if kind == "PutNextInstr":
            moved, fixed = self._described(instruction.desc_move), self._described(instruction.desc_fixed)
            return Clause("put", *moved, strict, mark, *fixed)
        raise NotImplementedError(f"babyai: minigrid's instruction {kind} is not known")

    def _described(self, desc: Any) -> tuple[frozenset[int], Phrase]:
        # "A grey object" matches the walls too, which are no things.
        things = frozenset(self._numbers[id(item)] for item in desc.obj_set if item.type != "wall")
        return things, Phrase(desc.type or "", desc.color or "", desc.loc or "", len(desc.obj_set) > 1)
