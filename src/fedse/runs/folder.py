"""The run folder. Whatever the manifest names is complete; anything else is left over from an interrupted round.

experiment.yaml   events.jsonl   manifest.json
rounds/0007/{adapter/, server/, report.json, digests.json}   the state after round 7; round 0 is the beginning
clients/NAME/{buffer.sqlite, episodes/, private/}            stays with the client
evaluations/test-0020.json
set_aside/1/                                                 what was damaged when the run went on from an earlier round
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fedse import __version__
from fedse.errors import CannotWrite, RunConflict
from fedse.runs import record, reports
from fedse.runs.manifest import FORMAT, write_manifest
from fedse.runs.reading import RunView
from fedse.runs.record import Digests, RoundRecord
from fedse.storage import atomic

__all__ = ["FORMAT", "RunFolder"]
Writer = Callable[[Path], None]
Kept = Callable[[], Mapping[str, Digests]]
"""What clients keep that no earlier record names."""


class RunFolder(RunView):
    """A run to write to. Open one with `create` or `existing`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock: IO[str] | None = None
        self._made: list[Path] = []

    @classmethod
    def create(
        cls, path: Path, experiment: str, digest: str, start: str = "", worlds: Mapping[str, str] | None = None
    ) -> RunFolder:
        """See `begin`."""
        folder = cls(path)
        folder.begin(experiment, digest, start, worlds)
        return folder

    def begin(self, experiment: str, digest: str, start: str = "", worlds: Mapping[str, str] | None = None) -> None:
        """Begin a run, or come back to the one that is there. `start` is a hash of the files that buffers begin with,
        `worlds` says which version of each world it is made with."""
        if not (self.path / "manifest.json").exists():
            with atomic.explained(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            self.check_free()
            atomic.write_text(self.path / "experiment.yaml", experiment)
            self._write_manifest(
                {
                    "format": FORMAT,
                    "fedse": __version__,
                    "experiment": digest,
                    "start": start,
                    "worlds": dict(worlds or {}),
                    "rounds": {},
                }
            )
        self.manifest()
        # What a kill left of a last write that nothing repeats.
        for unfinished in self.path.glob(".*.part"):
            if unfinished.is_file():
                unfinished.unlink()

    def check_free(self) -> None:
        """Refuse a folder that holds something else than a run."""
        if not self.path.is_dir() or (self.path / "manifest.json").exists():
            return
        if leftover := sorted(item.name for item in self.path.iterdir() if item.name not in _OWN):
            raise RunConflict(
                f"{self.path} is not empty and not a run (it holds {leftover[0]}): choose another folder."
            )

    def lock(self) -> None:
        """Hold the folder for this process, so that two commands cannot write the same run. It is made if need be."""
        self._lock = self._lock_file()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed it in between: then this is nobody's lock any more.
            held, there = os.fstat(self._lock.fileno()), (self.path / LOCK).stat()
            if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino):
                raise FileNotFoundError
        except (BlockingIOError, FileNotFoundError) as error:
            self._lock.close()
            self._lock = None
            raise RunConflict(f"{self.path} is in use by another process: wait for it or stop it.") from error

    def _lock_file(self) -> IO[str]:
        with atomic.explained(self.path):
            self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                return (self.path / LOCK).open("w")
            except FileNotFoundError as error:
                raise RunConflict(f"{self.path} is in use by another process: wait for it or stop it.") from error

    def lock_to_read(self) -> None:
        """Keep others from writing while the run is read. On a medium that takes no writing there is nobody to keep off."""
        try:
            self.lock()
        except CannotWrite as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise

    def unlock(self) -> None:
        if self._lock is None:
            return
        if not (self.path / "manifest.json").exists():
            # Nothing came of it: the disk is left as it was.
            with suppress(OSError):
                (self.path / LOCK).unlink()
                for folder in self._made:
                    folder.rmdir()
        self._lock.close()
        self._lock = None

    def replace_experiment(self, experiment: str, digest: str) -> None:
        """Keep the run and continue it under a changed file (more rounds)."""
        manifest = self.manifest()
        self._write_manifest({**manifest, "experiment": digest, "earlier": manifest["experiment"]})
        atomic.write_text(self.path / "experiment.yaml", experiment)

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_manifest(self.path / "manifest.json", manifest)

    def save_round(
        self,
        number: int,
        digest: str,
        write: Writer,
        kept: Kept = dict,
        absent: Iterable[str] = (),
        contributed: Iterable[str] = (),
    ) -> None:
        """Store a round: its folder first, then the manifest that makes it count."""
        with atomic.new_folder(self.round_folder(number)) as folder:
            write(folder)
            parts = record.digests_in(folder), kept(), tuple(sorted(absent)), tuple(contributed)
            noted = RoundRecord(*parts).write(folder)
        manifest = self.manifest()
        self._write_manifest(
            {
                **manifest,
                "rounds": {**manifest["rounds"], str(number): digest},
                "records": {**manifest.get("records", {}), str(number): noted},
            }
        )
        shutil.rmtree(self.spool, ignore_errors=True)

    def fall_back(self, number: int, aside: Iterable[Path]) -> Path:
        """Make a round the newest one. What later rounds stored, and `aside`, goes where it does not count."""
        manifest = self.manifest()
        later = [self.round_folder(item) for item in map(int, manifest["rounds"]) if item > number]
        evaluations = {path: reports.round_of(path) for path in sorted((self.path / "evaluations").glob("*.json"))}
        place = self.put_aside([*later, *(path for path, item in evaluations.items() if item > number), *aside])
        kept = {
            key: {name: value for name, value in manifest.get(key, {}).items() if int(name) <= number}
            for key in ("rounds", "records")
        }
        left = {
            name: value
            for name, value in manifest.get("evaluations", {}).items()
            if reports.round_of(Path(name)) <= number
        }
        self._write_manifest({**manifest, **kept, "evaluations": left})
        return place

    def put_aside(self, paths: Iterable[Path]) -> Path:
        """Move things of this folder into one of their own, in which nothing counts."""
        taken = [int(item.name) for item in (self.path / "set_aside").glob("*") if item.name.isdecimal()]
        place = self.path / "set_aside" / str(max(taken, default=0) + 1)
        with atomic.explained(place):
            for path in paths:
                if path.exists():
                    target = place / path.relative_to(self.path)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path.replace(target)
        return place

    def store_evaluation(self, path: Path, result: Mapping[str, Any], further: Iterable[Path] = ()) -> None:
        """Write an evaluation and note it, with further files that belong to it."""
        text = json.dumps(result, indent=2) + "\n"
        atomic.write_text(path, text)
        manifest = self.manifest()
        noted = {path.name: hashlib.sha256(text.encode()).hexdigest()}
        noted |= {
            item.relative_to(self.path).as_posix(): record.file_digest(item) for item in further if item.is_file()
        }
        self._write_manifest({**manifest, "evaluations": {**manifest.get("evaluations", {}), **noted}})

    @property
    def spool(self) -> Path:
        """Where updates lie while a round is being aggregated."""
        return self.path / ".updates"

    def keep_clients_private(self) -> None:
        """What clients remember is for the account that runs them; somebody may open the folder to others later."""
        with atomic.explained(self.path):
            (self.path / "clients").mkdir(mode=0o700, parents=True, exist_ok=True)


LOCK = ".lock"
_OWN = {"experiment.yaml", "manifest.json", LOCK, ".experiment.yaml.part", ".manifest.json.part"}
