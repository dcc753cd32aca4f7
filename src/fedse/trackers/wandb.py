"""Weights & Biases: success, learning and cost over rounds. Offline unless asked otherwise: nothing leaves this machine.

`wandb sync FOLDER` sends an offline run later. Needs the extra `wandb`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedse.events import Event
from fedse.plugins import FilePath, PluginOptions
from fedse.trackers.outside import identity, require
from fedse.trackers.scalars import Scalars


class WandbOptions(PluginOptions):
    """Which project, and whether anything leaves this machine."""

    project: str = Field(default="fedse", min_length=1)
    """The project that the run is shown in, under the run's own name."""
    mode: Literal["offline", "online"] = "offline"
    """"online" sends the numbers, with the names of clients and worlds, to the server that wandb is logged in to."""
    folder: FilePath | None = None
    """Folder for wandb's files; the run's when not set. wandb makes a folder `wandb` in it."""


class Wandb:
    """Scalars for Weights & Biases."""

    Options = WandbOptions

    def __init__(
        self,
        run: Path,
        project: str = "fedse",
        mode: Literal["offline", "online"] = "offline",
        folder: Path | None = None,
    ) -> None:
        require("wandb", "wandb")
        self._scalars = Scalars()
        self._folder, self._project, self._mode = run, project, mode
        self._place = folder.expanduser() if folder else run

    @cached_property
    def _run(self) -> Any:
        """Made when there is something to write. A run that goes on has the same id, so that it is one run there."""
        import wandb

        self._place.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=self._project,
            name=self._folder.name,
            id=identity(self._folder),
            resume="allow",
            reinit="create_new",
            dir=str(self._place),
            mode=self._mode,
            # Numbers are told, and nothing else: no terminal, code, repository, packages or machine.
            settings=wandb.Settings(
                silent=True,
                console="off",
                host="unnamed",
                disable_git=True,
                disable_code=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
                x_save_requirements=False,
            ),
        )
        # What wandb itself calls a step may only grow, and numbers of an earlier round may come late.
        run.define_metric("*", step_metric="round")
        return run

    def record(self, event: Event) -> None:
        for round, values in self._scalars.of(event).items():
            if values:
                self._run.log({**values, "round": round})

    def close(self) -> None:
        if "_run" in vars(self):
            self._run.finish()
