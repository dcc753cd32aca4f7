"""Every episode a client played, success or not, round by round: for people to read. It stays with the client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedse.atomic import write_text
from fedse.experience.records import from_record, to_record
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
        if path.exists():
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    yield from_record(json.loads(line))
