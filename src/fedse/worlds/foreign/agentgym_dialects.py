"""How AgentGym's environment servers differ from one another: names of fields, success rules, turn limits.

Read off the servers and clients of AgentGym at commit 3ef9235.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Dialect:
    """One kind of server. The defaults are what most of them do."""

    about: str
    """What the agent is told; the first observation tells the rest."""
    turn_limit: int
    identity: str = "id"
    """Name of the field that says which of the server's environments is meant."""
    task: str = "data_idx"
    reset: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a reset."""
    observation: str = "observation"
    reward: str = "reward"
    success: float = 0.99
    """Least reward of a success. AgentGym keeps this rule beside the environments, not in them."""
    preface: str = ""
    """Field of the answer to a reset that belongs before the first observation."""
    lists_actions: bool = False
    """Whether there is an `available_actions` to ask."""
    actions: tuple[str, ...] = ()
    """Actions that can be tried at any time."""


DIALECTS = {
    "babyai": Dialect(
        "You are in a room and have a goal. Actions: turn right, turn left, move forward, go to <object> <number>, pick up "
        "<object> <number>, go through <door> <number>, toggle and go through <door> <number>, toggle.",
        20,
        reward="score",
        # Slower solutions pay less, and nothing else pays.
        success=1e-9,
        actions=("turn left", "turn right", "move forward", "toggle"),
    ),
    "textcraft": Dialect(
        "You craft an item from the recipes you are given. Actions: get <number> <item>, inventory, "
        "craft <number> <item> using <number> <ingredient>, ...",
        20,
        actions=("inventory",),
    ),
    "webshop": Dialect(
        "You shop on a web site as an instruction asks. Actions: search[<keywords>], click[<button on the page>].",
        10,
        identity="env_idx",
        task="session_id",
        observation="state",
        lists_actions=True,
        actions=("click[search]",),
    ),
    "maze": Dialect(
        "You walk through a maze to its goal. Down adds 1 to the first number of a position, right to the second.",
        15,
        task="game",
        actions=("move up", "move down", "move left", "move right"),
    ),
    "wordle": Dialect(
        "You find a hidden word of five letters in six guesses. A guess is written with blanks: s h i r e. Each letter is "
        "marked g (right place), y (elsewhere in the word) or b (not in the word).",
        8,
        task="seed",
        actions=("s h i r e", "p a n i c", "f e l o n"),
    ),
    "alfworld": Dialect(
        "You do a task in a household.",
        30,
        task="game",
        reset={"world_type": "Text"},
        lists_actions=True,
        actions=("look", "inventory"),
    ),
    "sciworld": Dialect(
        "You do an experiment in a small simulated world.",
        30,
        reward="score",
        success=99.0,
        preface="task_description",
        actions=("look around", "inventory", "wait"),
    ),
}
