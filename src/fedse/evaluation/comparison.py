"""Runs side by side: those that differ in seed and roundings alone are one method; methods are paired task by task."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from fedse.errors import BadInput
from fedse.evaluation.measured import Measured
from fedse.evaluation.metrics import wilson
from fedse.evaluation.paired import Array, Difference, difference, holm, macro_interval, played_together

SURE = 0.05
DEFINITION = (
    "success of each task, greedy, frozen; 95 % Wilson intervals with each task as one trial; macro interval by square and "
    "add, sites with the same tasks as one; p: exact sign-flip test over tasks (McNemar's with one seed), Holm-corrected; "
    "intervals of differences by bootstrap of seeds and, within worlds, of tasks; over the seeds alone by Student's t"
)
_BEHIND_A_WORD = ("learning", "exploring", "sharing", "pooled")
_NO_DIFFERENCE = ("engine",)
"""Keys that change how a run is executed and not what it computes."""


@dataclass(frozen=True)
class Group:
    """Runs of one method with different seeds, on the tasks that all compared runs share."""

    label: str
    runs: Sequence[Measured]
    successes: Mapping[str, Array]
    """By world: a row for every run, a column for every task."""
    tasks: Mapping[str, Sequence[str]]
    """By world: the names of the columns."""

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def rounds(self) -> str:
        """In words: a run that was stopped may have been measured after fewer rounds than those with other seeds."""
        fewest, most = (choose(run.round for run in self.runs) for choose in (min, max))
        return str(most) if fewest == most else f"{fewest} to {most}"

    def world(self, name: str) -> tuple[float, tuple[float, float]]:
        """Mean success over seeds, and Wilson's interval with each task as one trial, however many seeds played it."""
        share, tasks = float(self.successes[name].mean()), self.successes[name].shape[1]
        return share, wilson(share * tasks, tasks)

    def macro(self) -> tuple[float, tuple[float, float]]:
        found = {name: self.world(name) for name in self.successes}
        shares = [share for share, _ in found.values()]
        played = {name: at for at, (names, _) in enumerate(played_together(self.tasks)) for name in names}
        bounds = macro_interval(shares, [bounds for _, bounds in found.values()], [played[name] for name in found])
        return sum(shares) / len(shares), bounds

    def micro(self) -> tuple[float, tuple[float, float]]:
        share = float(np.concatenate(list(self.successes.values()), axis=1).mean())
        trials = len({task for tasks in self.tasks.values() for task in tasks})
        return share, wilson(share * trials, trials)

    def macro_by_seed(self) -> dict[int, float]:
        return {
            run.seed: float(np.mean([world[row].mean() for world in self.successes.values()]))
            for row, run in enumerate(self.runs)
        }


@dataclass(frozen=True)
class Pair:
    """Two methods on the same tasks and, where they have them, the same seeds."""

    ours: str
    theirs: str
    seeds: Sequence[int]
    found: Difference
    p: float
    """Corrected by Holm for all pairs of the comparison."""
    by_world: Mapping[str, float]
    """Corrected by Holm for all pairs and worlds."""

    @property
    def verdict(self) -> str:
        """One is called better only when test and interval agree; the interval also allows for other seeds. With one seed
        there are no others to allow for, and only the two runs are compared."""
        low, high = self.found.macro_interval
        better = "is better" if len(self.seeds) > 1 else "has the better run"
        if self.p < SURE and low > 0 < self.found.micro:
            return f"{self.ours} {better}"
        if self.p < SURE and high < 0 > self.found.micro:
            return f"{self.theirs} {better}"
        return "not distinguishable"

    def differs_in(self, world: str) -> bool:
        """Whether a single world tells the two apart, by the same two measures."""
        low, high = self.found.by_world[world].interval
        return self.by_world[world] < SURE and not low <= 0 <= high


@dataclass(frozen=True)
class Comparison:
    groups: Sequence[Group]
    pairs: Sequence[Pair]
    notes: Sequence[str]
    """What the reader has to know about what was left out."""


def compare(runs: Sequence[Measured], against: str = "", all_pairs: bool = False) -> Comparison:
    """Group the runs, put them on common tasks, test each group against one of them (or all pairs)."""
    notes: list[str] = []
    labelled = label_groups(runs)
    tasks = _common_tasks(runs, notes)
    named = _with_worlds(tasks, runs[0])
    groups = [Group(label, members, _successes(members, tasks), named) for label, members in labelled.items()]
    for run in runs:
        if run.errors:
            notes.append(f"{run.name}: {run.errors} episodes ended in an error; their tasks are left out everywhere.")
    if len({run.round for run in runs if run.method != "pretrained"}) > 1:
        rounds = ", ".join(f"{group.label}: {group.rounds}" for group in groups)
        notes.append(f"The adapters come from different numbers of rounds ({rounds}).")
    if roundings := _unlike(run.roundings for run in runs):
        notes.append(f"Not the same in all runs: {roundings}; this changes at most how sums are rounded.")
    makers = [maker for run in runs for maker in run.made_with]
    noted = dict.fromkeys(key for maker in makers for key in maker)
    if different := _unlike({key: maker.get(key, "not noted") for key in noted} for maker in makers):
        notes.append(f"Not made with the same: {different}.")
    reference = _reference(groups, against)
    chosen = [(reference, theirs) for theirs in groups if theirs is not reference]
    if all_pairs:
        chosen = list(combinations(groups, 2))
    for ours, theirs in chosen:
        if not set(ours.seeds) & set(theirs.seeds):
            notes.append(f"{ours.label} and {theirs.label} have no seed in common: their first seeds are paired.")
    if any(len(group.runs) == 1 for group in groups):
        notes.append("A method with one seed: what is said of it holds for this run; another seed may differ.")
    return Comparison(groups, _pairs(chosen, named), notes)


