"""A round is answered once. Whoever could ask for it again under other conditions would get two answers that hide the same
trajectories, and the noise in them would no longer be what was accounted for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedse.errors import AnsweredAlready, RunConflict
from fedse.privacy.secure_sum import asked_for
from fedse.storage import atomic
from fedse.types import RoundTask, Vector

_TASKS, _LAST, _SENT = "tasks", "last", "sent"


class AnsweredOnce:
    """A file with what each round was asked for, and with what left last."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self, task: RoundTask) -> None:
        """Refuse a round that was answered to another task. Raises `AnsweredAlready`."""
        tasks, _, _ = self._read()
        if tasks.get(str(task.round), asked_for(task)) != asked_for(task):
            raise AnsweredAlready(
                f"the hub asks for {task.name} with another adapter than the one that this site has answered it to: noise "
                "is accounted for once in a round, so nothing was done."
            )

    def first(self, vector: Vector, task: RoundTask) -> Vector:
        """What leaves: this vector, on disk before it is handed out, or what has left for the same task."""
        self.check(task)
        tasks, last, sent = self._read()
        if last == task.round and sent is not None:
            return sent
        tasks[str(task.round)] = asked_for(task)
        with atomic.new_file(self._path) as part:
            save_file({_SENT: vector}, part, {_TASKS: json.dumps(tasks), _LAST: str(task.round)})
        return vector

    def _read(self) -> tuple[dict[str, str], int, Vector | None]:
        if not self._path.exists():
            return {}, 0, None
        try:
            with safe_open(self._path, framework="numpy") as file:
                about = file.metadata()
                sent = np.asarray(file.get_tensor(_SENT), dtype=np.float32)
                return dict(json.loads(about[_TASKS])), int(about[_LAST]), sent
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise RunConflict(
                f"{self._path} is damaged, with what this client has sent under noise: restore it from a copy. Without it a "
                "round could be answered twice, which would tell more than the run accounts for."
            ) from error
