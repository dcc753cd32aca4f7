"""With what a run was made: versions, commit, machine. Told at every start, because a run can go on elsewhere."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from fedse import __version__
from fedse.events import Evaluated, Event, MadeWith, RoundFinished
from fedse.protocols import Tracker

Maker = Mapping[str, Any]
LIBRARIES = ("numpy", "torch", "transformers", "peft", "flwr")
_WORDS = {
    **{name: f"{name} {{}}" for name in ("fedse", "commit", "sites", *LIBRARIES)},
    **{"python": "Python {}", "cores": "cores: {}", "threads": "threads: {}"},
}


def tell(tracker: Tracker, model: Any, at_sites: bool) -> None:
    """Tell with what a run is made from now on."""
    elsewhere = {"sites": "on other machines"} if at_sites else {}
    # Observing a run may never end it, whatever a model of somebody's own says of itself.
    with suppress(Exception):
        tracker.record(MadeWith(details={**describe(model), **elsewhere}))


def describe(model: Any = None) -> dict[str, Any]:
    """This process, and where its model computes."""
    found: dict[str, Any] = {"fedse": __version__, "commit": _commit(), "python": platform.python_version()}
    found |= {name: getattr(sys.modules.get(name), "__version__", "") for name in LIBRARIES}
    found |= {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    if on := devices(model):
        found["threads"] = sys.modules["torch"].get_num_threads()
        found["device"] = ", ".join(sorted({name or device for device, name in on.items()}))
        found["precision"] = str(getattr(model.network, "dtype", "")).removeprefix("torch.")
    return {key: value for key, value in found.items() if value}


def devices(model: Any) -> dict[str, str]:
    """What the model lies on, each with the name of its maker."""
    torch, network = sys.modules.get("torch"), getattr(model, "network", None)
    if torch is None or not isinstance(network, torch.nn.Module):
        return {}
    names = sorted({str(parameter.device) for parameter in network.parameters()})
    return {name: torch.cuda.get_device_name(name) if name.startswith("cuda") else "" for name in names}


@cache
def _commit() -> str:
    """Of the checkout that fedse is used from, with a plus if its code was changed since; empty for an installed one."""
    package = Path(__file__).resolve().parents[1]
    root = package.parents[1]
    if package != root / "src/fedse" or not (root / ".git").exists():
        return ""
    # Inside a hook of git these name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*words: str) -> str:
        # Without a lock: the user may be committing.
        line = ["git", "--no-optional-locks", "-C", str(root), *words]
        return (
            subprocess.run(line, capture_output=True, timeout=10, check=True, env=environment).stdout.decode().strip()
        )

    try:
        return git("rev-parse", "--short=9", "HEAD") + ("+" if git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""


def makers(events: Iterable[Event]) -> list[Maker]:
    """With what the rounds and evaluations of a run were made, in the order in which each first made one. An empty one
    stands for those of an older fedse, which did not note it."""
    found: list[Maker] = []
    now: Maker = {}
    for event in events:
        if isinstance(event, MadeWith):
            now = event.details
        elif isinstance(event, RoundFinished | Evaluated) and now not in found:
            found.append(now)
    return found


def in_words(maker: Maker) -> str:
    return ", ".join(_WORDS.get(key, "{}").format(value) for key, value in maker.items()) or "what was not noted"
