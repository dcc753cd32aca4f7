"""What refused updates and void sums mean for a run: when it stops for them, and what it says of them in the end.

A single site must not be able to stop a federation, whatever it sends or says. So a run stops only if no update of a round
is of use and the same is wrong with several of them, which are more than half of the sites that could have learned; or with
that of the only site that learns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedse.federation.checks import NOT_FINITE, NOT_KEPT, UNCHANGED
from fedse.federation.client_status import ClientStatus, client_status
from fedse.federation.exchange import NOT_NEEDED, Replies
from fedse.runs.reading import RunView

MOST = 5
"""Sites that are named."""


def fruitless(refused: Mapping[str, str], answers: Replies, learners: Collection[str]) -> str:
    """Why a round without a usable update cannot be repeated with more luck; nothing where the run should go on.

    Updates that a bound refuses may pass it in another round; those that are not finite, or equal the broadcast adapter, are
    of a learner that does not work. `learners` are those of the experiment: what sites say of themselves may be false.
    """
    diverged = {client for client in learners if refused.get(client, "").endswith(NOT_FINITE)}
    unchanged = {client for client in learners if refused.get(client) == UNCHANGED}
    judged = diverged | unchanged
    if not judged or refused.keys() & set(learners) != judged or _learned_alone(refused, answers, learners):
        return ""
    # Whoever was not waited for tells nothing; all others that learn could have sent something better.
    able = [client for client in learners if client in answers.updates or _missed(answers, client)]
    alike = max(len(diverged), len(unchanged))
    if len(learners) > 1 and (alike < 2 or 2 * alike <= len(able)):
        return ""
    reasons = "; ".join(_some([f"{client}: {reason}" for client, reason in sorted(refused.items())]))
    advice = (
        ": learning diverged, and nothing of the round was stored; begin a run with another `name` and smaller steps, such "
        "as a smaller `learner.learning_rate`"
    )
    return f"({reasons}){advice if len(diverged) == alike else ''}."


def _missed(answers: Replies, client: str) -> bool:
    return answers.absent.get(client, NOT_NEEDED) != NOT_NEEDED


def _learned_alone(refused: Mapping[str, str], answers: Replies, learners: Collection[str]) -> bool:
    """Whether somebody learned who shares nothing: no update is missing then."""
    there = [update for client, update in answers.updates.items() if client in learners and client not in refused]
    return any(client_status(update, sent=False) is ClientStatus.KEPT for update in there)


def refusals_of(run: RunView) -> list[str]:
    """Of all its rounds."""
    return refusals({number: run.report(number) for number in range(1, (run.last_round() or 0) + 1)})


def refusals(reports: Mapping[int, Mapping[str, Any] | None]) -> list[str]:
    """Sentences for whoever looks at a run: of rounds that came to nothing, and of each site that is refused in half of its
    rounds or more. Rounds in which a site had nothing to learn from do not count."""
    lost: list[int] = []
    used: Counter[str] = Counter()
    refused: dict[str, list[tuple[int, str]]] = {}
    known = {number: report or {} for number, report in reports.items()}
    for number, report in known.items():
        told = report.get("diagnostics", {})
        of_use = {*told.get("contributed", []), *_alone(report)} - report.get("refused", {}).keys()
        used.update(of_use)
        for client, reason in report.get("refused", {}).items():
            refused.setdefault(client, []).append((number, reason))
        if report.get("refused") and not of_use and not told.get("secure_sum", {}).get("void"):
            lost.append(number)
    often = {client: times for client, times in refused.items() if len(times) >= used[client]}
    return [*_of_rounds(lost, len(reports)), *_of_sums(known), *_of_sites(often, used)]


def _alone(report: Mapping[str, Any]) -> list[str]:
    """Clients that learned and share nothing. Where anybody sent something, to say so is to have sent nothing."""
    entries = report.get("clients", {})
    if any(entry.get("bytes") for entry in entries.values()):
        return []
    return [client for client, entry in entries.items() if entry.get("state") == ClientStatus.KEPT]


def _of_rounds(lost: list[int], rounds: int) -> Iterator[str]:
    if lost:
        which = ", ".join(_some([str(number) for number in lost]))
        yield (
            f"In {len(lost)} of {rounds} rounds ({which}) there were updates, and none could be used: the shared adapter "
            "stayed as it was."
        )


def _of_sums(reports: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    """Without a participant there is no sum. Of any other void one the server cannot know whose part was wrong."""
    void: list[int] = []
    missing: dict[str, list[str]] = {}
    other = ""
    for number, report in reports.items():
        told = report.get("diagnostics", {}).get("secure_sum", {})
        if why := told.get("void"):
            void.append(number)
            # What a client could not keep of its own lesson was its own: the part that it added is there.
            refused = {client: why for client, why in report.get("refused", {}).items() if why != NOT_KEPT}
            gone = {**report.get("absent", {}), **refused}
            if without := [client for client in told.get("participants", ()) if client in gone]:
                for client in without:
                    missing.setdefault(client, []).append(gone[client])
            else:
                other = f" (in round {number}: {why})"
    if void:
        which = ", ".join(_some([str(number) for number in void]))
        yield (
            f"In {len(void)} of {len(reports)} rounds ({which}) the secure sum was void, and the shared adapter stayed as "
            f"it was{other}."
        )
    if missing:
        often = sorted(missing.items(), key=lambda item: (-len(item[1]), item[0]))
        names = _some([f"{client} in {len(reasons)} of them ({reasons[-1]})" for client, reasons in often])
        yield f"Void sums lacked the part of {', '.join(names)}."


def _of_sites(refused: Mapping[str, list[tuple[int, str]]], used: Mapping[str, int]) -> Iterator[str]:
    for client, times in sorted(refused.items())[:MOST]:
        last, reason = times[-1]
        own = reason == NOT_KEPT
        what = "lesson" if own else "update"
        nothing = "it has learned nothing" if own else "the shared adapter has learned nothing from it"
        if used.get(client):
            sent = len(times) + used[client]
            yield f"{len(times)} of the {sent} {what}s of {client} could not be used, the last in round {last} ({reason})."
        elif len(times) > 1:
            yield f"None of the {len(times)} {what}s of {client} could be used: {nothing} ({reason})."
        else:
            yield f"The only {what} of {client} could not be used: {nothing} ({reason})."
    if len(refused) > MOST:
        yield f"The same holds for {len(refused) - MOST} more clients."


def _some(items: list[str]) -> list[str]:
    """The first ones, and how many more there are."""
    return items if len(items) <= MOST else [*items[:MOST], f"{len(items) - MOST} more"]
