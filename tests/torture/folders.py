"""Run folders with damaged files: the run goes on to the result it would have had, or says why it does not."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from fedse.errors import FedseError

from .small_runs import ROUNDS, damage, files, made, play, truth


@cache
def _truth() -> Any:
    return truth(made() / "whole/small")


def trial(chance: random.Random, scratch: Path) -> str:
    runs = scratch / "runs"
    shutil.copytree(made() / chance.choice(["half", "half", "whole"]), runs)
    folder = runs / "small"
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        if chance.random() < 0.05:
            shutil.rmtree(chance.choice([path for path in folder.rglob("*") if path.is_dir()]))
        else:
            damage(chance.choice(files(folder)), chance, folder)
    heard: list[str] = []
    try:
        play(ROUNDS, runs, heard)
        adapter, measured, reports = truth(folder)
    except FedseError:
        return "refused"
    wanted_adapter, wanted_measured, wanted_reports = _truth()
    # A report that is gone changes no result; that it is gone has to be said.
    told = [item for item in reports if item is not None] == [
        item for item, here in zip(wanted_reports, reports, strict=True) if here is not None
    ] and (None not in reports or bool(heard))
    return "same" if (adapter, measured) == (wanted_adapter, wanted_measured) and told else "silent"
