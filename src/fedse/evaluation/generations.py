"""Whether an adapter is better all over or only on average, after Open-Ended Learning (Stooke and others, arXiv 2107.12808).

    score of a kind      = its success / the best success that any generation had in it
    P_q of a generation  = the q-th percentile of its scores over all kinds
    participation        = share of the kinds in which it has any success

A kind is a category of tasks in a world of a client; a generation is the adapter after a round. All generations of a run are
measured on the tasks that all of them played: with `evaluation.tasks_per_round` these are the ones of a round. One
generation is better than another if it is nowhere lower in these numbers and somewhere higher. Low percentiles show what a
mean hides: that what is hard was given up for what is easy. In the paper tasks are single, scores are means of many
episodes, and in place of the best there is the value of an equilibrium between the agents that were trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedse.errors import BadInput
from fedse.evaluation.curves import is_of_passed_mean
from fedse.experience.journal import Journal
from fedse.runs.reading import RunView
from fedse.types import Outcome, Purpose, Trajectory

PERCENTILES = (10, 20, 50)
Kind = tuple[str, str, str]
"""Client, world and category."""
Played = dict[Kind, dict[str, bool]]
"""Success of each task of each kind."""
Verdict = Literal["", "better", "worse", "the same", "neither"]


@dataclass(frozen=True)
class Generation:
    """An adapter, in numbers over all kinds of tasks."""

    run: str
    round: int
    participation: float
    percentiles: tuple[float, ...]
    verdict: Verdict = ""
    """Beside the generation before it in the same run; nothing for the first."""

    @property
    def _numbers(self) -> tuple[float, ...]:
        return self.participation, *self.percentiles

    def beside(self, earlier: Generation) -> Verdict:
        pairs = list(zip(self._numbers, earlier._numbers, strict=True))
        higher, lower = any(ours > theirs for ours, theirs in pairs), any(ours < theirs for ours, theirs in pairs)
        if higher and lower:
            return "neither"
        return "better" if higher else "worse" if lower else "the same"


def successes(trajectories: Iterable[Trajectory]) -> Played:
    """Which tasks succeeded in what was played to measure. Errors are no part of it."""
    found: Played = {}
    for item in trajectories:
        if item.purpose is Purpose.EVALUATE and item.outcome is not Outcome.ERROR:
            tasks = found.setdefault((item.client, item.world, item.category), {})
            tasks[item.task] = item.outcome is Outcome.SUCCESS
    return found


def measured(run: RunView) -> dict[int, dict[Kind, float]]:
    """Success of each kind with the adapter after each round, on the validation tasks that all these adapters played."""
    found: dict[int, Played] = {}
    folders = sorted(path for path in (run.path / "clients").glob("*") if path.is_dir())
    for number in range((run.last_round() or 0) + 1):
        # A round measures the adapter that enters it; the closing evaluation, that after the last round.
        closing = [] if is_of_passed_mean(run, number) else [f"validation-{number:04d}"]
        for name in (f"{number + 1:04d}", *closing):
            for folder in folders:
                run.check_journal(folder.name, name)
                for kind, tasks in successes(Journal(folder / "episodes").read(name)).items():
                    found.setdefault(number, {}).setdefault(kind, {}).update(tasks)
    if not found:
        raise BadInput(f"{run.path}: no validation episodes are here: look where the journals of its clients are.")
    return on_the_same_tasks(str(run.path), found)


def on_the_same_tasks(run: str, played: Mapping[int, Played]) -> dict[int, dict[Kind, float]]:
    """Success of each kind. With more tasks in the end than on the way, an adapter that stayed the same would differ."""
    common: dict[Kind, set[str]] = {}
    for own in played.values():
        for kind, tasks in own.items():
            common[kind] = common.get(kind, set(tasks)) & tasks.keys()
    for (client, world, category), tasks_of in common.items():
        if not tasks_of:
            raise BadInput(
                f"{run}: no task of the category '{category or 'all'}' of '{world}' at '{client}' was measured with all "
                "adapters without an error, so that generations cannot be told apart by it: measure more tasks in a round "
                "(`evaluation.tasks_per_round`)."
            )
    return {
        number: {
            kind: sum(tasks[task] for task in common[kind]) / len(common[kind]) for kind, tasks in sorted(own.items())
        }
        for number, own in played.items()
    }


def generations(runs: Mapping[str, Mapping[int, Mapping[Kind, float]]]) -> list[Generation]:
    """All adapters of some runs, normalised together."""
    every = [own for by_round in runs.values() for own in by_round.values()]
    kinds = sorted({kind for own in every for kind in own})
    best = {kind: max(own.get(kind, 0.0) for own in every) for kind in kinds}
    found: list[Generation] = []
    for run, by_round in runs.items():
        before: Generation | None = None
        for number, own in sorted(by_round.items()):
            made = _generation(run, number, own, best)
            if before is not None:
                made = Generation(run, number, made.participation, made.percentiles, made.beside(before))
            found.append(made)
            before = made
    return found


def _generation(run: str, number: int, own: Mapping[Kind, float], best: Mapping[Kind, float]) -> Generation:
    if missing := sorted(best.keys() - own.keys()):
        client, world, category = missing[0]
        raise BadInput(
            f"{run}: after round {number} no task of the category '{category or 'all'}' of '{world}' at '{client}' was "
            "measured, so that generations cannot be told apart by it: give runs with the same worlds, and "
            + (
                "measure as many tasks in a round (`evaluation.tasks_per_round`) as have all categories."
                if any(kind[:2] == (client, world) for kind in own)
                else f"measure what was left out where '{client}' took no part with `fedse eval {run} --round {number} "
                "--split validation`."
            )
        )
    scores: Sequence[float] = [own[kind] / best[kind] if best[kind] else 0.0 for kind in best]
    return Generation(
        run,
        number,
        participation=sum(score > 0 for score in scores) / len(scores),
        percentiles=tuple(float(value) for value in np.percentile(scores, PERCENTILES)),
    )
