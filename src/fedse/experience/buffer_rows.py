"""A trajectory as a row of a buffer: columns to look for, token ids and their mask in bytes, and the rest as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedse.errors import BufferUnusable
from fedse.experience.records import from_record, to_record
from fedse.storage.strict_json import parse
from fedse.types import Attempt, Trajectory


def as_blobs(trajectory: Trajectory) -> tuple[bytes, bytes]:
    ids = np.asarray(trajectory.token_ids, dtype="<i4").tobytes()
    return ids, np.packbits(np.asarray(trajectory.train_mask, dtype=bool)).tobytes()


def content_of(token_ids: bytes, train_mask: bytes) -> str:
    return hashlib.sha256(token_ids + train_mask).hexdigest()


def as_columns(trajectory: Trajectory) -> Sequence[Any]:
    return (
        trajectory.round,
        trajectory.world,
        trajectory.task,
        trajectory.attempt,
        trajectory.purpose.value,
        trajectory.adapter,
        trajectory.outcome.value,
        trajectory.score,
    )


def as_attempt(trajectory: Trajectory) -> Attempt:
    return Attempt(
        trajectory.round,
        trajectory.world,
        trajectory.task,
        trajectory.category,
        trajectory.attempt,
        trajectory.outcome,
        trajectory.score,
        trajectory.reward,
        len(trajectory.steps),
    )


def as_text(trajectory: Trajectory) -> str:
    record = to_record(trajectory)
    del record["token_ids"], record["train_mask"]
    return json.dumps(record, ensure_ascii=False)


def from_row(path: Path, record: str, token_ids: bytes, train_mask: bytes, content: str) -> Trajectory:
    try:
        if content and content_of(token_ids, train_mask) != content:
            raise ValueError("token ids do not fit the hash beside them")
        ids = tuple(np.frombuffer(token_ids, dtype="<i4").tolist())
        mask = tuple(np.unpackbits(np.frombuffer(train_mask, dtype=np.uint8), count=len(ids)).view(np.bool_).tolist())
        return from_record({**parse(record, infinite=True), "token_ids": ids, "train_mask": mask})
    except (TypeError, ValueError) as error:
        raise BufferUnusable(
            f"{path} is damaged (a trajectory cannot be read: {error}); it was left as it is. Restore it from a copy."
        ) from error
