"""A trajectory as plain JSON values and back: the form of episode logs and exports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from fedse.errors import BadInput
from fedse.types import Outcome, Purpose, Step, Trajectory

FORMAT = 5
"""2 added `rules` to a trajectory and `learned` to its steps. A record of format 1 is read as one without rules, all of
whose replies are learned from, which is how it was made. 3 added the category and rewards of a trajectory, and the reward
of a step; older records are read as ones without. 4 added the hint of a step, 5 the log-probabilities of a trajectory. A
trajectory is written in the oldest format that holds it, without what it does not have."""
_WITH_HINTS, _WITHOUT = 4, 3
_NOT_STORED = "truncated"
_NAMES = {kind: [field.name for field in fields(kind) if field.name != _NOT_STORED] for kind in (Trajectory, Step)}
_texts_of, _texts_of_step = (
    attrgetter(*(field.name for field in fields(kind) if field.type == "str"))  # Annotations are texts here.
    for kind in (Trajectory, Step)
)


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    steps = [_values(step) for step in trajectory.steps]
    for step in steps:
        if not step["hint"]:
            del step["hint"]
    hints = any(step.hint for step in trajectory.steps)
    record = {
        "format": FORMAT if trajectory.log_probs else _WITH_HINTS if hints else _WITHOUT,
        **_values(trajectory),
        "steps": steps,
        "train_mask": list(bytes(trajectory.train_mask)),  # The same as `int` of each, in a quarter of the time.
    }
    if not trajectory.log_probs:
        del record["log_probs"], record["reshaped"]
    return record


def _values(instance: Step | Trajectory) -> dict[str, Any]:
    """One level of it. `asdict` would copy every token by itself, which takes longer than everything else here."""
    return {name: getattr(instance, name) for name in _NAMES[type(instance)]}


def from_record(record: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a record, whose mask may be a tuple of flags already: in JSON there is none. One that is not as it
    was written is a `ValueError`."""
    try:
        if record["format"] > FORMAT:
            raise BadInput(
                f"a stored trajectory has format {record['format']}, this fedse knows up to {FORMAT}: use the newer fedse."
            )
        return _checked(_made(record))
    except (TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ValueError(f"no trajectory: {error}") from error


def _checked(found: Trajectory) -> Trajectory:
    # By types, not value by value: all trajectories of a buffer are read in every round.
    texts = {*map(type, _texts_of(found)), *(kind for step in found.steps for kind in map(type, _texts_of_step(step)))}
    if texts != {str}:
        raise ValueError("something in it is no text")
    numbers = {type(found.score), *map(type, found.rewards.values()), *(type(step.reward) for step in found.steps)}
    if not numbers <= {int, float, bool}:
        raise ValueError("a score or reward is no number")
    if not all(type(number) is int for number in (found.round, found.attempt)):
        raise ValueError("round or attempt is no number")
    if len(found.token_ids) != len(found.train_mask):
        raise ValueError("there are not as many flags as tokens")
    if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in found.log_probs):
        raise ValueError("a log-probability is no number")
    if not isinstance(found.reshaped, bool):
        raise ValueError("whether the distribution was reshaped is not told")
    if found.log_probs and len(found.log_probs) != found.agent_tokens:
        raise ValueError("there are not as many log-probabilities as tokens of the agent")
    return found


def _made(record: Mapping[str, Any]) -> Trajectory:
    values = {key: value for key, value in record.items() if key != "format"}
    values["steps"] = tuple(Step(**step) for step in values["steps"])
    values["purpose"] = Purpose(values["purpose"])
    values["outcome"] = Outcome(values["outcome"])
    values["rewards"] = dict(values.get("rewards", {}))
    values["token_ids"] = tuple(values["token_ids"])
    mask = values["train_mask"]
    values["train_mask"] = mask if isinstance(mask, tuple) else tuple(map(bool, mask))
    values["log_probs"] = tuple(values.get("log_probs") or ())
    values["reshaped"] = values.get("reshaped") or False
    return Trajectory(**values)
