"""Every episode a client played, success or not, round by round: for people to read. It stays with the client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedse.errors import BadInput
from fedse.experience.records import from_record, to_record
from fedse.storage.atomic import write_text
from fedse.storage.strict_json import parse
from fedse.types import Trajectory


class Journal:
    """JSON lines in `episodes/NNNN.jsonl`. A repeated round overwrites its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, trajectories: Sequence[Trajectory]) -> None:
        lines = [json.dumps(to_record(trajectory), ensure_ascii=False) + "\n" for trajectory in trajectories]
        write_text(self.folder / f"{name}.jsonl", "".join(lines))

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.jsonl"))

    def read(self, name: str) -> Iterator[Trajectory]:
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            return
        whole = 0
        try:
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    record = parse(line, infinite=True)
                    if not line.endswith("\n") or not isinstance(record, dict):
                        raise ValueError("it is cut off")
                    trajectory = from_record(record)
                    whole += 1
                    yield trajectory
        except (OSError, ValueError) as error:
            raise BadInput(
                f"{path} is damaged after line {whole} ({error}): restore it from a copy of the run."
            ) from error
