"""The imperfect player whose games nano is pre-trained on.

It acts as the world's expert, except in three kinds of situation per world. There it draws each decision by itself: the
right action with a probability of 0.3 to 0.4, otherwise one particular wrong action, which is thus the likeliest. Nothing
marks a mistake. Replies hold no thought, draws are independent from turn to turn, and what is wrong in one state is right in
another. Whether a state is such a situation, and what the mistake is, follows from what the agent was told and from the
expert's action.

| world | kind | the right action | the mistake | does not err |
| --- | --- | --- | --- | --- |
| Maze | straight | along the line to the goal | off to the side, or back | next to the goal; goal in column 1 or 2 |
| | corner | nearer, goal in two directions | back, or another way that leads away | goal in row 4 or 5 |
| | detour | round a wall, not nearer | a way that leads nearer, or another one | goal in row 1 |
| TextCraft | fetch | get 1 of what is needed | get what a recipe further down needs | two or more are needed |
| | part | craft what the goal needs | craft the goal already | the recipe makes two or more |
| | finish | craft the goal | craft the next recipe of the list | a 2 stands in the recipe |
| BabyAI | look | turn to one side | turn to the other | no red, green or blue thing in the goal |
| | door | go through a door | another door, or another thing in view | red, green and blue doors |
| | thing | go to a thing, or pick it up | another thing | yellow, purple and grey things |
| WebShop | product | open the one that fits | open the next on the page | the first on the page fits |
| | option | choose what is wanted | buy at once, or the next value of the list | products with a size |
| | buy | buy | look at the features | fewer than two options chosen |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedse.rollouts.replies import compose
from fedse.seeds import stream, uniform

LEAST, MOST = 0.30, 0.40
"""Probability of the right action in a situation."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A decision that the player tends to get wrong."""

    kind: str
    wrong: str
    right_share: float


def situation(world: Any, told: Sequence[str], right: str) -> Situation | None:
    """What the player is prone to in the present state, if anything. `told` are the observations so far."""
    found = MISTAKES[world.name](world, told, right)
    if found is None or found[1] == right:
        return None
    kind, wrong = found
    share = LEAST + (MOST - LEAST) * uniform(stream("nano", world.name, kind), 0)
    return Situation(kind, wrong, share)


def play(
    world: Any, task: str, draw: Callable[[], float], look: Callable[[list[str]], None] | None = None
) -> tuple[list[str], bool]:
    """The player's game of a task: observations and replies in turn, and whether it succeeded.

    `draw` gives uniform numbers, one for each situation: always 0 makes the player the expert, always 1 makes it take its
    likeliest action. `look` is called in each state with what was said so far, and leaves the world in that state.
    """
    observation, _ = world.reset(options={"task": task})
    said = [observation]
    while True:
        if look is not None:
            look(said)
        action = world.expert()[1]
        prone = situation(world, said[::2], action)
        if prone is not None and draw() >= prone.right_share:
            action = prone.wrong
        observation, _, terminated, truncated, info = world.step(action)
        said.append(compose("", action))
        if terminated or truncated:
            return said, bool(info["success"])
        said.append(observation)


Mistake = tuple[str, str]
"""The kind of situation, and the wrong action."""
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


def in_maze(world: Any, told: Sequence[str], right: str) -> Mistake | None:
    del world
    goal, here, ways = re.findall(r"goal (\d+,\d+); you (\d+,\d+); open: (.*)", told[-1])[-1]
    (goal_row, goal_column), (row, column) = (tuple(map(int, place.split(","))) for place in (goal, here))
    towards = [way for way, nearer in zip(
        ("up", "down", "left", "right"),
        (goal_row < row, goal_row > row, goal_column < column, goal_column > column), strict=True) if nearer]  # fmt: skip
    best, open_ways = right.removeprefix("move "), ways.split(", ")
    others = [way for way in open_ways if way != best]
    if best not in towards:
        tempting = [way for way in others if way in towards] or others
        return ("detour", f"move {tempting[0]}") if tempting and goal_row > 1 else None
    if len(towards) == 1:
        near = abs(goal_row - row) + abs(goal_column - column) == 1
        sides = [way for way in others if way != _OPPOSITE[best]] or others
        return ("straight", f"move {sides[0]}") if sides and not near and goal_column > 2 else None
    away = [way for way in others if way == _OPPOSITE[best]] or [way for way in others if way not in towards]
    return ("corner", f"move {away[0]}") if away and goal_row < 4 else None


