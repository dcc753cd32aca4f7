"""The run folder. Whatever the manifest names is complete; anything else is left over from an interrupted round.

experiment.yaml   events.jsonl   manifest.json
rounds/0007/{adapter/, server/, report.json}      the state after round 7; round 0 is the beginning
clients/NAME/{buffer.sqlite, episodes/, private/} stays with the client
evaluations/test-0020.json
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fedse import __version__, atomic
from fedse.errors import BadInput, RunConflict
from fedse.stopwatch import during

FORMAT = 1
Writer = Callable[[Path], None]


class RunFolder:
    """Open one with `create` or `existing`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """A folder with a run in it, for reading or resuming."""
        if not (path / "manifest.json").is_file():
            raise BadInput(f"{path} is not a run: it holds no manifest.json.")
        folder = cls(path)
        folder.manifest()
        return folder

    @classmethod
    def create(
        cls, path: Path, experiment: str, digest: str, start: str = "", worlds: Mapping[str, str] | None = None
    ) -> RunFolder:
        """Begin a run, or come back to the one that is there. `start` is a hash of the files that buffers begin with,
        `worlds` says which version of each world it is made with."""
        folder = cls(path)
        if not (path / "manifest.json").exists():
            with atomic.explained(path):
                path.mkdir(parents=True, exist_ok=True)
            if leftover := sorted(item.name for item in path.iterdir() if item.name not in _OWN):
                raise RunConflict(f"{path} is not empty and not a run (it holds {leftover[0]}): choose another folder.")
            atomic.write_text(path / "experiment.yaml", experiment)
            folder._write_manifest(
                {
                    "format": FORMAT,
                    "fedse": __version__,
                    "experiment": digest,
                    "start": start,
                    "worlds": dict(worlds or {}),
                    "rounds": {},
                }
            )
        return cls.existing(path)

    def lock(self) -> None:
        """Hold the folder for this process, so that two commands cannot write the same run."""
        with atomic.explained(self.path):
            self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunConflict(f"{self.path} is in use by another process: wait for it or stop it.") from error

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def experiment(self) -> str:
        return (self.path / "experiment.yaml").read_text()

    def replace_experiment(self, experiment: str, digest: str) -> None:
        """Keep the run and continue it under a changed file (more rounds)."""
        atomic.write_text(self.path / "experiment.yaml", experiment)
        self._write_manifest({**self.manifest(), "experiment": digest})

    def manifest(self) -> dict[str, Any]:
        path = self.path / "manifest.json"
        try:
            manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            newer = manifest["format"] > FORMAT
            complete = newer or {"fedse", "experiment", "rounds"} <= manifest.keys()
        except (ValueError, TypeError, LookupError) as error:
            raise RunConflict(f"{path} is damaged ({error}): restore it or begin a new run.") from error
        if newer:
            raise BadInput(f"{self.path} was written by a newer fedse ({manifest.get('fedse')}): use that one.")
        if not complete:
            raise RunConflict(f"{path} is damaged (keys are missing): restore it or begin a new run.")
        return manifest

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        atomic.write_text(self.path / "manifest.json", json.dumps(manifest, indent=2) + "\n")

    def last_round(self) -> int | None:
        """The newest complete round; None before the beginning is stored."""
        rounds = self.manifest()["rounds"]
        return max(map(int, rounds)) if rounds else None

    def round_folder(self, number: int) -> Path:
        return self.path / "rounds" / f"{number:04d}"

    def digest_of(self, number: int) -> str:
        """Digest of the adapter after a round, as the manifest recorded it."""
        rounds = self.manifest()["rounds"]
        if str(number) not in rounds:
            known = f"0 to {max(map(int, rounds))}" if rounds else "none"
            raise BadInput(f"{self.path.name} has no round {number}: complete rounds are {known}.")
        return str(rounds[str(number)])

    def save_round(self, number: int, digest: str, write: Writer) -> None:
        """Store a round: its folder first, then the manifest that makes it count."""
        with atomic.new_folder(self.round_folder(number)) as folder:
            write(folder)
        manifest = self.manifest()
        self._write_manifest({**manifest, "rounds": {**manifest["rounds"], str(number): digest}})
        shutil.rmtree(self.spool, ignore_errors=True)

    def report(self, number: int) -> dict[str, Any] | None:
        path = self.round_folder(number) / "report.json"
        return json.loads(path.read_text()) if path.exists() else None

    @property
    def spool(self) -> Path:
        """Where updates lie while a round is being aggregated."""
        return self.path / ".updates"

    def client_folder(self, client: str) -> Path:
        return self.path / "clients" / client

    def keep_clients_private(self) -> None:
        """What clients remember is for the account that runs them; somebody may open the folder to others later."""
        with atomic.explained(self.path):
            (self.path / "clients").mkdir(mode=0o700, parents=True, exist_ok=True)

    def evaluation_path(self, split: str, number: int, world: str = "") -> Path:
        return self.path / "evaluations" / f"{split}-{number:04d}{'-' + world if world else ''}.json"

    def size(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


_OWN = {"experiment.yaml", "manifest.json", ".lock", ".experiment.yaml.part", ".manifest.json.part"}


class EventLog:
    """Appends to events.jsonl. What happens to this file never stops a run."""

    SKIPPED = frozenset({"episode"})

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path = path
        self.clock = clock
        _drop_torn_line(path)

    def record(self, event: str, **fields: Any) -> None:
        if event in self.SKIPPED:
            return
        line = json.dumps({"time": round(self.clock(), 3), "event": event, **fields}, default=str)
        try:
            with during("disk"), self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            # Observing a run may never end it; the round itself will say that the disk is full.
            with suppress(OSError):
                _drop_torn_line(self.path)


def _drop_torn_line(path: Path) -> None:
    """A killed process can leave half a line behind; cut it off, so that every line stays readable."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        os.truncate(path, whole)
