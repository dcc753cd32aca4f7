"""The first view: what a run has reached in each world, how far it has come, what it took and what went wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedse.evaluation.curves import curves
from fedse.evaluation.metrics import kind_of, learned_tokens, micro_interval, wilson
from fedse.evaluation.paired import macro_interval
from fedse.experiments.completion import why_stopped
from fedse.experiments.methods import in_words
from fedse.federation.refusals import refusals
from fedse.page.progress import Progress
from fedse.page.shown import Shown
from fedse.runs import provenance
from fedse.runs.in_use import in_use

_FEED = 12

Rows = Sequence[Mapping[str, Any]]


def overview(shown: Shown) -> dict[str, Any]:
    """Everything in it is counts, names and the run's own sentences: no trajectory."""
    events = shown.run.events()
    progress = Progress(events)
    found = {} if shown.kind == "site" else curves(shown.run)
    last = shown.last_round()
    reports = {number: shown.run.report(number) for number in range(1, last + 1)}
    experiment = shown.experiment
    return {
        "name": shown.name,
        "kind": shown.kind,
        "method": in_words(experiment),
        "model": experiment.model.name,
        "running": in_use(shown.run.path),
        "round": progress.round,
        "done": last,
        "planned": progress.planned or experiment.rounds_to_play,
        "began": progress.began,
        "latest": progress.latest,
        "left": progress.left(time.time()),
        "place": events[-1].after if events else 0,
        "worlds": [
            {
                "name": name,
                "rows": [_point(row) for row in rows],
                "above": above_the_floor(rows),
                **{key: _most_tasks(rows).get(key) for key in ("floor", "ceiling")},
            }
            for name, rows in found.items()
        ],
        "means": means(found),
        "tests": shown.run.evaluation("test", last) if shown.kind != "site" else None,
        "clients": _clients(shown, progress, reports),
        "totals": _totals(reports.values()),
        "problems": [
            *_refused(reports),
            *progress.problems,
            *_broken(reports),
            *_unfinished(shown, progress),
            *_missing(shown),
        ],
        "feed": progress.feed[-_FEED:],
        "made_with": [provenance.in_words(maker) for maker in shown.run.makers() if maker],
    }


