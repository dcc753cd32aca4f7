"""Trajectories for other tools: everything there is as JSON lines, Parquet or ATIF, conversations in AgentGym's layout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedse.conversation import ACCEPTANCE
from fedse.errors import BadInput, MissingExtra
from fedse.experience import atif
from fedse.experience.records import to_record
from fedse.storage import atomic
from fedse.types import Outcome, Trajectory

ATIF = ".atif"
ENDINGS = (".json", ".jsonl", ".parquet", ATIF)


def export(trajectories: Sequence[Trajectory], path: Path, agent: atif.Agent | None = None) -> int:
    """Write `path`, in the format its ending names; returns how many. Conversations (.json) are of successes only.

    `agent` is who played, for formats that tell it (.atif).
    """
    if path.suffix == ".json":
        trajectories = [trajectory for trajectory in trajectories if trajectory.outcome is Outcome.SUCCESS]
        records = [conversation(trajectory) for trajectory in trajectories]
        atomic.write_text(path, json.dumps(records, ensure_ascii=False, indent=1) + "\n")
    elif path.suffix == ".jsonl":
        _write_lines(path, map(to_record, trajectories))
    elif path.suffix == ATIF:
        _write_lines(path, (atif.document(trajectory, agent or atif.Agent()) for trajectory in trajectories))
    elif path.suffix == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtra("writing Parquet", "pyarrow", "parquet") from error
        records = [to_record(trajectory) for trajectory in trajectories]
        # Said what they are: from mappings that are all empty no type can be told, nor from records without a key.
        rewards = pyarrow.map_(pyarrow.string(), pyarrow.float64())
        given = pyarrow.array([list(record.pop("rewards").items()) for record in records], rewards)
        drawn = pyarrow.array([record.pop("log_probs", None) for record in records], pyarrow.list_(pyarrow.float64()))
        reshaped = pyarrow.array([record.pop("reshaped", None) for record in records], pyarrow.bool_())
        table = pyarrow.Table.from_pylist(records)
        for name, column in {"rewards": given, "log_probs": drawn, "reshaped": reshaped}.items():
            table = table.append_column(name, column)
        with atomic.new_file(path) as part:
            pyarrow.parquet.write_table(table, part)
    else:
        raise BadInput(f"cannot export to {path}: the name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")
    return len(trajectories)


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    with atomic.new_file(path) as part, part.open("w", encoding="utf-8") as lines:
        for record in records:
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")


def conversation(trajectory: Trajectory) -> dict[str, Any]:
    """The text of a trajectory in AgentGym's layout, which `start: PATH` reads with any model."""
    if not trajectory.rules:
        raise BadInput(
            f"the trajectory of task '{trajectory.task}' of client '{trajectory.client}' was stored without the rules of "
            "its world, by an older fedse: export to .jsonl, or collect it again."
        )
    messages = [_message("human", trajectory.rules), _message("gpt", ACCEPTANCE, False)]
    for step in trajectory.steps:
        # A reply in which no action can be read is part of what happened, and nothing to start another agent with.
        messages += [
            _message("human", step.observation),
            _message("gpt", step.reply, step.learned and bool(step.action)),
        ]
    if trajectory.closing:
        messages.append(_message("human", trajectory.closing))
    item = f"{trajectory.world}_{trajectory.task}"
    return {"conversations": messages, "item_id": item, "client": trajectory.client}


def _message(speaker: str, value: str, loss: bool | None = None) -> dict[str, Any]:
    return {"from": speaker, "loss": loss, "value": value}
