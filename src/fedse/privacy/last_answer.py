"""What a site sent last, on its own disk: a round that has to be answered once is repeated with the same bytes only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedse.errors import RunConflict
from fedse.storage import atomic
from fedse.types import RoundTask

_ROUND, _ASKED, _SENT = "round", "asked", "sent"


class LastAnswer:
    """The round, a digest of the task, and what left."""

    def __init__(self, path: Path, damaged: str) -> None:
        """`damaged`: what a damaged file held, and what to do."""
        self._path = path
        self._damaged = damaged

    def other(self, task: RoundTask) -> int | None:
        """The round that was answered last, if this one comes before it or was answered to another task."""
        number, digest, _ = self._read()
        return number if task.round < number or (task.round == number and digest != asked_for(task)) else None

    def again(self, task: RoundTask) -> npt.NDArray[Any] | None:
        """What has left for the same task."""
        number, digest, sent = self._read()
        return sent if (number, digest) == (task.round, asked_for(task)) else None

    def keep(self, task: RoundTask, sent: npt.NDArray[Any]) -> None:
        with atomic.new_file(self._path) as part:
            save_file({_SENT: sent}, part, {_ROUND: str(task.round), _ASKED: asked_for(task)})

    def _read(self) -> tuple[int, str, npt.NDArray[Any] | None]:
        if not self._path.exists():
            return 0, "", None
        try:
            with safe_open(self._path, framework="numpy") as file:
                about = file.metadata()
                return int(about[_ROUND]), about[_ASKED], np.asarray(file.get_tensor(_SENT))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise RunConflict(f"{self._path} is damaged, with {self._damaged}") from error


def asked_for(task: RoundTask) -> str:
    """A digest of everything that an update depends on."""
    given = [(name, key, tensors[key]) for name, tensors in sorted(task.shared.items()) for key in sorted(tensors)]
    plain: dict[str, Any] = {
        "task": task.name,
        "participants": list(task.participants),
        "layout": [[name, list(shape)] for name, shape in task.layout],
        "contributed": list(task.contributed),
        "library": list(task.library),
        "shared": [[name, key, list(tensor.shape)] for name, key, tensor in given],
    }
    content = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for values in [task.vector, *task.library.values(), *(tensor for _, _, tensor in given)]:
        content.update(np.ascontiguousarray(values, dtype=np.float32).tobytes())
    return content.hexdigest()
