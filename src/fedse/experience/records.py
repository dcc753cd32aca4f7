"""A trajectory as plain JSON values and back: the form of episode logs and exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedse.errors import BadInput
from fedse.types import Outcome, Purpose, Step, Trajectory

FORMAT = 2
"""2 added `rules` to a trajectory and `learned` to its steps. A record of format 1 is read as one without rules, all of
whose replies are learned from, which is how it was made."""


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    record = asdict(trajectory)
    record["train_mask"] = [int(flag) for flag in trajectory.train_mask]
    return {"format": FORMAT, **record}


def from_record(record: Mapping[str, Any]) -> Trajectory:
    if record["format"] > FORMAT:
        raise BadInput(
            f"a stored trajectory has format {record['format']}, this fedse knows up to {FORMAT}: use the newer fedse."
        )
    fields = {key: value for key, value in record.items() if key != "format"}
    fields["steps"] = tuple(Step(**step) for step in fields["steps"])
    fields["purpose"] = Purpose(fields["purpose"])
    fields["outcome"] = Outcome(fields["outcome"])
    fields["token_ids"] = tuple(fields["token_ids"])
    fields["train_mask"] = tuple(bool(flag) for flag in fields["train_mask"])
    return Trajectory(**fields)
