"""What refused updates mean for a run: when it stops for them, and what it says of them in the end.

A single site must not be able to stop a federation. So a run stops only if all updates of a round are useless and they are
of several sites, or of the only one that learns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedse.federation.checks import NOT_FINITE, UNCHANGED
from fedse.federation.exchange import Replies
from fedse.runs.reading import RunView

MOST = 5
"""Sites that are named."""


def fruitless(refused: Mapping[str, str], answers: Replies, clients: Iterable[str]) -> str:
    """Why a round without a usable update cannot be repeated with more luck; nothing where the run should go on.

    Updates that a bound refuses may pass it in another round; those that are not finite, or equal the broadcast adapter, are
    of a learner that does not work.
    """
    diverged = any(reason.endswith(NOT_FINITE) for reason in refused.values())
    if not refused or not all(reason == UNCHANGED or reason.endswith(NOT_FINITE) for reason in refused.values()):
        return ""
    measuring = {client for client, update in answers.updates.items() if update.counts.get("only_measures")}
    if len(refused) == 1 and set(clients) - refused.keys() - measuring:
        return ""
    reasons = "; ".join(_some([f"{client}: {reason}" for client, reason in sorted(refused.items())]))
    advice = (
        ": learning diverged, and nothing of the round was stored; begin a run with another `name` and smaller steps, such "
        "as a smaller `learner.learning_rate`"
    )
    return f"({reasons}){advice if diverged else ''}."


def refusals_of(run: RunView) -> list[str]:
    """Of all its rounds."""
    return refusals({number: run.report(number) for number in range(1, (run.last_round() or 0) + 1)})


def refusals(reports: Mapping[int, Mapping[str, Any] | None]) -> list[str]:
    """Sentences for whoever looks at a run, one for rounds that came to nothing and one for each site of which nothing was
    ever used."""
    lost: list[int] = []
    used: set[str] = set()
    refused: dict[str, list[str]] = {}
    for number, known in reports.items():
        report = known or {}
        told = report.get("diagnostics", {})
        used.update(told.get("contributed", []))
        for client, reason in report.get("refused", {}).items():
            refused.setdefault(client, []).append(reason)
        if not told.get("contributed") and (report.get("refused") or told.get("secure_sum", {}).get("void")):
            lost.append(number)
    never = {client: reasons for client, reasons in refused.items() if client not in used}
    return [*_of_rounds(lost, len(reports)), *_of_sites(never)]


def _of_rounds(lost: list[int], rounds: int) -> Iterator[str]:
    if lost:
        which = ", ".join(_some([str(number) for number in lost]))
        yield (
            f"In {len(lost)} of {rounds} rounds ({which}) there were updates, and none could be used: the shared adapter "
            "stayed as it was."
        )


def _of_sites(refused: Mapping[str, list[str]]) -> Iterator[str]:
    for client, reasons in sorted(refused.items())[:MOST]:
        all_of_them = f"None of the {len(reasons)} updates" if len(reasons) > 1 else "The only update"
        cannot = "could be used" if len(reasons) > 1 else "could not be used"
        yield f"{all_of_them} of {client} {cannot}: the shared adapter has learned nothing from it ({reasons[-1]})."
    if len(refused) > MOST:
        yield f"The same holds for {len(refused) - MOST} more clients."


def _some(items: list[str]) -> list[str]:
    """The first ones, and how many more there are."""
    return items if len(items) <= MOST else [*items[:MOST], f"{len(items) - MOST} more"]
