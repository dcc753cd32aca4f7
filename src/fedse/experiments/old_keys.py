"""Keys of an experiment that had other names before: a file is told the new one, a stored run is read as it was meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedse.errors import FedseError
from fedse.plugins import known as known_plugins
from fedse.plugins import resolve

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
    "learner.above": "min_familiarity",
    "learner.most": "max_familiarity",
    "sending.secure_sum.least": "min_sites",
    "mix.least": "min_silhouette",
    "judge.most": "max_tokens",
}
"""By where a key stood, the name that it has there now."""
_OF_PLUGIN: Mapping[str, str] = {
    "learner.batch": "imitation",
    "learner.clip": "imitation",
    "learner.proximal": "imitation",
    "learner.above": "familiar",
    "learner.most": "familiar",
    "mix.least": "clustered",
    "judge.most": "few_tokens",
}
"""Whose option a renamed key is; a plug-in of somebody's own may call its options as it likes."""
_BY_END = {tuple(old.split(".")[-2:]): new for old, new in RENAMED.items()}
_PERSONAL = "personal"
"""What there was before there was a `mix`, whose first variant it became."""


def new_name(where: Sequence[Any], known: Sequence[str]) -> str:
    """What a key is called now, if that is among the `known` keys beside it. A site's file has some keys of an experiment,
    in other places."""
    if tuple(where) == (_PERSONAL,) and "mix" in known:
        return "mix: {name: personal, rank: ...}"
    new = _BY_END.get(tuple(map(str, where[-2:])), "")
    return new if new in known else ""


def advice(where: Sequence[Any], known: Sequence[str], value: Any) -> str:
    """What to do about an old key and its value in a file; empty for a key that there never was."""
    new = new_name(where, known)
    if new and tuple(where) == (_PERSONAL,) and isinstance(value, Mapping) and not value.get("rank"):
        return "leave this key out: rank 0 stood for no private adapter, and there is none without `mix`."
    return f"this key is called `{new}` now." if new else ""


def with_new_names(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a run stored under older names, under today's."""
    found = _with_mix(content)
    for old, new in RENAMED.items():
        *groups, key = old.split(".")
        own = _OF_PLUGIN.get(old)
        if own is None or _chooses(found, groups[0], key, own):
            found = _renamed(found, groups, key, new)
    return found


def _chooses(content: Mapping[str, Any], kind: str, key: str, own: str) -> bool:
    """Whether a run's plug-in of a kind is this one, and has the key."""
    options = content.get(kind)
    return isinstance(options, Mapping) and key in options and _is_plugin(kind, options.get("name", own), own)


def _renamed(content: dict[str, Any], groups: Sequence[str], key: str, new: str) -> dict[str, Any]:
    if not groups:
        return content if new in content else {new if name == key else name: value for name, value in content.items()}
    group, options = groups[0], content.get(groups[0])
    if not isinstance(options, Mapping):
        return content
    return {**content, group: _renamed(dict(options), groups[1:], key, new)}


def _is_plugin(kind: str, name: Any, own: str) -> bool:
    """Whether a name or a path means this plug-in of fedse. To look at a run must not load code of somebody else's that it
    names."""
    if name == own:
        return True
    path = known_plugins(kind).get(name, name) if isinstance(name, str) else ""
    if not path.startswith("fedse."):
        return False
    with suppress(FedseError):
        return resolve(kind, path) is resolve(kind, own)
    return False


def _with_mix(content: Mapping[str, Any]) -> dict[str, Any]:
    old = content.get(_PERSONAL)
    if not isinstance(old, Mapping) or old.keys() != {"rank"} or "mix" in content:
        return dict(content)
    mix = {"mix": {"name": "personal", **old}} if old["rank"] else {}
    return {**{key: value for key, value in content.items() if key != _PERSONAL}, **mix}
