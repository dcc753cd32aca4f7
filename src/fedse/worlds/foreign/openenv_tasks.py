"""The tasks that an OpenEnv server lists, dealt out to training, validation and test so that none is in two of them."""

from __future__ import annotations

from collections.abc import Mapping

from fedse.errors import BadInput
from fedse.types import SPLITS, Split
from fedse.worlds.foreign.openenv_wire import Server

_SHARES: dict[Split, int] = {"train": 6, "validation": 2, "test": 2}
"""Of tasks that several splits have in common."""
_MOST_TASKS = 100_000
"""Per split; some servers make tasks without end."""


def listed_tasks(server: Server) -> dict[str, int] | None:
    """How many tasks each of the server's own splits holds; None for a server that lists no tasks."""
    names = server.ask("/list_environments")
    if not isinstance(names, list) or not names:
        return None
    splits = server.ask(f"/{names[0]}/splits")
    if not isinstance(splits, list):
        return None
    counts = {}
    for split in splits:
        name = split.get("name") if isinstance(split, dict) else split
        told = server.ask(f"/{names[0]}/num_tasks", {"split": name})
        count = told.get("num_tasks") if isinstance(told, dict) else None
        if not isinstance(name, str) or type(count) is not int or count < 0:
            raise server.failed(f"it does not say how many tasks its split {name!r} has")
        counts[name] = min(count, _MOST_TASKS)
    return {name: count for name, count in counts.items() if count} or None


def dealt(offered: Mapping[str, int], named: Mapping[Split, str]) -> dict[Split, list[str]]:
    """Ids such as `test-12` for our splits: from the server's split of the same name, or the one that is named.

    What the server does not have is set apart from its `train`, or from its only split. Splits that have one of the
    server's in common get 6, 2 and 2 parts of it.

    >>> {split: len(ids) for split, ids in dealt({"train": 80, "test": 9}, {}).items()}
    {'train': 60, 'validation': 20, 'test': 9}
    """
    source: dict[Split, str] = {}
    for split in SPLITS:
        chosen = named.get(split, split)
        if chosen not in offered and split not in named:
            chosen = next(iter(offered)) if len(offered) == 1 else "train"
        if chosen not in offered:
            raise BadInput(
                f"openenv: the server has no split '{chosen}'; say in `splits` which of its splits is {split}: "
                f"{', '.join(sorted(offered))}."
            )
        source[split] = chosen
    return {split: _part(split, source, offered[source[split]]) for split in SPLITS}


def _part(split: Split, source: Mapping[Split, str], count: int) -> list[str]:
    name = source[split]
    sharing = [other for other in SPLITS if source[other] == name]
    before = sum(_SHARES[other] for other in sharing[: sharing.index(split)])
    parts = sum(_SHARES[other] for other in sharing)
    own = range(before, before + _SHARES[split])
    found = [f"{name}-{index}" for index in range(count) if index % parts in own or len(sharing) == 1]
    if not found:
        raise BadInput(f"openenv: the server's split '{name}' has only {count} tasks, none of them for {split}.")
    return found