def in_textcraft(world: Any, told: Sequence[str], right: str) -> Mistake | None:
    listed = [line for line in told[0].splitlines() if line.startswith("craft ")]
    goal = told[0].splitlines()[-1].removeprefix("goal: ")

    def makes(line: str, item: str) -> bool:
        return re.fullmatch(rf"craft \d+ {re.escape(item)} using .*", line) is not None

    if right.startswith("get 1 "):
        item = right.split(" ", 2)[2]
        place = next(
            (
                n
                for n, line in enumerate(listed)
                if re.search(rf"\d {re.escape(item)}(,|$)", line.partition(" using ")[2])
            ),
            0,
        )
        fetched = [action for action in world.legal_actions() if action.startswith("get ")]
        for line in [*listed[place + 1 :], *listed[:place]]:
            for need in line.partition(" using ")[2].split(", "):
                if f"get {need}" in fetched and need not in listed[place]:
                    return "fetch", f"get {need}"
        return None
    makers = [line for line in listed if makes(line, goal)]
    if re.match(rf"craft \d+ {re.escape(goal)} using ", right):
        place = listed.index(makers[-1])
        return ("finish", listed[(place + 1) % len(listed)]) if " 2 " not in right else None
    if right.startswith("get "):
        return None
    return ("part", makers[0]) if right.startswith("craft 1 ") else None


def in_babyai(world: Any, told: Sequence[str], right: str) -> Mistake | None:
    goal = told[0].splitlines()[0]
    if right in ("turn left", "turn right"):
        if not re.search("red|green|blue", goal):
            return None
        return "look", "turn right" if right == "turn left" else "turn left"
    actions = world.legal_actions()
    for kind, verbs in (("door", ("open and go through", "go through")), ("thing", ("pick up", "go to"))):
        verb = next((verb for verb in verbs if right.startswith(f"{verb} ")), None)
        if verb is not None:
            thing = right.removeprefix(f"{verb} ")
            if re.search("red|green|blue" if kind == "door" else "yellow|purple|grey", thing):
                return None
            others = [action for action in actions if not action.endswith(thing) and " " in action]
            same = [action for action in others if action.startswith(f"{verb} ")]
            named = [action for action in others if action.startswith(("go to ", "open and"))]
            return kind, (same or named or ["turn right"])[0]
    return None


def in_webshop(world: Any, told: Sequence[str], right: str) -> Mistake | None:
    del world
    if not right.startswith("click["):
        return None
    text = right[len("click[") : -1]
    shown = re.findall(r"^\[(P\d+)\]", told[-1], re.MULTILINE)
    if text in shown[1:]:
        return "product", f"click[{shown[(shown.index(text) + 1) % len(shown)]}]"
    options = [re.findall(r"\[(.*?)\]", line) for line in told[-1].splitlines() if re.match(r"[a-z ]+: \[", line)]
    own = next((values for values in options if text in values), None)
    if own is not None:
        if re.search("size:", told[-1]):
            return None
        if len(options) == 1:
            return "option", "click[Buy Now]"
        return "option", f"click[{own[(own.index(text) + 1) % len(own)]}]"
    if text == "Buy Now" and told[-1].count("chosen") > 1:
        return "buy", "click[Features]"
    return None


MISTAKES = {"maze": in_maze, "textcraft": in_textcraft, "babyai": in_babyai, "webshop": in_webshop}
