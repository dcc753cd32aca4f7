"""Reports as they are written, reports and evaluations as they are read again.

Those with a digest are what was written; of the others, which an older fedse stored, everything that a table or a picture
reads is checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedse.errors import RunConflict
from fedse.storage import strict_json

NAME = "report.json"


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")


class _Row(_Stored):
    client: str
    world: str
    episodes: int = Field(ge=0)
    success: float | None
    interval: list[float] = Field(min_length=2, max_length=2)
    steps: float | None
    tokens: float | None
    invalid: float | None
    errors: dict[str, int]
    floor: float | None
    ceiling: float | None


class _Evaluation(_Stored):
    worlds: list[_Row]
    macro: float | None
    micro: float | None
    micro_interval: list[float] = Field(min_length=2, max_length=2)
    episodes: int = Field(ge=0)
    adapter: str = ""
    round: int = Field(default=0, ge=0)


class _Entering(_Stored):
    adapter_of_round: int = Field(ge=0, lt=10**6)
    worlds: list[_Row]


class _Client(_Stored):
    counts: dict[str, int]
    metrics: dict[str, float | None]
    bytes: int = 0
    state: str = ""


class _Diagnostics(_Stored):
    product_gap: float | None = None
    cosine: dict[str, float | None] = Field(default_factory=dict)
    epsilon: float | None = None


class _Report(_Stored):
    seconds: float
    clients: dict[str, _Client]
    evaluation: _Entering
    broadcast_bytes: int = 0
    library_bytes: int = 0
    diagnostics: _Diagnostics = Field(default_factory=_Diagnostics)


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Into the folder of its round."""
    (folder / NAME).write_text(json.dumps(strict_json.finite(report), indent=2) + "\n")


def read_report(path: Path, digest: str = "") -> dict[str, Any]:
    return _read(path, digest, _Report)


def read_evaluation(path: Path, digest: str = "") -> dict[str, Any]:
    return _read(path, digest, _Evaluation)


def _read(path: Path, digest: str, shape: type[_Stored]) -> dict[str, Any]:
    found = strict_json.read_object(path, digest)
    if not digest:
        try:
            shape.model_validate(found)
        except (ValidationError, OverflowError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            where = ".".join(map(str, first["loc"]))[:80]
            raise RunConflict(
                f"{path} is damaged ({where}: {first['msg']}): restore it from a copy of the run, or move it away."
            ) from error
    return found


def round_of(path: Path) -> int:
    """Of an evaluation or of something that belongs to one, by its name."""
    found = re.search(r"-(\d{4,9})(?=[-.])", path.name)
    return int(found[1]) if found else -1
