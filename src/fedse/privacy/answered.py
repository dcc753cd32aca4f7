"""A round is answered once. Whoever could ask for it again under other conditions would get two answers that hide the same
trajectories, and the noise in them would no longer be what was accounted for."""

from __future__ import annotations

from pathlib import Path

from fedse.errors import AnsweredAlready
from fedse.privacy.last_answer import LastAnswer
from fedse.types import RoundTask, Vector


class AnsweredOnce:
    """Lets one answer to each round leave a site."""

    def __init__(self, path: Path) -> None:
        self._last = LastAnswer(
            path,
            "what this client has sent under noise: restore it from a copy. Without it a round could be answered twice, "
            "which would tell more than the run accounts for.",
        )

    def check(self, task: RoundTask) -> None:
        """Refuse a round that was answered to another task, or before the last one. Raises `AnsweredAlready`."""
        if (number := self._last.other(task)) is not None:
            raise AnsweredAlready(
                f"{task.name} is asked for, and round {number} has been answered already, to another task or after it: "
                "noise is accounted for once in a round, so nothing was done. Begin a run with another `name` to go back."
            )

    def first(self, vector: Vector, task: RoundTask) -> Vector:
        """What leaves: this vector, on disk before it is handed out, or what has left for the same task."""
        self.check(task)
        if (sent := self._last.again(task)) is not None:
            return sent
        self._last.keep(task, vector)
        return vector
