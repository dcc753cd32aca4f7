"""What each client did in each round, and how their updates fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedse.errors import FedseError
from fedse.evaluation.forgetting import forgetting
from fedse.evaluation.learned_shares import learned_shares
from fedse.evaluation.side_by_side import side_by_side
from fedse.experience.buffer_file import sources
from fedse.page.shown import Shown

_DEMONSTRATED = "demonstrations"
_FOUND = {"explore": "explored", "relabel": "relabelled"}


def clients(shown: Shown, names: list[str]) -> dict[str, Any]:
    """Numbers of some clients, by round, as the reports have them."""
    found: dict[str, Any] = {
        "clients": names,
        "rounds": [],
        "buffers": {name: _buffer(shown, name) for name in names} if shown.kind != "hub" else {},
        "kind": shown.kind,
    }
    if shown.kind == "site":
        return found
    reports = {number: shown.run.report(number) for number in range(1, shown.last_round() + 1)}
    found["rounds"] = [_round(number, report, names) for number, report in reports.items() if report is not None]
    found["side_by_side"] = {
        name: {number: [pair.after_learning, pair.as_broadcast] for number, pair in rounds.items()}
        for name, rounds in side_by_side(shown.run).items()
    }
    found["learned_shares"] = learned_shares(shown.run)
    found["forgotten"] = {
        name: {number: known.forgotten for number, known in rounds.items()}
        for name, rounds in forgetting(shown.run).shared.items()
    }
    return found


def _round(number: int, report: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    told = report["diagnostics"]
    return {
        "round": number,
        "seconds": report["seconds"],
        "clients": {
            name: {
                "state": entry["state"],
                "bytes": entry.get("bytes", 0),
                "counts": entry["counts"],
                "loss": entry["metrics"].get("loss"),
                "first_loss": entry["metrics"].get("first_loss"),
                "norm": told.get("update_norm", {}).get(name),
                "step": told.get("effective_step", {}).get(name),
            }
            for name, entry in report["clients"].items()
            if name in names
        },
        "mean_norm": told.get("mean_update_norm"),
        "product_gap": told.get("product_gap"),
        "cosines": {
            key: matrix(told[name], names)
            for key, name in (("factors", "cosine"), ("products", "product_cosine"))
            if told.get(name)
        },
    }


def matrix(pairs: Mapping[str, float | None], names: list[str]) -> list[list[float | None]]:
    """Of values under `a|b`, each client with each.

    >>> matrix({"a|b": 0.5}, ["a", "b", "c"])
    [[1.0, 0.5, None], [0.5, 1.0, None], [None, None, None]]
    """
    there = {name for pair in pairs for name in pair.split("|")}
    return [
        [
            (1.0 if one in there else None)
            if one == other
            else pairs.get(f"{one}|{other}", pairs.get(f"{other}|{one}"))
            for other in names
        ]
        for one in names
    ]


def _buffer(shown: Shown, client: str) -> list[dict[str, Any]]:
    """How many trajectories the buffer holds, by the round and the source they came from."""
    try:
        rows = sources(shown.run.client_folder(client) / "buffer.sqlite")
    except FedseError:
        return []
    return [
        {
            "round": number,
            "source": _DEMONSTRATED if purpose == "demonstrate" else f"{_FOUND.get(purpose, purpose)} in {world}",
            "count": count,
        }
        for number, world, purpose, count in rows
    ]
