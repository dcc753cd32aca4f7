"""An agent that does what a hint says, and goes by its table where there is none."""

from __future__ import annotations

from fedse.policies.table import TablePolicy

MARK = "Hint: A good next action is: "


class HintReader(TablePolicy):
    def answer(self, turn: str, draw: float, temperature: float) -> str:
        _, mark, action = turn.partition(MARK)
        return f"Action: {action}" if mark else super().answer(turn, draw, temperature)
