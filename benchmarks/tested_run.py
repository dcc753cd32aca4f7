"""What one run reached, from its folder: success and tokens of its test, what was drawn, what its lessons told.

The episodes of the test need not be there. Then success, tokens and invalid actions are those of `evaluations/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import unpaired

from fedse.experience.journal import Journal
from fedse.types import Outcome, Trajectory

ByTask = dict[str, dict[str, bool]]
"""Of each site, whether each task was solved."""
BETTER_AND_WORSE = (("winner_log_ratio", "loser_log_ratio"), ("success_log_ratio", "failure_log_ratio"))
TOLD = ("entropy", "uniform_groups", "solved_groups", "replay_weight", *sum(BETTER_AND_WORSE, ()))
"""What learners report of a lesson, as far as a claim is about it."""


class Run:
    """What one run reached, mean over its sites."""

    def __init__(self, folder: Path) -> None:
        self.seed = int(re.sub(r".*_s?", "", folder.name))
        self.rounds = [json.loads(path.read_text()) for path in sorted(folder.glob("rounds/*/report.json"))]
        last = len(self.rounds)
        self.first, self.last = (_adapter(folder, number) for number in (0, last))
        self.evaluated = _evaluated(folder / "evaluations" / f"test-{last:04d}.json")
        self.greedy = _played(folder, f"test-{last:04d}")
        self.drawn = _played(folder, f"probes-test-{last:04d}")

    def by_task(self, quantity: str) -> ByTask:
        """Success of the greedy attempt, or of any of those that were drawn."""
        found: ByTask = {}
        for site, played in (self.greedy if quantity == "success" else self.drawn).items():
            for item in played:
                own = found.setdefault(site, {})
                task = _named(item)
                own[task] = own.get(task, False) or item.outcome is Outcome.SUCCESS
        return found

    def by_world(self) -> ByTask:
        """Success of the greedy attempt in each world, whatever the sites are called; nothing where sites share a world."""
        found: ByTask = {}
        for played in self.greedy.values():
            if not found.keys().isdisjoint(item.world for item in played):
                return {}
            for item in played:
                found.setdefault(item.world, {})[_named(item)] = item.outcome is Outcome.SUCCESS
        return found

    def counts(self) -> unpaired.Counts:
        return unpaired.counts_of(self.evaluated)

    def success(self) -> dict[str, float]:
        """Of each site, in percent."""
        if self.greedy:
            return {site: percent(own.values()) for site, own in self.by_task("success").items()}
        return {row["client"]: points(row["success"]) for row in self.evaluated}

    def numbers(self) -> dict[str, float]:
        greedy = map(_of_greedy, self.greedy.values()) if self.greedy else map(_of_row, self.evaluated)
        return {
            **_means("", greedy),
            **_means("drawn_", map(_of_drawn, self.drawn.values())),
            "sampled_tokens": self._sum("counts", "agent_tokens"),
            "learned_tokens": self._sum("metrics", "tokens"),
        }

    def told(self) -> dict[str, dict[str, list[float | None]]]:
        """Of each site what the rule measured in each round; None where it did not learn."""
        sites = dict.fromkeys(site for report in self.rounds for site in report["clients"])
        lessons = {site: [lesson_of(report, site) for report in self.rounds] for site in sites}
        return {
            site: {name: [lesson.get(name) for lesson in own] for name in TOLD if any(name in item for item in own)}
            for site, own in lessons.items()
        }

    def _sum(self, part: str, name: str) -> float:
        return sum(client[part].get(name, 0) for report in self.rounds for client in report["clients"].values())


def lesson_of(report: Mapping[str, Any], site: str) -> Mapping[str, float]:
    told: Mapping[str, float] = report["clients"].get(site, {}).get("metrics", {})
    return told


def _named(item: Trajectory) -> str:
    """A task by a name that sites have in common only if they have its world in common: two may both have a `test-0`."""
    return f"{item.world} {item.task}"


def _adapter(folder: Path, number: int) -> str:
    """The digest of the adapter after a round."""
    noted = folder / "rounds" / f"{number:04d}" / "digests.json"
    files: Mapping[str, str] = json.loads(noted.read_text())["files"] if noted.exists() else {}
    return files.get("adapter/adapter_model.safetensors", "")


def _evaluated(path: Path) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = json.loads(path.read_text())["worlds"] if path.exists() else []
    return rows


def _played(folder: Path, name: str) -> dict[str, list[Trajectory]]:
    sites = sorted(path.parent.parent for path in folder.glob(f"clients/*/episodes/{name}.jsonl"))
    return {site.name: list(Journal(site / "episodes").read(name)) for site in sites}


def _of_greedy(played: Sequence[Trajectory]) -> dict[str, float]:
    won = [item.agent_tokens for item in played if item.outcome is Outcome.SUCCESS]
    return {
        "tokens": fmean(item.agent_tokens for item in played),
        **({"tokens_of_successes": fmean(won)} if won else {}),
        "invalid_actions": sum(item.invalid_actions for item in played) / sum(len(item.steps) for item in played),
    }


def _of_row(row: Mapping[str, Any]) -> dict[str, float]:
    return {"tokens": row["tokens"], "invalid_actions": row["invalid"]}


def _of_drawn(played: Sequence[Trajectory]) -> dict[str, float]:
    surprise = [-number for item in played for number in item.log_probs]
    groups: dict[str, list[Trajectory]] = {}
    for item in played:
        groups.setdefault(item.task, []).append(item)
    kinds = [len({tuple(step.action for step in item.steps) for item in own}) / len(own) for own in groups.values()]
    return {
        "success": fmean(item.outcome is Outcome.SUCCESS for item in played),
        **({"entropy": fmean(surprise)} if surprise else {}),
        "different": fmean(kinds),
    }


def _means(prefix: str, sites: Iterable[Mapping[str, float]]) -> dict[str, float]:
    told = list(sites)
    names = dict.fromkeys(name for site in told for name in site)
    return {prefix + name: fmean(site[name] for site in told if name in site) for name in names}


def percent(marks: Iterable[bool]) -> float:
    return round(100 * fmean(marks), 1)


def points(share: float) -> float:
    return round(100 * share, 1)
