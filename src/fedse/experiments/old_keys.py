"""Keys of an experiment that had other names before: a file is told the new one, a stored run is read as it was meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED: Mapping[str, str] = {
    "evaluation.between": "tasks_per_round",
    "participation.share": "fraction",
    "participation.least": "min_clients",
    "buffer.cap": "max_trajectories",
    "buffer.per_task": "max_per_task",
    "limits.error_share": "max_error_share",
    "limits.broken": "on_errors",
    "learner.batch": "batch_size",
    "learner.clip": "max_grad_norm",
    "learner.proximal": "proximal_mu",
}
"""By where a key stood, the name that it has there now."""
_OF_LEARNER = "imitation"
"""The renamed keys of the learner are this one's; a learner of somebody's own may call its options as it likes."""


def with_new_names(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a run stored under older names, under today's."""
    found = dict(content)
    for old, new in RENAMED.items():
        group, key = old.split(".")
        options = found.get(group)
        if not isinstance(options, Mapping) or key not in options or new in options:
            continue
        if group == "learner" and options.get("name", _OF_LEARNER) != _OF_LEARNER:
            continue
        found[group] = {new if name == key else name: value for name, value in options.items()}
    return found


def with_mix(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Runs that were stored before there was a `mix` have its first variant under a key of its own."""
    old = content.get("personal")
    if not isinstance(old, Mapping) or old.keys() != {"rank"} or "mix" in content:
        return content
    mix = {"mix": {"name": "personal", **old}} if old["rank"] else {}
    return {**{key: value for key, value in content.items() if key != "personal"}, **mix}
