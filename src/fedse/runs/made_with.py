"""With what a run was made: versions, commit, machine. Told at every start, because a run can go on elsewhere."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from fedse import __version__

EVENT = "made_with"
LIBRARIES = ("numpy", "torch", "transformers", "peft", "flwr")
_RESULTS = ("round_finished", "evaluated")
_WORDS = {
    "fedse": "fedse {}",
    "commit": "commit {}",
    "python": "Python {}",
    "cores": "{} cores",
    "threads": "{} threads",
}


def describe(model: Any = None) -> dict[str, Any]:
    """This process. `model` is where it computes, if it does."""
    found: dict[str, Any] = {"fedse": __version__, "commit": _commit(), "python": platform.python_version()}
    found |= {name: getattr(sys.modules.get(name), "__version__", "") for name in LIBRARIES}
    found |= {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    if on := devices(model):
        import torch

        found["threads"] = torch.get_num_threads()
        found["device"] = ", ".join(sorted({name or device for device, name in on.items()}))
        found["precision"] = str(getattr(model.network, "dtype", "")).removeprefix("torch.")
    return {key: value for key, value in found.items() if value}


def devices(model: Any) -> dict[str, str]:
    """What the model lies on, each with the name of its maker."""
    parameters = getattr(getattr(model, "network", None), "parameters", None)
    if parameters is None:
        return {}
    import torch

    names = sorted({str(parameter.device) for parameter in parameters()})
    return {name: torch.cuda.get_device_name(name) if name.startswith("cuda") else "" for name in names}


@cache
def _commit() -> str:
    """Of the checkout that fedse is used from, with a plus where it was changed since; empty for an installed one."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        head, changes = (
            subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True)
            for words in (("rev-parse", "--short=9", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")


def makers(events: Path) -> list[dict[str, Any]]:
    """With what the rounds and evaluations of a run were made, in the order in which it first did something."""
    found: list[dict[str, Any]] = []
    now: dict[str, Any] | None = None
    content = events.read_text(encoding="utf-8") if events.exists() else ""
    # A killed process can leave half a line at the end.
    for line in content[: content.rfind("\n") + 1].splitlines():
        event = json.loads(line)
        if event["event"] == EVENT:
            now = {key: value for key, value in event.items() if key not in ("time", "event")}
        elif event["event"] in _RESULTS and now is not None and now not in found:
            found.append(now)
    return found


def in_words(maker: dict[str, Any]) -> str:
    words = (_WORDS.get(key, f"{key} {{}}" if key in LIBRARIES else "{}").format(value) for key, value in maker.items())
    return ", ".join(words)
