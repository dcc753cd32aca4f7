"""TensorBoard: success, learning and cost over rounds as scalars, in the run's folder or in one of your own.

`tensorboard --logdir runs` shows every run below a folder. Needs the extra `tensorboard` (tensorboardX; TensorBoard itself
is needed to look at it only).
"""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path
from typing import Any

from fedse.events import Event
from fedse.plugins import FilePath, PluginOptions
from fedse.trackers.outside import require
from fedse.trackers.scalars import Scalars


class TensorBoardOptions(PluginOptions):
    """Where it is written."""

    folder: FilePath | None = None
    """Folder for TensorBoard's files; a folder `tensorboard` in the run's when not set."""


class TensorBoard:
    """Scalars for TensorBoard."""

    Options = TensorBoardOptions

    def __init__(self, run: Path, folder: Path | None = None) -> None:
        require("tensorboardX", "tensorboard")
        self._scalars = Scalars()
        self._folder = folder.expanduser() / run.name if folder else run / "tensorboard"

    @cached_property
    def _writer(self) -> Any:
        """Made when there is something to write: a run that is refused leaves nothing behind."""
        from tensorboardX import SummaryWriter

        # Its own file names tell seconds apart, and whoever goes on within one would overwrite what was there.
        return SummaryWriter(str(self._folder), flush_secs=10, filename_suffix=f".{time.time_ns()}")

    def record(self, event: Event) -> None:
        for round, values in self._scalars.of(event).items():
            for name, value in values.items():
                self._writer.add_scalar(name, value, round)

    def close(self) -> None:
        """Its writer works in a thread of its own, which knows only here that there is no more."""
        if "_writer" in vars(self):
            self._writer.close()
