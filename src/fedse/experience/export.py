"""Trajectories for other tools: JSON lines, or Parquet with one row for each trajectory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedse import atomic
from fedse.errors import BadInput, MissingExtra
from fedse.experience.records import to_record
from fedse.types import Trajectory


def export(trajectories: Sequence[Trajectory], path: Path) -> None:
    """Write `path`, in the format its ending names."""
    if path.suffix == ".jsonl":
        with atomic.new_file(path) as part, part.open("w", encoding="utf-8") as lines:
            for trajectory in trajectories:
                lines.write(json.dumps(to_record(trajectory), ensure_ascii=False) + "\n")
    elif path.suffix == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtra("writing Parquet", "pyarrow", "parquet") from error
        table = pyarrow.Table.from_pylist([to_record(trajectory) for trajectory in trajectories])
        with atomic.new_file(path) as part:
            pyarrow.parquet.write_table(table, part)
    else:
        raise BadInput(f"cannot export to {path}: the name must end in .jsonl or .parquet.")
