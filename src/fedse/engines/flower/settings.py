"""Flower as an operator wants it: it tells nobody about the run, looks for no update and installs nothing."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from fedse.errors import MissingExtra

SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Keeps Ray from hiding the GPUs of clients that ask for none, and from warning about it.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # How often Flower's process starter looks for work, in seconds; its default of 1 is felt in short rounds.
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}


def prepare(feature: str, library: str = "flwr") -> None:
    """Set the switches in this process; must come before the first import of flwr, which reads them then."""
    if importlib.util.find_spec(library) is None:
        raise MissingExtra(feature, library, "flower")
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)


def environment(home: Path) -> Mapping[str, str]:
    """For Flower's own commands: the switches, a folder of their own, and this Python's commands first in the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **SWITCHES, "FLWR_HOME": str(home), "PATH": path}
