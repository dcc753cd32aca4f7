"""One run of an experiment in Flower's server: submitted, watched, and submitted again when its process is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedse.apps.flower_server import LOOK, START, HubFailed, ServerLost, Silence, answers, ended, log_of
from fedse.apps.hub_folder import HubFolder
from fedse.apps.run_order import place_order
from fedse.apps.sign_of_life import held, sign_of
from fedse.engines.flower.settings import environment
from fedse.errors import FedseError
from fedse.events import RoundFinished
from fedse.protocols import Tracker
from fedse.runs.event_log import EventReader

Say = Callable[[str], None]
MOST_LOSSES = 3
"""In a row, without a complete round in between: whatever ends the run would do so again."""


class RunLost(HubFailed):
    """The process that makes the rounds is gone without a word."""


class RunFailed(FedseError):
    """The run ended with an error of its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class SubmittedRun:
    """What is asked of the server, and what is heard of it."""

    def __init__(
        self, hub: HubFolder, file: Path, settings: Sequence[str], runs: Path, follower: Follower, say: Say
    ) -> None:
        self._hub, self._file, self._settings, self._runs = hub, file, settings, runs
        self._follower, self._say = follower, say
        self._outcome = hub.home / "outcome.json"
        self._losses = 0
        self._rounds = 0
        self._asked = 0.0

    def result(self, server: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Submit and wait. A process that is gone is replaced: it goes on after the last complete round."""
        while True:
            try:
                self._submit()
                return self._watch(server)
            except RunLost as error:
                self.report_loss(error)

    def report_loss(self, error: HubFailed) -> None:
        """Say it, and that the run goes on; raises when it has been lost too often."""
        self._losses = 1 if self._follower.rounds > self._rounds else self._losses + 1
        self._rounds = self._follower.rounds
        if self._losses > MOST_LOSSES:
            raise HubFailed(
                f"{error} It happened {self._losses} times without a complete round in between, so the hub gives up; "
                f"{log_of(self._hub)} says more, and the same command resumes after the last complete round."
            ) from error
        self._say(f"{error} Resuming after the last complete round (try {self._losses} of {MOST_LOSSES}).")

    def end(self) -> None:
        """The process that makes the rounds must be gone before another one may write the run's folder."""
        until = time.monotonic() + START
        while held(sign_of(self._outcome)) and time.monotonic() < until:
            # Whoever holds the sign writes this number at once.
            if pid := self._heard().get("pid"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def _submit(self) -> None:
        self._outcome.unlink(missing_ok=True)
        order = {
            "experiment": str(self._file.resolve()),
            "settings": "\n".join(self._settings),
            "runs": str(self._runs.resolve()),
            "outcome": str(self._outcome),
            "hub": os.getpid(),
            "insecure": self._hub.options.insecure,
        }
        place_order(self._hub.home, order)
        command = [str(Path(sys.executable).parent / "flwr"), "run", str(self._hub.path / "bundle"), "hub"]
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=dict(environment(self._hub.home)),
                timeout=START,
            )
        except subprocess.TimeoutExpired as error:
            raise ServerLost(f"Flower's server has not taken the run within {START:.0f} s.") from error
        if done.returncode and not answers(self._hub):
            raise ServerLost("Flower's server has not taken the run.")
        if done.returncode:
            raise HubFailed(f"the run could not be started: {done.stdout.strip()}")

    def _watch(self, server: subprocess.Popen[bytes]) -> dict[str, Any]:
        silence = Silence(lambda: answers(self._hub), self._say)
        submitted = time.monotonic()
        while True:
            found = self._heard()
            self._follower.follow()
            if "error" in found:
                raise RunFailed(found["error"], found["exit_code"])
            if "adapter" in found:
                return found
            if (code := server.poll()) is not None:
                raise ServerLost(f"Flower's server has ended (code {code}).")
            if "pid" in found and not held(sign_of(self._outcome)) and self._heard() == found:
                raise RunLost(f"the process of the run ({found['pid']}) has ended without a result.")
            if "pid" not in found and (time.monotonic() - submitted > START or self._ended_unheard()):
                raise RunLost("the process of the run has not started.")
            silence.look()
            time.sleep(0.3)

    def _ended_unheard(self) -> bool:
        """Whether the run is over although it never said that it began. Asked now and then."""
        if time.monotonic() - self._asked < LOOK:
            return False
        self._asked = time.monotonic()
        return ended(self._hub) and not self._outcome.exists()

    def _heard(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._outcome.read_text()) if self._outcome.exists() else {}
        return found


class Follower:
    """Tells trackers what the run writes into its events, from now on."""

    def __init__(self, events: Path, trackers: Sequence[Tracker]) -> None:
        self.rounds = 0
        """Complete rounds that were heard of."""
        self._reader = EventReader.from_now_on(events)
        self._trackers = trackers

    def follow(self) -> None:
        for logged in self._reader.new():
            self.rounds += isinstance(logged.event, RoundFinished)
            for tracker in self._trackers:
                tracker.record(logged.event)
