"""A row of lamps: a press turns a lamp and its neighbours on or off, and all have to be out."""

from __future__ import annotations

import itertools
import zlib
from typing import Literal

from fedse import PluginOptions, Task, Turn, World
from fedse.errors import BadInput

TENTHS = {"train": range(6), "validation": range(6, 8), "test": range(8, 10)}


class Lamps(World):
    """Put out all lamps of a row; a press turns a lamp and its neighbours."""

    name = "lamps"
    version = 1

    class Options(PluginOptions):
        lamps: Literal[6, 7, 9] = 9
        """Number of lamps. Rows of 8 are left out: some of theirs cannot be put out."""

    options: Options

    @property
    def rules(self) -> str:
        return (
            f"There are {self.options.lamps} lamps in a row; * is on, . is off. Pressing a lamp turns it and its neighbours "
            "from on to off and from off to on. Put all of them out.\nReply in two lines:\n"
            f"Thought: <reason>\nAction: press <number from 1 to {self.options.lamps}>"
        )

    @property
    def turn_limit(self) -> int:
        return 2 * self.options.lamps

    def tasks(self, split):
        # A hash of the pattern decides about its split, so no pattern is in two of them.
        patterns = ("".join(signs) for signs in itertools.product(".*", repeat=self.options.lamps))
        lit = (pattern for pattern in patterns if "*" in pattern)
        return [Task(pattern) for pattern in lit if zlib.crc32(pattern.encode()) % 10 in TENTHS[split]]

    def begin(self, task):
        if len(task) != self.options.lamps or not set(task) <= set(".*") or "*" not in task:
            raise BadInput(f"lamps: there is no task '{task}'; one is '{self.tasks('test')[0].id}'.")
        self.row = task
        return self.row

    def act(self, action):
        if action not in self.legal_actions():
            return Turn(f"Press a lamp, such as `press 1`.\n{self.row}", valid=False)
        self.row = pressed(self.row, int(action.removeprefix("press ")) - 1)
        dark = "*" not in self.row
        return Turn(self.row, done=dark, success=dark, score=float(dark))

    def legal_actions(self):
        return [f"press {number + 1}" for number in range(self.options.lamps)]

    def expert(self):
        places = range(self.options.lamps)
        for count in places:
            for chosen in itertools.combinations(places, count + 1):
                row = self.row
                for place in chosen:
                    row = pressed(row, place)
                if "*" not in row:
                    return f"{len(chosen)} presses are enough.", f"press {chosen[0] + 1}"
        raise AssertionError(self.row)

    def trivial(self, draw):
        actions = self.legal_actions()
        return actions[int(draw * len(actions))]

    def drawing(self):
        return self.row

    def state(self):
        return self.row

    def set_state(self, state):
        self.row = state


def pressed(row: str, place: int) -> str:
    """The row after a press."""
    return "".join(".*"[(sign == ".") == (abs(number - place) <= 1)] for number, sign in enumerate(row))
