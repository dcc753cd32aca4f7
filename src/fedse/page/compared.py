"""Runs side by side: success of each method with intervals, curves, and paired differences on the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedse.errors import BadInput
from fedse.evaluation.comparison import compare, to_json
from fedse.evaluation.curves import curves
from fedse.experiments.measuring import read_runs
from fedse.page.overview import means
from fedse.page.shown import Shown

_CURVE = ("adapter", "macro", "macro_interval")


def compared(runs: Sequence[Shown], against: str) -> dict[str, Any]:
    """The same numbers as `fedse compare`. Raises `BadInput` with its sentence where runs cannot be compared."""
    if len(runs) < 2:
        raise BadInput("Choose two runs or more.")
    if sites := [run.name for run in runs if run.kind != "run"]:
        raise BadInput(
            f"{sites[0]} does not have the trajectories of all its clients here: compare runs of one machine."
        )
    split, measured = read_runs([run.run.path for run in runs], "")
    found = to_json(compare(measured, against))
    for method in found["methods"]:
        # What a table of settings says is not drawn.
        method["means"] = [_means(run) for run in runs if run.run.path.name in method["runs"]]
        del method["made_with"], method["agreements"], method["curves"]
    return {"split": split, **found}


def _means(run: Shown) -> list[dict[str, Any]]:
    return [{key: point[key] for key in _CURVE} for point in means(curves(run.run))]
