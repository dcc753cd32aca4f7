"""Runs side by side: success of each method with intervals, curves, and paired differences on the same tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fedse.errors import BadInput
from fedse.evaluation.comparison import compare, to_json
from fedse.evaluation.curves import curves
from fedse.evaluation.measured import has_evaluation
from fedse.experiments.measuring import SPLITS, places, read_runs, tasks_of
from fedse.page.overview import means
from fedse.page.shown import Shown
from fedse.runs.in_use import in_use

_CURVE = ("adapter", "macro", "macro_interval")


def compared(runs: Mapping[str, Shown], against: str) -> dict[str, Any]:
    """The same numbers as `fedse compare`, and the curves of runs that it cannot compare yet, for they go on. Raises
    `BadInput` with its sentence where runs cannot be compared."""
    if len(runs) < 2:
        raise BadInput("Choose two runs or more.")
    if sites := [name for name, run in runs.items() if run.kind != "run"]:
        raise BadInput(
            f"{sites[0]} does not have the trajectories of all its clients here: compare runs of one machine."
        )
    # Looked at first: who was told that nothing goes on does not ask again.
    running = any(in_use(run.run.path) for run in runs.values())
    ready = {name: run for name, run in runs.items() if any(has_evaluation(run.run, split) for split in SPLITS)}
    unfinished = {name: run for name, run in runs.items() if name not in ready}
    if ready:
        found = _finished(ready, against)
        like, worlds = next(iter(ready.values())), list(found["methods"][0]["worlds"])
    else:
        found = {"methods": [], "pairs": [], "notes": []}
        like, *others = runs.values()
        worlds = [name for name in tasks_of(like.experiment) if all(_has(run, [name], like) for run in others)]
        if not worlds:
            raise BadInput("these runs have no world in common: compare runs with equal worlds.")
    shown = {name: run for name, run in unfinished.items() if _has(run, worlds, like)}
    found["unfinished"] = [{"label": name, "means": [_means(run, worlds)]} for name, run in shown.items()]
    found["running"] = running
    found["notes"] = [*(_waiting(name, run, name in shown) for name, run in unfinished.items()), *found["notes"]]
    return found


def _finished(runs: Mapping[str, Shown], against: str) -> dict[str, Any]:
    split, measured = read_runs([run.run.path for run in runs.values()], "")
    # Folders in different places may be named alike; the page's names differ.
    named = [replace(run, name=name) for name, run in zip(runs, measured, strict=True)]
    found = to_json(compare(named, against))
    for method in found["methods"]:
        # What a table of settings says is not drawn.
        method["means"] = [_means(runs[name], method["worlds"]) for name in method["runs"]]
        del method["made_with"], method["agreements"], method["curves"]
    return {"split": split, **found}


def _has(run: Shown, worlds: Iterable[str], like: Shown) -> bool:
    """Whether a run has these worlds, and they have the tasks that they have in another run."""
    own, other = tasks_of(run.experiment), tasks_of(like.experiment)
    return all(name in own and own[name] == other[name] for name in worlds)


def _waiting(name: str, run: Shown, is_shown: bool) -> str:
    left = f"{run.last_round()} of {run.experiment.rounds_to_play} rounds are complete"
    what = "only its curve is shown, as far as it has come" if is_shown else "it has other worlds, and is left out"
    return f"{name} has not been evaluated after its last round yet ({left}): {what}."


def _means(run: Shown, worlds: Iterable[str]) -> list[dict[str, Any]]:
    """Over the compared worlds, as the table beside the curve has them."""
    names = places(run.experiment)
    rows = {names[own[0]["client"], own[0]["world"]]: own for own in curves(run.run).values()}
    return [{key: point[key] for key in _CURVE} for point in means({name: rows.get(name, []) for name in worlds})]
