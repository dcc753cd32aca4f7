"""Does a world keep its promises? For authors of worlds, and for our own.

    findings = check(lambda: MyWorld(size=3))

Every finding has a name, whether it passed, and a sentence that says what was seen. Disjoint splits and an expert that
solves everything are demanded of every world, except one whose option `mode` is `original`: there they are reported.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from fedse.errors import BadInput
from fedse.plugins import resolve
from fedse.plugins.promises import Finding, NotMade, demand, expected, try_promises
from fedse.types import SPLITS
from fedse.worlds.check_made import made_tasks
from fedse.worlds.hints import LEVELS
from fedse.worlds.reference import ceiling
from fedse.worlds.transcripts import INVALID, digest, play_on, sample, scripted_action, some_tasks, transcript
from fedse.worlds.world import World

WorldFactory = Callable[[], World]
_EXPERT_TASKS = 200
_CHILD = "import sys; from fedse.worlds.transcripts import digest_in_child; digest_in_child(*sys.argv[1:])"


def check(world_factory: WorldFactory, only: Collection[str] = ()) -> list[Finding]:
    """Try every promise, or only those with these names, on fresh instances of the world."""
    states = random.getstate(), np.random.get_state()
    try:
        return try_promises(_PROMISES, world_factory, only)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


# Promises


def _described(world_factory: WorldFactory) -> str:
    world = world_factory()
    demand(bool(world.name) and world.version >= 1, "`name` must be a text and `version` a number from 1 up")
    demand(bool(world.rules.strip()), "the rules are empty")
    demand("Action:" in world.rules, "the rules do not show the form of a reply: 'Action:' is missing")
    demand(world.turn_limit >= 1, f"the turn limit is {world.turn_limit}")
    return f"{world.name} version {world.version}, rules of {len(world.rules)} characters, {world.turn_limit} turns"


def _splits(world_factory: WorldFactory) -> str:
    world, other = world_factory(), world_factory()
    ids = {split: [task.id for task in world.tasks(split)] for split in SPLITS}
    for split in SPLITS:
        demand(bool(ids[split]), f"the {split} split is empty")
        demand(len(set(ids[split])) == len(ids[split]), f"the {split} split lists a task twice")
        demand(
            list(world.tasks(split)) == list(other.tasks(split)), f"two instances list the {split} split differently"
        )
    shared = {
        f"{one} and {two}": len(set(ids[one]) & set(ids[two]))
        for place, one in enumerate(SPLITS)
        for two in SPLITS[place + 1 :]
    }
    sizes = ", ".join(f"{len(ids[split])} {split}" for split in SPLITS)
    overlap = ", ".join(f"{names} share {count} tasks" for names, count in shared.items() if count)
    demand(not overlap or _is_original(world), overlap)
    return f"{sizes}; {overlap or 'no task in two splits'}"


def _is_original(world: World) -> bool:
    return getattr(world.options, "mode", "clean") == "original"


def _same_again(world_factory: WorldFactory) -> str:
    one, two = world_factory(), world_factory()
    tasks = [task.id for task in some_tasks(one)]
    for task, between in zip(tasks, reversed(tasks), strict=True):
        alone = transcript(one, task)
        demand(transcript(two, task) == alone, f"task {task}: two instances give different transcripts")
        first, _ = one.reset(options={"task": task})
        woven: list[tuple[Any, ...]] = [(first, one.rules, one.turn_limit)]
        for answer in play_on(one, task, 0):
            woven.append(answer)
            two.reset(options={"task": between})
            two.step(INVALID[0])
        demand(woven == alone, f"task {task}: playing another instance in between changes the transcript")
    return f"{len(tasks)} tasks, twice and interleaved with another instance"


def _same_elsewhere(world_factory: WorldFactory) -> str:
    world = world_factory()
    path = f"{type(world).__module__}:{type(world).__qualname__}"
    try:
        importable = resolve("world", path) is type(world)
    except Exception:
        importable = False
    demand(importable, f"{path} cannot be imported by another process; put the class at the top level of a module")
    expected = digest(world)
    for hash_seed in ("0", "4242"):
        answer = subprocess.run(
            [sys.executable, "-c", _CHILD, path, json.dumps(world.options.model_dump(mode="json"))],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        demand(answer.returncode == 0, f"another process fails: {answer.stderr.strip().splitlines()[-1:]}")
        demand(answer.stdout == expected, f"another process with PYTHONHASHSEED={hash_seed} differs or prints")
    return "two processes with different hash seeds give the same tasks and transcripts"


def _no_global_randomness(world_factory: WorldFactory) -> str:
    digests = set()
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        before = random.getstate(), repr(np.random.get_state())
        digests.add(digest(world_factory()))
        demand(random.getstate() == before[0], "the world draws from or reseeds `random`")
        demand(repr(np.random.get_state()) == before[1], "the world draws from or reseeds `numpy.random`")
    demand(len(digests) == 1, "transcripts depend on the seed of `random` or `numpy.random`")
    return "global generators are neither used nor changed"


def _silent(world_factory: WorldFactory) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        digest(world_factory())
    printed = out.getvalue() + err.getvalue()
    demand(not printed, f"the world prints: {printed[:60]!r}")
    return "nothing is printed"


def _branches(world_factory: WorldFactory) -> str:
    world, tasks = world_factory(), some_tasks(world_factory())
    for task in tasks:
        world.reset(options={"task": task.id})
        for turn in range(world.turn_limit):
            saved = world.save()
            kept = copy.deepcopy(saved)
            demand(_is_plain(saved), "the saved state holds more than plain values")
            onward = list(play_on(world, task.id, turn))
            demand(saved == kept, f"task {task.id}: playing on changes a saved state")
            for instance in (world, world_factory()):
                instance.restore(saved)
                again = list(play_on(instance, task.id, turn))
                demand(again == onward, f"task {task.id}: play after restore differs from turn {turn} on")
            if len(onward) == 1:
                break
            world.restore(saved)
            world.step(scripted_action(world, task.id, turn))
    return f"{len(tasks)} tasks continue alike after restore, in the same and in another instance"


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, float, str, bytes)


def _expert(world_factory: WorldFactory) -> str:
    world = world_factory()
    if not world.has_expert:
        with expected(BadInput, "expert() of a world without one"):
            world.reset(options={"task": world.tasks("train")[0].id})
            world.expert()
        raise NotMade("this world has none, so its ceiling is not known")
    rates = {}
    for split in SPLITS:
        tasks = sample(world.tasks(split), _EXPERT_TASKS)
        rates[split] = ceiling(world, tasks), len(tasks)
        world.reset(options={"task": tasks[0].id})
        thought, action = world.expert()
        demand(bool(thought.strip()) and bool(action.strip()), "the expert's thought or action is empty")
    told = ", ".join(f"{rate:.1%} of {count} {split} tasks" for split, (rate, count) in rates.items())
    demand(all(rate == 1 for rate, _ in rates.values()) or _is_original(world), f"the expert solves {told}")
    return f"the expert solves {told}"


def _invalid_actions(world_factory: WorldFactory) -> str:
    world = world_factory()
    for action in INVALID:
        for task in some_tasks(world, 2):
            world.reset(options={"task": task.id})
            turns = 0
            while turns < world.turn_limit:
                turns += 1
                observation, _, terminated, truncated, info = world.step(action)
                demand(info["valid"] is False, f"the action {action!r} counts as valid")
                demand(bool(observation.strip()), f"the action {action!r} gets no answer")
                if terminated or truncated:
                    break
            demand(terminated or truncated, f"only invalid actions, and no end after {world.turn_limit} turns")
            demand(turns == world.turn_limit, f"only invalid actions, and an end after {turns} turns")
            demand(info["success"] is False, "an episode of invalid actions is a success")
    return f"answered, cost a turn, and the episode ends at its {world.turn_limit} turns"


def _legal_actions(world_factory: WorldFactory) -> str:
    world, tried = world_factory(), 0
    for task in some_tasks(world):
        world.reset(options={"task": task.id})
        over = False
        while not over:
            here = world.save()
            for action in world.legal_actions() or []:
                demand(world.step(action)[4]["valid"] is True, f"task {task.id}: legal action {action!r} is not valid")
                tried += 1
                world.restore(here)
            for before, after in world.open_actions():
                action = f"{before}two words{after}"
                demand(world.step(action)[4]["valid"] is True, f"task {task.id}: open action {action!r} is not valid")
                world.restore(here)
            _, _, terminated, truncated, info = world.step(
                world.expert()[1] if world.has_expert else world.trivial(0.5)
            )
            demand(info["valid"] is True or not world.has_expert, f"task {task.id}: the expert's action is not valid")
            over = terminated or truncated
    if not tried:
        raise NotMade("not listed by this world")
    return f"{tried} listed actions are valid"


def _hints(world_factory: WorldFactory) -> str:
    world, other = world_factory(), world_factory()
    if not world.has_hints:
        with expected(BadInput, "hint() of a world without hints"):
            world.reset(options={"task": world.tasks("train")[0].id})
            world.hint(LEVELS[0])
        raise NotMade("this world gives none")
    given = 0
    for task in some_tasks(world):
        world.reset(options={"task": task.id})
        for turn in range(world.turn_limit):
            here = world.save()
            hints = [world.hint(level) for level in LEVELS]
            demand(world.save() == here, f"task {task.id}: asking for a hint changes the state")
            demand(all(hint.strip() for hint in hints), f"task {task.id}: a hint is empty")
            demand(
                all(map(world.observation_space.contains, hints)), f"outside the observation space: one of {hints!r}"
            )
            demand(len(set(hints)) == len(LEVELS), f"task {task.id}: two levels give the same hint: {hints!r}")
            other.restore(here)
            demand([other.hint(level) for level in LEVELS] == hints, f"task {task.id}: two instances give other hints")
            given += len(hints)
            _, _, terminated, truncated, _ = world.step(scripted_action(world, task.id, turn))
            if terminated or truncated:
                break
    for level in (LEVELS[0] - 1, LEVELS[-1] + 1):
        with expected(BadInput, f"a hint of level {level}"):
            world.reset(options={"task": world.tasks("train")[0].id})
            world.hint(level)
    return f"{given} hints, the same in another instance, and none changes the state"


def _errors(world_factory: WorldFactory) -> str:
    world = world_factory()
    with expected(RuntimeError, "step() before reset()"):
        world.step(INVALID[1])
    with expected(BadInput, "an unknown task id"):
        world.reset(options={"task": "no such task"})
    task = world.tasks("train")[0].id
    transcript(world, task)
    with expected(RuntimeError, "step() after the end"):
        world.step(INVALID[1])
    return "an unknown task is a BadInput; a step outside an episode is a RuntimeError"


def _in_spaces(world_factory: WorldFactory) -> str:
    world = world_factory()
    for task in some_tasks(world):
        for observation, *_ in transcript(world, task.id):
            demand(world.observation_space.contains(observation), f"outside the observation space: {observation!r}")
        world.reset(options={"task": task.id})
        experts = [world.expert()[1]] if world.has_expert else []
        for action in (*experts, world.trivial(0.0), world.trivial(1 - 1e-9)):
            demand(world.action_space.contains(action), f"outside the action space: {action!r}")
    return "observations and actions are texts of the declared spaces"


_PROMISES: dict[str, Callable[[WorldFactory], str]] = {
    "description": _described,
    "splits": _splits,
    "same task, same episode": _same_again,
    "same in another process": _same_elsewhere,
    "no global random state": _no_global_randomness,
    "silent": _silent,
    "save and restore": _branches,
    "expert": _expert,
    "invalid actions and turn limit": _invalid_actions,
    "legal actions": _legal_actions,
    "hints": _hints,
    "made tasks": made_tasks,
    "errors": _errors,
    "spaces": _in_spaces,
}