def means(found: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """Macro and micro success after each round in which every world was measured."""
    by_adapter: dict[int, list[Mapping[str, Any]]] = {}
    for rows in found.values():
        for row in rows:
            if row["success"] is not None:
                by_adapter.setdefault(row["adapter"], []).append(row)
    points = []
    for adapter, rows in sorted(by_adapter.items()):
        if len(rows) < len(found):
            continue
        shares = [row["success"] for row in rows]
        episodes, successes = (sum(row[key] for row in rows) for key in ("episodes", "successes"))
        points.append(
            {
                "adapter": adapter,
                "macro": sum(shares) / len(shares),
                "macro_interval": macro_interval(
                    shares, [row["interval"] for row in rows], [kind_of(row["world"]) for row in rows]
                ),
                "micro": successes / episodes,
                "micro_interval": micro_interval(rows),
                "episodes": episodes,
                "floor": sum(row["floor"] for row in rows) / len(rows),
                "ceiling": _mean([row["ceiling"] for row in rows]),
            }
        )
    return points


def above_the_floor(rows: Rows) -> int | None:
    """The first round after which success is clearly above that of a random policy, and stays so: its interval is above that
    of the floor, which is an estimate too, as it is known from the most tasks."""
    measured = [row for row in rows if row["success"] is not None]
    if not measured:
        return None
    most = _most_tasks(measured)
    # Each task is one trial, however often the random policy attempted it: some tasks are easier than others.
    chance = wilson(most["floor"] * most["episodes"], most["episodes"])[1]
    first = None
    for row in reversed(measured):
        if row["interval"][0] <= chance:
            break
        first = row["adapter"]
    return first


def _most_tasks(rows: Rows) -> Mapping[str, Any]:
    """Rounds in between may be measured on few tasks, and their floor and ceiling too."""
    return max(rows, key=lambda row: row["episodes"], default={})


def _point(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("adapter", "client", "world", "episodes", "success", "interval", "steps", "tokens", "invalid")
    return {**{key: row[key] for key in keys}, "errors": sum(row["errors"].values())}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _clients(shown: Shown, progress: Progress, reports: Mapping[int, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    states = progress.doing if in_use(shown.run.path) is not False else progress.states
    return [_client(name, states.get(name), reports) for name in shown.clients()]


def _client(name: str, state: str | None, reports: Mapping[int, Mapping[str, Any] | None]) -> dict[str, Any]:
    entries = [
        (number, report["clients"][name])
        for number, report in reports.items()
        if report is not None and name in report["clients"]
    ]
    nothing: dict[str, Any] = {"counts": {}, "metrics": {}, "state": ""}
    number, newest = entries[-1] if entries else (None, nothing)
    return {
        "client": name,
        "doing": newest["state"] if state is None else state,
        "round": number,
        **{key: newest["counts"].get(key) for key in ("explored", "successes", "errors", "buffer")},
        "loss": newest["metrics"].get("loss"),
        "bytes": sum(entry.get("bytes", 0) for _, entry in entries),
    }


def _totals(reports: Any) -> dict[str, Any]:
    there = [report for report in reports if report is not None]
    entries = [entry for report in there for entry in report["clients"].values()]
    return {
        "seconds": sum(report["seconds"] for report in there),
        "sampled": sum(entry["counts"].get("agent_tokens", 0) for entry in entries),
        "learned": learned_tokens(entry["metrics"] for entry in entries),
        "up": sum(entry.get("bytes", 0) for entry in entries),
        "down": sum(
            (report.get("broadcast_bytes", 0) + report.get("library_bytes", 0)) * len(report["clients"])
            for report in there
        ),
    }


def _refused(reports: Mapping[int, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """What refused updates mean for the run; each of them is told by itself as well."""
    return [{"time": None, "round": None, "text": sentence, "times": 1} for sentence in refusals(reports)]


def _broken(reports: Mapping[int, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """Explorations that ended in an error. Nobody warns of few of them, and each is worth reading."""
    return [
        {
            "time": None,
            "round": number,
            "text": f"{name}: {count} of {entry['counts'].get('explored')} explorations ended in an error",
            "times": 1,
            "asked": {"client": name, "round": number, "outcome": "error"},
        }
        for number, report in reports.items()
        for name, entry in (report or {"clients": {}})["clients"].items()
        if (count := entry["counts"].get("errors"))
    ]


def _unfinished(shown: Shown, progress: Progress) -> list[dict[str, Any]]:
    """Why a run stopped, and what broke in a round without a report, which may be why."""
    # Killed between the two, a round is stored and its end in no event.
    within = progress.unfinished is not None and progress.round > (shown.run.last_round() or 0)
    clients = {name: {"counts": counts} for name, counts in (progress.unfinished or {}).items()}
    return [
        *(_broken({progress.round: {"clients": clients}}) if within else []),
        *(_stopped(shown, progress, within) if in_use(shown.run.path) is False else []),
    ]


def _stopped(shown: Shown, progress: Progress, within: bool) -> list[dict[str, Any]]:
    why = why_stopped(shown.run)
    if not within and why is None:
        return []
    where = "in this round, before it was complete" if within else "before it was done"
    text = f"The run stopped {where}{'. The command that started the run repeats it.' if why is None else f': {why}'}"
    return [{"time": progress.latest, "round": progress.round if within else None, "text": text, "times": 1}]


def _missing(shown: Shown) -> list[dict[str, Any]]:
    missing = [] if shown.kind == "site" else shown.run.missing()
    return [
        {"time": None, "round": None, "text": f"{path.name} of {path.parent.name} is missing.", "times": 1}
        for path in missing
    ]
