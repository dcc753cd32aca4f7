"""A trajectory as plain JSON values and back: the form of episode logs and exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedse.errors import BadInput
from fedse.types import Outcome, Purpose, Step, Trajectory

FORMAT = 3
"""2 added `rules` to a trajectory and `learned` to its steps. A record of format 1 is read as one without rules, all of
whose replies are learned from, which is how it was made. 3 added the category and rewards of a trajectory, and the reward
of a step; older records are read as ones without."""


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    steps = [_values(step) for step in trajectory.steps]
    return {
        "format": FORMAT,
        **_values(trajectory),
        "steps": steps,
        "train_mask": [int(flag) for flag in trajectory.train_mask],
    }


def _values(instance: Step | Trajectory) -> dict[str, Any]:
    """One level of it. `asdict` would copy every token by itself, which takes longer than everything else here."""
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


def from_record(record: Mapping[str, Any]) -> Trajectory:
    if record["format"] > FORMAT:
        raise BadInput(
            f"a stored trajectory has format {record['format']}, this fedse knows up to {FORMAT}: use the newer fedse."
        )
    values = {key: value for key, value in record.items() if key != "format"}
    values["steps"] = tuple(Step(**step) for step in values["steps"])
    values["purpose"] = Purpose(values["purpose"])
    values["outcome"] = Outcome(values["outcome"])
    values["rewards"] = dict(values.get("rewards", {}))
    values["token_ids"] = tuple(values["token_ids"])
    values["train_mask"] = tuple(bool(flag) for flag in values["train_mask"])
    return Trajectory(**values)
