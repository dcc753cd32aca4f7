"""What the hub wants run, in a file of its own: a run's configuration in Flower can be read by every site."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedse.storage import atomic

KEYS = ("experiment", "settings", "runs", "outcome", "hub", "insecure")


def _file(home: Path) -> Path:
    return home / "order.json"


def place_order(home: Path, order: Mapping[str, Any]) -> None:
    """For the process that Flower's server starts next."""
    atomic.write_text(_file(home), json.dumps({key: order[key] for key in KEYS}))


def take_order(configured: Mapping[str, Any]) -> Mapping[str, Any]:
    """What this process is to run: the hub's order, once, or else what somebody has told Flower by hand."""
    home = os.environ.get("FLWR_HOME")
    if home is None or not _file(Path(home)).is_file():
        return configured
    order: dict[str, Any] = json.loads(_file(Path(home)).read_text())
    withdraw_order(Path(home))
    return order


def withdraw_order(home: Path) -> None:
    """One that was never taken must not be mistaken for that of a later run."""
    _file(home).unlink(missing_ok=True)
