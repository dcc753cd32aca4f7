"""What the page asks for, and what it is answered: plain values, in which no text can do anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedse.errors import BadInput
from fedse.page.clients import clients
from fedse.page.compared import compared
from fedse.page.episode import episode
from fedse.page.left import left
from fedse.page.overview import overview
from fedse.page.shown import Shown
from fedse.storage.strict_json import finite
from fedse.visible import visible

CLIENTS = 12
"""On a page."""
VIEWS = ("overview", "clients", "trajectories", "trajectory", "left", "compare")


class NotThere(BadInput):
    """A run, a view or a trajectory that this page does not have."""


class Answers:
    """Of a fixed set of runs. What is asked for names a run, a view and a row that are known, and never a file."""

    def __init__(self, runs: Mapping[str, Shown]) -> None:
        self.runs = runs

    def listing(self) -> dict[str, Any]:
        return tame({"runs": [{"name": name, "kind": shown.kind} for name, shown in self.runs.items()]})

    def view(self, run: str, view: str, asked: Mapping[str, str]) -> dict[str, Any]:
        """Raises `NotThere`, or another `FedseError` with a sentence where a run cannot be shown."""
        shown = self.runs.get(run)
        if shown is None or view not in VIEWS:
            raise NotThere("There is no such page.")
        return tame(getattr(self, f"_{view}")(shown, asked))

    def _overview(self, shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
        del asked
        return overview(shown)

    def _clients(self, shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
        names, place = _some(shown, asked)
        return {**clients(shown, names), **place}

    def _left(self, shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
        names, place = _some(shown, asked)
        return {**left(shown, names), **place}

    def _compare(self, shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
        del shown
        names = [name for name in asked.get("runs", "").split(",") if name in self.runs]
        return compared({name: self.runs[name] for name in names or self.runs}, asked.get("against", ""))

    def _trajectories(self, shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
        return {"kind": shown.kind, **shown.catalogue.page(asked, _number(asked.get("page", "")))}

    def _trajectory(self, shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
        client, _, rest = asked.get("id", "").partition("/")
        journal, _, line = rest.partition("/")
        row = shown.catalogue.row(client, journal, int(line)) if line.isdecimal() and len(line) < 10 else None
        if row is None:
            raise NotThere("There is no such trajectory.")
        return {
            **episode(shown, row),
            "same": shown.catalogue.of_task(row["world"], row["task"]),
            "around": shown.catalogue.around(asked, row),
        }


def _some(shown: Shown, asked: Mapping[str, str]) -> tuple[list[str], dict[str, int]]:
    """A page of the clients, the one with a certain client if it is asked for; there may be a thousand of them."""
    every = shown.clients()
    number = every.index(asked["client"]) // CLIENTS if asked.get("client") in every else _number(asked.get("page", ""))
    pages = max(1, -(-len(every) // CLIENTS))
    return every[CLIENTS * number : CLIENTS * (number + 1)], {"page": number, "pages": pages, "total": len(every)}


def _number(digits: str) -> int:
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


def tame(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same values as JSON can have them, with every text made visible: control characters, marks that turn the direction
    of writing and the like stand there as what they are."""
    return {visible(key): _visible(item) for key, item in finite(value).items()}


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(key)): _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, (list, tuple)) else value
