"""TensorBoard: success, learning and cost over rounds as scalars, in the run's folder or in one of your own.

`tensorboard --logdir runs` shows every run below a folder. Needs the extra `tensorboard` (tensorboardX; TensorBoard itself
is needed to look at it only).
"""

from __future__ import annotations

import time
from collections import Counter
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedse.errors import BadInput
from fedse.events import ClientFinished, EpisodesPlayed, Evaluated, Event, RoundFinished, RoundStarted
from fedse.plugins import FilePath, PluginOptions


class TensorBoardOptions(PluginOptions):
    """Where it is written."""

    folder: FilePath | None = None
    """Folder for TensorBoard's files; a folder `tensorboard` in the run's when not set."""


class TensorBoard:
    """Scalars for TensorBoard."""

    Options = TensorBoardOptions

    def __init__(self, run: Path, folder: Path | None = None) -> None:
        if find_spec("tensorboardX") is None:
            raise BadInput(
                "trackers: 'tensorboard' needs tensorboardX: pip install 'fedse[tensorboard]', or leave it out."
            )
        self._tokens: Counter[str] = Counter()
        """Of the round that goes on: clients may play several times in it."""
        self._folder = folder.expanduser() / run.name if folder else run / "tensorboard"

    @cached_property
    def _writer(self) -> Any:
        """Made when there is something to write: a run that is refused leaves nothing behind."""
        from tensorboardX import SummaryWriter

        # Its own file names tell seconds apart, and whoever goes on within one would overwrite what was there.
        return SummaryWriter(str(self._folder), flush_secs=10, filename_suffix=f".{time.time_ns()}")

    def record(self, event: Event) -> None:
        match event:
            case ClientFinished():
                # What is measured in a round is the adapter of the round before.
                for score in event.scores:
                    if score["episodes"]:
                        place = f"validation/{event.client}/{score['world']}"
                        self._scalar(place, score["successes"] / score["episodes"], event.round - 1)
                for name, value in event.metrics.items():
                    self._scalar(f"learning/{event.client}/{name}", value, event.round)
                for name, count in event.counts.items():
                    self._scalar(f"experience/{event.client}/{name}", count, event.round)
            case RoundStarted():
                self._tokens = Counter()
            case EpisodesPlayed():
                self._tokens.update(decoded=event.decoded, prefilled=event.prefilled)
            case RoundFinished():
                for name, count in self._tokens.items():
                    self._scalar(f"tokens/{name}", count, event.round)
                self._scalar("round/seconds", event.seconds, event.round)
                self._scalar("round/contributed", len(event.contributed), event.round)
            case Evaluated():
                for name, share in (("macro", event.macro), ("micro", event.micro)):
                    if share is not None:
                        self._scalar(f"{event.split}/{name}", share, event.round)

    def close(self) -> None:
        """Its writer works in a thread of its own, which knows only here that there is no more."""
        if "_writer" in vars(self):
            self._writer.close()

    def _scalar(self, name: str, value: float, round: int) -> None:
        self._writer.add_scalar(name, value, round)
