"""Runs side by side: success of each method with intervals, curves, and paired differences on the same tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fedse.errors import BadInput
from fedse.evaluation.comparison import compare, to_json
from fedse.evaluation.curves import curves
from fedse.experiments.measuring import places, read_runs
from fedse.page.overview import means
from fedse.page.shown import Shown

_CURVE = ("adapter", "macro", "macro_interval")


def compared(runs: Mapping[str, Shown], against: str) -> dict[str, Any]:
    """The same numbers as `fedse compare`. Raises `BadInput` with its sentence where runs cannot be compared."""
    if len(runs) < 2:
        raise BadInput("Choose two runs or more.")
    if sites := [name for name, run in runs.items() if run.kind != "run"]:
        raise BadInput(
            f"{sites[0]} does not have the trajectories of all its clients here: compare runs of one machine."
        )
    split, measured = read_runs([run.run.path for run in runs.values()], "")
    # Folders in different places may be named alike; the page's names differ.
    named = [replace(run, name=name) for name, run in zip(runs, measured, strict=True)]
    found = to_json(compare(named, against))
    for method in found["methods"]:
        # What a table of settings says is not drawn.
        method["means"] = [_means(runs[name], method["worlds"]) for name in method["runs"]]
        del method["made_with"], method["agreements"], method["curves"]
    return {"split": split, **found}


def _means(run: Shown, worlds: Iterable[str]) -> list[dict[str, Any]]:
    """Over the compared worlds, as the table beside the curve has them."""
    names = places(run.experiment)
    rows = {names[own[0]["client"], own[0]["world"]]: own for own in curves(run.run).values()}
    return [{key: point[key] for key in _CURVE} for point in means({name: rows.get(name, []) for name in worlds})]
