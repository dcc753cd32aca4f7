"""A round is answered once. Whoever could ask for it again under other conditions would get two answers that hide the same
trajectories, and the noise in them would no longer be what was accounted for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedse.errors import AnsweredAlready, RunConflict
from fedse.privacy.secure_sum import asked_for
from fedse.storage import atomic
from fedse.types import RoundTask, Vector

_ASKED, _LAST, _SENT = "asked", "last", "sent"


class AnsweredOnce:
    """A file with the round that was answered last, the task it was, and what left."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self, task: RoundTask) -> None:
        """Refuse a round that was answered to another task, or before the last one. Raises `AnsweredAlready`."""
        last, digest, _ = self._read()
        if task.round < last or (task.round == last and digest != asked_for(task)):
            raise AnsweredAlready(
                f"{task.name} is asked for, and round {last} has been answered already, to another task or after it: noise "
                "is accounted for once in a round, so nothing was done. Begin a run with another `name` to go back."
            )

    def first(self, vector: Vector, task: RoundTask) -> Vector:
        """What leaves: this vector, on disk before it is handed out, or what has left for the same task."""
        self.check(task)
        last, _, sent = self._read()
        if last == task.round and sent is not None:
            return sent
        with atomic.new_file(self._path) as part:
            save_file({_SENT: vector}, part, {_ASKED: asked_for(task), _LAST: str(task.round)})
        return vector

    def _read(self) -> tuple[int, str, Vector | None]:
        if not self._path.exists():
            return 0, "", None
        try:
            with safe_open(self._path, framework="numpy") as file:
                about = file.metadata()
                sent = np.asarray(file.get_tensor(_SENT), dtype=np.float32)
                return int(about[_LAST]), about[_ASKED], sent
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise RunConflict(
                f"{self._path} is damaged, with what this client has sent under noise: restore it from a copy. Without it a "
                "round could be answered twice, which would tell more than the run accounts for."
            ) from error
