"""What a run's folder tells: its experiment, rounds, reports, evaluations and events. Nothing is written here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from fedse.errors import BadInput, RunConflict
from fedse.events import RunStarted, RunStopped
from fedse.runs import event_log, record, reports
from fedse.runs.event_log import EventReader, Logged
from fedse.runs.manifest import read_manifest
from fedse.runs.provenance import Maker, makers
from fedse.runs.record import RoundRecord


class RunView:
    """Open one with `existing`. A run may be going on meanwhile: what counts is what its manifest names."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def existing(cls, path: Path) -> Self:
        """A folder with a run in it, to read it, or to resume it."""
        if not (path / "manifest.json").is_file():
            why = "it holds no manifest.json" if path.exists() else "there is no such folder"
            raise BadInput(f"{path} is not a run: {why}.")
        folder = cls(path)
        folder.manifest()
        return folder

    def experiment(self) -> str:
        return (self.path / "experiment.yaml").read_text()

    def check_experiment(self) -> None:
        """Refuse an experiment.yaml that is not the one the run was made with."""
        manifest = self.manifest()
        problem = record.difference(self.path / "experiment.yaml", manifest["experiment"])
        # Killed while it was being replaced, the run still has the earlier one, under which all its rounds were made.
        earlier = "earlier" in manifest and not record.difference(self.path / "experiment.yaml", manifest["earlier"])
        if problem and not earlier and manifest["format"] > 1:
            raise RunConflict(f"{problem}: restore it; to resume with other settings use --set or another file.")

    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.path / "manifest.json")

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

    def record_of(self, number: int) -> RoundRecord | None:
        """What was noted of a complete round; None if an older fedse made it. Raises `RunConflict` if it is damaged."""
        digest = self.manifest().get("records", {}).get(str(number))
        return None if digest is None else RoundRecord.read(self.round_folder(number), digest)

    def check_state(self, number: int) -> None:
        """Refuse a stored state, adapter and server's memory, that is not the one that was written."""
        self.digest_of(number)
        noted = self.record_of(number)
        if noted is not None:
            folder = self.round_folder(number)
            record.check_files(folder, {name: item for name, item in noted.files.items() if name != reports.NAME})
            memory = "server/memory.safetensors"
            if memory not in noted.files and (folder / memory).exists():
                raise RunConflict(f"{folder / memory} is not part of the round: move it away.")

    def check_kept(self, client: str, number: int) -> None:
        """Refuse files that a client keeps up to a round and that are not those that were written. Not of its buffer."""
        for earlier in range(number + 1):
            noted = self.record_of(earlier)
            own = noted.clients.get(client, {}) if noted else {}
            files = {name: digest for name, digest in own.items() if name.startswith(("private/", "adapters/"))}
            record.check_files(self.client_folder(client), files)

    def check_journal(self, client: str, name: str) -> None:
        """Refuse a log of episodes that is not the one that was written."""
        file = f"episodes/{name}.jsonl"
        if name.isdecimal():
            noted = self.record_of(int(name))
            wanted = noted.clients.get(client, {}).get(file) if noted else None
        else:
            wanted = self.manifest().get("evaluations", {}).get(f"clients/{client}/{file}")
        if wanted:
            record.check_files(self.client_folder(client), {file: wanted})

    def report(self, number: int) -> dict[str, Any] | None:
        """What happened in a round; None where there is no report."""
        path = self.round_folder(number) / reports.NAME
        if not path.exists():
            return None
        noted = self.record_of(number)
        return reports.read_report(path, noted.files.get(reports.NAME, "") if noted else "")

    def missing(self) -> list[Path]:
        """Reports and evaluations that were written and are not there."""
        reported = [self.round_folder(number) / reports.NAME for number in range(1, (self.last_round() or 0) + 1)]
        noted = [self.path / "evaluations" / name for name in self.manifest().get("evaluations", {}) if "/" not in name]
        return [path for path in (*reported, *noted) if not path.exists()]

    def evaluation(self, split: str, number: int, world: str = "") -> dict[str, Any] | None:
        """A stored evaluation; None where there is none."""
        path = self.evaluation_path(split, number, world)
        if not path.exists():
            return None
        return reports.read_evaluation(path, self.manifest().get("evaluations", {}).get(path.name, ""))

    def client_folder(self, client: str) -> Path:
        return self.path / "clients" / client

    def evaluation_path(self, split: str, number: int, world: str = "") -> Path:
        return self.path / "evaluations" / f"{split}-{number:04d}{'-' + world if world else ''}.json"

    def size(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def events(self) -> list[Logged]:
        """Everything that was told of the run, as far as its log can be read."""
        return EventReader(self.path / event_log.NAME).new()

    def follow(self, place: int = 0, pause: float = 0.5, over: Callable[[], bool] = lambda: False) -> Iterator[Logged]:
        """The events from a place in the log on (`Logged.after` of the last one that is known), then those that come, until
        `over` says that nobody listens any more."""
        reader = EventReader(self.path / event_log.NAME, place)
        while not over():
            found = reader.new()
            yield from found
            if not found:
                time.sleep(pause)

    def told_stop(self) -> str | None:
        """Why its latest start did not come to the end, in the words of its log; None if it did, goes on, or was killed."""
        why = None
        for logged in self.events():
            match logged.event:
                case RunStarted():
                    why = None
                case RunStopped():
                    why = logged.event.why
        return why

    def makers(self) -> list[Maker]:
        """With what its rounds and evaluations were made."""
        return makers(logged.event for logged in self.events())