def label_groups(runs: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Runs by what tells them apart. Seeds within a group are sorted, and may not stand twice."""
    members = _alike(runs)
    if any(_seed_twice(group) is not None for group in members):
        # Who compares a run with itself, rounded differently, asks what roundings do.
        runs = [replace(run, settings={**run.settings, **run.roundings}) for run in runs]
        members = _alike(runs)
    for group in members:
        if (twice := _seed_twice(group)) is not None:
            names = " and ".join(run.name for run in group if run.seed == twice)
            raise BadInput(f"{names} are the same experiment with the same seed: leave one of them out.")
    named: dict[str, list[Measured]] = {}
    for group, label in zip(members, _labels([group[0] for group in members]), strict=True):
        named[label] = sorted(group, key=lambda run: run.seed)
    return named


def _alike(runs: Sequence[Measured]) -> list[list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for run in runs:
        relevant = {key: value for key, value in run.settings.items() if key.split(".")[0] not in _NO_DIFFERENCE}
        groups.setdefault(json.dumps(relevant, sort_keys=True, default=str), []).append(run)
    return list(groups.values())


def _seed_twice(group: Sequence[Measured]) -> int | None:
    seeds = Counter(run.seed for run in group)
    return next((seed for seed, count in seeds.items() if count > 1), None)


def _labels(firsts: Sequence[Measured]) -> list[str]:
    """The method, and the settings in which a group is unlike most others; names of runs where that says too much of one
    group, or the same of two."""
    keys = sorted({key for run in firsts for key in run.settings})
    skipped = {*_BEHIND_A_WORD, *_NO_DIFFERENCE, "method"}
    usual = {key: _of_most(key, firsts) for key in keys if key.split(".")[0] not in skipped}
    labels = []
    short = True
    for run in firsts:
        unusual = [
            f"{_short(key, keys)}={run.settings.get(key)}"
            for key in sorted(usual, key=lambda key: key.removesuffix(".name"))
            if _tells(run.settings.get(key), usual[key]) and not _of_another_plugin(key, run)
        ]
        short = short and len(unusual) <= 4 and all(len(item) <= 40 for item in unusual)
        labels.append(", ".join([run.method, *unusual]))
    if short and len(set(labels)) == len(labels):
        return labels
    # A sweep names its runs by variant and seed.
    variants = [run.name.removesuffix(f"-s{run.seed}") for run in firsts]
    return variants if len(set(variants)) == len(variants) else [run.name for run in firsts]


def _of_most(key: str, runs: Sequence[Measured]) -> str | None:
    """What more than half of them have; where no value is so common, none goes without saying."""
    value, count = Counter(json.dumps(run.settings.get(key), default=str) for run in runs).most_common(1)[0]
    return value if 2 * count > len(runs) else None


def _tells(value: Any, usual: str | None) -> bool:
    return value is not None if usual is None else json.dumps(value, default=str) != usual


def _of_another_plugin(key: str, run: Measured) -> bool:
    """Whether the key says nothing about a run: its plug-in has no such option, or its method brings its own."""
    slot = key.split(".")[0]
    return (key not in run.settings and f"{slot}.name" in run.settings) or (
        run.method == "fedit" and slot == "aggregator"
    )


def _short(key: str, keys: Sequence[str]) -> str:
    """The last word of a key, with the word before it where another key ends alike."""
    words = key.removesuffix(".name").split(".")
    alike = [other for other in keys if other.removesuffix(".name").split(".")[-1] == words[-1]]
    return ".".join(words[-2:] if len(alike) > 1 else words[-1:])


def _unlike(descriptions: Iterable[Mapping[str, Any]]) -> str:
    """Keys that do not have one value everywhere, with their values."""
    found: dict[str, set[str]] = {}
    for description in descriptions:
        for key, value in description.items():
            found.setdefault(key, set()).add(value if isinstance(value, str) else json.dumps(value, default=str))
    return ", ".join(f"{key} ({' or '.join(sorted(values))})" for key, values in found.items() if len(values) > 1)


def _common_tasks(runs: Sequence[Measured], notes: list[str]) -> dict[str, list[str]]:
    for name in sorted({name for run in runs for name in run.worlds}):
        described = {
            json.dumps(run.settings.get(f"worlds.{name}"), sort_keys=True) for run in runs if name in run.worlds
        }
        if len(described) > 1:
            raise BadInput(
                f"the world '{name}' has different options in these runs, so its tasks are not the same: compare runs "
                "with equal worlds."
            )
    common = {
        name: sorted(set.intersection(*(set(run.worlds[name]) for run in runs)))
        for name in runs[0].worlds
        if all(name in run.worlds for run in runs)
    }
    common = {name: tasks for name, tasks in common.items() if tasks}
    if not common:
        raise BadInput("these runs were measured on no common task: compare runs with equal worlds on the same split.")
    left_out = sorted({name for run in runs for name in run.worlds} - common.keys())
    if left_out:
        notes.append(f"Not all runs have {', '.join(left_out)}: compared without.")
    for name, tasks in common.items():
        most = max(len(run.worlds[name]) for run in runs)
        if most > len(tasks):
            notes.append(f"{name}: compared on the {len(tasks)} tasks that all runs played; some played {most}.")
    return common


def _with_worlds(tasks: Mapping[str, Sequence[str]], run: Measured) -> dict[str, list[str]]:
    """Tasks by names that only sites with the same world have in common: different ones may both have a `test-0`."""
    return {
        name: [f"{(run.settings.get(f'worlds.{name}') or {}).get('name', name)} {task}" for task in chosen]
        for name, chosen in tasks.items()
    }


def _successes(runs: Sequence[Measured], tasks: Mapping[str, Sequence[str]]) -> dict[str, Array]:
    return {
        name: np.array([[float(run.worlds[name][task]) for task in chosen] for run in runs])
        for name, chosen in tasks.items()
    }


def _reference(groups: Sequence[Group], against: str) -> Group:
    wanted = against or "fed_se"
    for group in groups:
        if wanted == group.label or against in [run.name for run in group.runs]:
            return group
    # Labels may be names of runs, or say more than the method.
    of_method = [group for group in groups if group.runs[0].method == wanted]
    if not against:
        return (of_method or groups)[0]
    if len(of_method) == 1:
        return of_method[0]
    raise BadInput(f"--against {against}: these runs are {'; '.join(group.label for group in groups)}.")


def _pairs(chosen: Sequence[tuple[Group, Group]], tasks: Mapping[str, Sequence[str]]) -> list[Pair]:
    found: list[tuple[Group, Group, list[int], Difference]] = []
    for ours, theirs in chosen:
        seeds = sorted(set(ours.seeds) & set(theirs.seeds))
        if seeds:
            of_ours, of_theirs = _rows(ours, seeds), _rows(theirs, seeds)
        else:
            seeds = [ours.seeds[0]]
            of_ours, of_theirs = _rows(ours, ours.seeds[:1]), _rows(theirs, theirs.seeds[:1])
        found.append((ours, theirs, seeds, difference(of_ours, of_theirs, seeds, tasks)))
    overall = holm([item.p for *_, item in found])
    worlds = iter(holm([world.p for *_, item in found for world in item.by_world.values()]))
    return [
        Pair(ours.label, theirs.label, seeds, item, p, {name: next(worlds) for name in item.by_world})
        for (ours, theirs, seeds, item), p in zip(found, overall, strict=True)
    ]


def _rows(group: Group, seeds: Sequence[int]) -> dict[str, Array]:
    chosen = [group.seeds.index(seed) for seed in seeds]
    return {name: world[chosen] for name, world in group.successes.items()}


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "methods": [
            {
                "label": group.label,
                "runs": [run.name for run in group.runs],
                "seeds": group.seeds,
                "rounds": group.runs[0].round,
                "worlds": {
                    name: {"success": share, "interval": bounds, "tasks": group.successes[name].shape[1]}
                    for name in group.successes
                    for share, bounds in [group.world(name)]
                },
                "macro": group.macro()[0],
                "macro_interval": group.macro()[1],
                "macro_by_seed": group.macro_by_seed(),
                "micro": group.micro()[0],
                "micro_interval": group.micro()[1],
                "curves": {run.name: run.curves for run in group.runs},
                "made_with": {run.name: list(run.made_with) for run in group.runs},
                "costs": {run.name: {number: vars(cost) for number, cost in run.costs.items()} for run in group.runs},
                "agreements": {
                    run.name: {number: vars(found) for number, found in run.agreements.items()} for run in group.runs
                },
            }
            for group in comparison.groups
        ],
        "pairs": [
            {
                "ours": pair.ours,
                "theirs": pair.theirs,
                "seeds": list(pair.seeds),
                **vars(pair.found),
                "by_world": {name: world._asdict() for name, world in pair.found.by_world.items()},
                "p_holm": pair.p,
                "by_world_holm": dict(pair.by_world),
                "verdict": pair.verdict,
            }
            for pair in comparison.pairs
        ],
        "notes": list(comparison.notes),
        "definition": DEFINITION,
    }
