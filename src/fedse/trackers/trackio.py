"""trackio: success, learning and cost over rounds, and some episodes to read, in trackio's own place on this machine.

`trackio show --project fedse` opens its page. Needs the extra `trackio`.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from contextvars import Context
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from fedse.errors import BadInput
from fedse.events import Evaluated, Event, RoundFinished
from fedse.experience.journal import Journal
from fedse.plugins import PluginOptions
from fedse.rollouts.hinted import hinted
from fedse.trackers.outside import require
from fedse.trackers.scalars import Scalars
from fedse.types import Trajectory

_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
"""Environment variables with which trackio sends what it is told to another machine."""


class TrackioOptions(PluginOptions):
    """Which project, and how many episodes to read."""

    project: str = Field(default="fedse", min_length=1)
    """The project that the run is shown in, under the run's own name."""
    traces: int = Field(default=0, ge=0)
    """Episodes per client and round that are shown as conversations, spread evenly over those that were played. They are
    read from the clients' folders, so a hub, where trajectories never come, is refused."""


class Trackio:
    """Scalars and conversations for trackio."""

    Options = TrackioOptions

    def __init__(self, run: Path, project: str = "fedse", traces: int = 0) -> None:
        require("trackio", "trackio")
        self.reads_trajectories = traces > 0
        if self.reads_trajectories and (sent := next(filter(os.environ.get, _ELSEWHERE), None)):
            raise BadInput(
                f"trackers: with {sent} set, trackio sends what it is told to another machine, and trajectories stay on "
                "this one: unset it, or leave `traces` out."
            )
        self._scalars = Scalars()
        self._folder, self._project, self._traces = run, project, traces

    @cached_property
    def _run(self) -> Any:
        """Made when there is something to write. A run that goes on is the same one there."""
        import trackio

        # It would end a run of the user's own that this thread has open, and speak between the lines of ours.
        with redirect_stdout(io.StringIO()):
            return Context().run(
                trackio.init,
                project=self._project,
                name=self._folder.name,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def record(self, event: Event) -> None:
        for round, values in self._scalars.of(event).items():
            if values:
                self._run.log(dict(values), step=round)
        match event:
            case RoundFinished() if self._traces:
                self._show(f"{event.round:04d}", "episodes", event.round)
            case Evaluated() if self._traces:
                self._show(f"{event.split}-{event.round:04d}", event.split, event.round)

    def close(self) -> None:
        if "_run" in vars(self):
            with redirect_stdout(io.StringIO()):
                self._run.finish()

    def _show(self, journal: str, name: str, round: int) -> None:
        """Some of the episodes that each client wrote down."""
        import trackio

        for client in sorted((self._folder / "clients").glob("*")):
            played = list(Journal(client / "episodes").read(journal))
            count = min(self._traces, len(played))
            chosen = [played[place * len(played) // count] for place in range(count)]
            if chosen:
                traces = [trackio.Trace(_messages(item), _metadata(item)) for item in chosen]
                self._run.log({f"{name}/{client.name}": traces}, step=round)


def _messages(trajectory: Trajectory) -> list[dict[str, str]]:
    said = [("user", trajectory.rules)] if trajectory.rules else []
    for step in trajectory.steps:
        said += [("user", hinted(step.observation, step.hint)), ("assistant", step.reply)]
    said.append(("user", trajectory.closing))
    return [{"role": role, "content": content} for role, content in said if content]


def _metadata(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "client": trajectory.client,
        "world": trajectory.world,
        "task": trajectory.task,
        "round": trajectory.round,
        "purpose": trajectory.purpose.value,
        "outcome": trajectory.outcome.value,
        "score": trajectory.score,
        "agent_tokens": trajectory.agent_tokens,
        "invalid_actions": trajectory.invalid_actions,
    }
