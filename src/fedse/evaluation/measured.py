"""What a run reached and what it cost, read from its folder: the outcome of each task, curves over rounds, sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedse.errors import BadInput, RunConflict
from fedse.evaluation.curves import curves
from fedse.evaluation.metrics import learned_tokens
from fedse.experience.journal import Journal
from fedse.runs.reading import RunView
from fedse.types import Outcome, Purpose

Place = tuple[str, str]
"""A client and the label of a world it holds."""


@dataclass(frozen=True)
class Cost:
    """What the rounds up to some adapter took together."""

    explored_tokens: int = 0
    """Tokens the agents sampled while exploring."""
    learned_tokens: int | None = 0
    """Tokens that went through the learners, once for each epoch; None where no learner counts them."""
    seconds: float = 0.0
    """Time of the rounds, with their evaluations."""
    bytes: int | None = 0
    """Adapters sent up and down; None where trajectories are pooled, which this does not count."""
    hint_tokens: int = 0
    """Tokens of hints that the agents read while exploring."""


@dataclass(frozen=True)
class Agreement:
    """How far the clients' changes of one round point the same way."""

    cosine: float | None
    """Mean over all pairs of clients; None where the report holds no pairs."""
    product_gap: float | None
    """Share of the mean product that is lost by averaging A and B apart; None where no client sends both."""


@dataclass(frozen=True)
class Measured:
    """One run. Worlds go by the names they have in the experiment file, whoever holds them."""

    name: str
    seed: int
    method: str
    settings: Mapping[str, Any]
    """Every key of the experiment except name, seed and roundings, flat."""
    round: int
    """Rounds behind the adapter that was measured."""
    worlds: Mapping[str, Mapping[str, bool]]
    """Success of each task that did not end in an error."""
    errors: int
    curves: Mapping[str, Mapping[int, float]]
    """Validation success of each world after each round."""
    costs: Mapping[int, Cost] = field(default_factory=dict)
    """Cost of the rounds behind each adapter."""
    agreements: Mapping[int, Agreement] = field(default_factory=dict)
    """Of each round in which adapters were put together."""
    roundings: Mapping[str, Any] = field(default_factory=dict)
    """Keys that change at most how sums are rounded, flat."""
    made_with: Sequence[Mapping[str, Any]] = ()
    """Versions, commit and machine; several if the run went on elsewhere, an empty one where nothing was noted."""


def world_name(client: str, label: str) -> str:
    return client if client == label else f"{client}: {label}"


def outcomes(
    run: RunView, split: str, number: int, places: Mapping[Place, str]
) -> tuple[dict[str, dict[str, bool]], int]:
    """Success of each task in the closing evaluation of a split, and how many ended in an error."""
    found: dict[str, dict[str, bool]] = {name: {} for name in places.values()}
    errors = 0
    for client in sorted({client for client, _ in places}):
        journal = Journal(run.client_folder(client) / "episodes")
        if f"{split}-{number:04d}" not in journal.names():
            raise BadInput(
                f"{run.path}: the {split} episodes of client '{client}' after round {number} are not here: compare where "
                f"they are, or play them again with `fedse eval {run.path} --split {split}`."
            )
        run.check_journal(client, f"{split}-{number:04d}")
        for trajectory in journal.read(f"{split}-{number:04d}"):
            if trajectory.purpose is Purpose.EVALUATE and trajectory.outcome is not Outcome.ERROR:
                name = _named(run, places, client, trajectory.world)
                found[name][trajectory.task] = trajectory.outcome is Outcome.SUCCESS
            errors += trajectory.outcome is Outcome.ERROR
    return found, errors


def success_curves(run: RunView, places: Mapping[Place, str]) -> dict[str, dict[int, float]]:
    """Validation success of each world after each round in which it was measured."""
    found: dict[str, dict[int, float]] = {name: {} for name in places.values()}
    for rows in curves(run).values():
        for row in rows:
            if row["success"] is not None:
                found[_named(run, places, row["client"], row["world"])][row["adapter"]] = row["success"]
    return found


def _named(run: RunView, places: Mapping[Place, str], client: str, world: str) -> str:
    if (client, world) not in places:
        raise RunConflict(
            f"{run.path} is damaged: its records name a world '{world}' of client '{client}', which its experiment does not "
            "have; restore it from a copy."
        )
    return places[client, world]


def costs(run: RunView, sharing: bool, pooled: bool) -> dict[int, Cost]:
    """What the rounds up to each adapter took."""
    total = Cost(bytes=None if pooled else 0)
    found = {0: total}
    lessons: list[Mapping[str, float]] = []
    for number in range(1, (run.last_round() or 0) + 1):
        report = run.report(number)
        if report is None:
            raise RunConflict(
                f"{run.path}: the report of round {number} is missing, so what the run took cannot be told: restore it "
                "from a copy of the run."
            )
        clients = report["clients"].values()
        lessons += [entry["metrics"] for entry in clients]
        up = [entry.get("bytes", 0) for entry in clients]
        down = report.get("broadcast_bytes", max(up, default=0)) + report.get("library_bytes", 0)
        crossed = sum(up) + down * len(up) if sharing else 0
        total = Cost(
            total.explored_tokens + sum(entry["counts"].get("agent_tokens", 0) for entry in clients),
            learned_tokens(lessons),
            total.seconds + report["seconds"],
            None if total.bytes is None else total.bytes + crossed,
            total.hint_tokens + sum(entry["counts"].get("hint_tokens", 0) for entry in clients),
        )
        found[number] = total
    return found


def agreements(run: RunView) -> dict[int, Agreement]:
    """What the reports say about the updates of each round."""
    found = {}
    for number in range(1, (run.last_round() or 0) + 1):
        diagnostics = (run.report(number) or {}).get("diagnostics", {})
        if "product_gap" in diagnostics:
            pairs = [value for value in diagnostics.get("cosine", {}).values() if value is not None]
            found[number] = Agreement(sum(pairs) / len(pairs) if pairs else None, diagnostics["product_gap"])
    return found


def has_evaluation(run: RunView, split: str) -> bool:
    """Whether the newest adapter was measured on the split."""
    number = run.last_round()
    found = None if number is None else run.evaluation(split, number)
    return number is not None and found is not None and found.get("adapter") == run.digest_of(number)
