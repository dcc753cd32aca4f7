"""A sweep file: one experiment, and the methods, variants, settings and seeds it is run with.

name: methods
experiment: experiment.yaml          # or the experiment itself, as a mapping
methods: [fed_se, local_se, fedit]
seeds: [0, 1, 2]
settings: {model.lora.rank: [4, 8]}  # every combination
variants:                            # named changes, one at a time
  plain: {}
  no_filter: {filter: none}
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from fedse.errors import BadInput
from fedse.experiments.completion import is_complete
from fedse.experiments.file import at_key, explain, override
from fedse.experiments.folder_names import FolderName
from fedse.experiments.methods import Method
from fedse.experiments.options import Experiment, validated
from fedse.experiments.resuming import conflict
from fedse.plugins import PluginOptions, nearest
from fedse.runs.reading import RunView
from fedse.storage.strict_yaml import KeyPath, read_yaml
from fedse.visible import short

LONGEST_NAME = 100
MOST_CELLS = 10_000


class Sweep(PluginOptions):
    """A grid of runs. Its folder is runs/NAME, with one run for each cell."""

    name: FolderName
    """Name of the sweep; its runs are in runs/NAME."""
    experiment: str | dict[str, Any]
    """The experiment that all cells begin with: a file, found beside this one, or the keys themselves."""
    methods: list[Method] = Field(default_factory=list)
    """Methods to run it with; the experiment's own when empty."""
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict, examples=[{"no_filter": {"filter": "none"}}])
    """Changes with a name, each a mapping of keys such as `learner.epochs`; the experiment as it is when empty."""
    settings: dict[str, list[Any]] = Field(default_factory=dict, examples=[{"learner.epochs": [2, 4]}])
    """Keys with the values they take; all combinations are run."""
    seeds: list[int] = Field(default_factory=list)
    """Seeds of each cell; the experiment's own when empty."""

    @field_validator("experiment", mode="before")
    @classmethod
    def _file_or_keys(cls, given: Any) -> Any:
        if not isinstance(given, str | dict):
            raise ValueError("the name of an experiment file is expected here, or the keys of an experiment")
        return given

    @field_validator("settings")
    @classmethod
    def _with_values(cls, given: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key, values in given.items():
            if not values:
                raise at_key("no value is given, so there would be no run: give some, or leave the key out.", key)
        return given


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    name: str
    experiment: Experiment
    folder: Path

    def rounds_done(self) -> int | None:
        """Complete rounds; None before the run has begun."""
        if not (self.folder / "manifest.json").exists():
            return None
        return RunView.existing(self.folder).last_round()

    def is_complete(self) -> bool:
        """All rounds, and the evaluations that follow the last one."""
        return self.rounds_done() is not None and is_complete(RunView.existing(self.folder), self.experiment)


def read_sweep(path: Path, settings: Sequence[str] = ()) -> tuple[Sweep, dict[str, Any], dict[KeyPath, str]]:
    """The sweep, the content of its experiment after `a.b=c` settings, and where each key of that stands."""
    content, places = read_yaml(path)
    if "clients" in content and "experiment" not in content:
        raise BadInput(
            f"{path} is an experiment, which `fedse run {path}` runs: a sweep has a `name`, the `experiment` (such a file, "
            "or its keys) and what to vary, `methods`, `variants`, `settings` or `seeds`."
        )
    try:
        sweep = Sweep.model_validate(content)
    except ValidationError as error:
        raise BadInput(explain(error, Sweep, places)) from error
    if isinstance(sweep.experiment, str):
        base, base_places = read_yaml(path.parent / sweep.experiment)
    else:
        base = copy.deepcopy(sweep.experiment)
        base_places = {at[1:]: place for at, place in places.items() if at[:1] == ("experiment",)}
    _check_given_once(path, sweep, settings)
    override(base, settings, base_places)
    return sweep, base, base_places


def _check_given_once(path: Path, sweep: Sweep, settings: Sequence[str]) -> None:
    """Refuse a key with two values for the same run: one of them would be lost, and the run's name may tell the other."""
    beside = {"name": "the sweep names its runs itself: leave `name` out."}
    if sweep.methods:
        beside["method"] = "the methods of this sweep are those under `methods`: give them there, or leave these out."
    seeds = {"seed": "the seeds of a sweep are those under `seeds`: give them there."}
    varied = {
        key: f"each run of this sweep has a value of its own from `settings.{key}`: change it there."
        for key in sweep.settings
    }
    places = [(f"{path}: settings.{key}", key, {**beside, **seeds}) for key in sweep.settings]
    for name, changes in sweep.variants.items():
        places += [(f"{path}: variants.{name}.{key}", key, {**beside, **seeds, **varied}) for key in changes]
    keys = [(f"--set {short(setting)}", setting.partition("=")[0]) for setting in settings]
    places += [(where, key, {**beside, **(seeds if sweep.seeds else {}), **varied}) for where, key in keys]
    for where, key, elsewhere in places:
        for known, reason in elsewhere.items():
            if f"{key}.".startswith(f"{known}."):
                raise BadInput(f"{where}: {reason}")


def cells(
    sweep: Sweep, base: Mapping[str, Any], places: Mapping[KeyPath, str], runs: Path, only: Sequence[str] = ()
) -> list[Cell]:
    """The runs of the sweep, or those whose names fit a pattern, checked: nothing is begun unless everything could be."""
    if (runs / sweep.name / "manifest.json").exists():
        raise BadInput(f"{runs / sweep.name} is a run, and no folder for runs: give the sweep another `name`.")
    made: list[Cell] = []
    sizes = [len(sweep.seeds), len(sweep.methods), len(sweep.variants), *map(len, sweep.settings.values())]
    wanted = math.prod(max(1, size) for size in sizes)
    if wanted > MOST_CELLS:
        raise BadInput(f"the sweep asks for {wanted:,} runs, more than {MOST_CELLS:,}: give fewer values.")
    for name, method, changes in _combinations(sweep, base):
        content, where = copy.deepcopy(dict(base)), dict(places)
        if method is not None:
            content["method"] = method
        try:
            override(content, [f"{key}={json.dumps(value)}" for key, value in changes], where)
            experiment = validated({**content, "name": name}, where)
        except BadInput as error:
            raise BadInput(f"cell {name}: {error}") from error
        if any(cell.name == name for cell in made):
            raise BadInput(f"two cells of the sweep would be called {name}: give the variants clearer names.")
        made.append(Cell(name, experiment, runs / sweep.name / name))
    chosen = _named(made, only)
    for cell in chosen:
        if reason := conflict(cell.folder, cell.experiment):
            raise BadInput(f"cell {cell.name}: {reason}")
    return chosen


def _named(made: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in made):
            names = [cell.name for cell in made]
            if "," in pattern:
                hint = "Give the option once for each name. "
            elif any(name.startswith(pattern) for name in names):
                hint = f"did you mean '{short(pattern)}*'? "
            else:
                hint = nearest(pattern, names)
            raise BadInput(
                f"--only {short(pattern)}: {hint}{'No' if hint else 'no'} run of the sweep is called so; `--dry-run` lists "
                "the names."
            )
    return [cell for cell in made if not patterns or any(fnmatchcase(cell.name, pattern) for pattern in patterns)]


def _combinations(sweep: Sweep, base: Mapping[str, Any]) -> Iterator[tuple[str, Method | None, list[tuple[str, Any]]]]:
    """Name, method and changed keys of each cell, one seed after another: a sweep cut short holds whole comparisons."""
    values = [[(key, value) for value in chosen] for key, chosen in sweep.settings.items()]
    methods: list[Method | None] = [*sweep.methods] or [None]
    seeds = sweep.seeds or [base.get("seed", 0)]
    variants = (sweep.variants or {"": {}}).items()
    for seed, method, (variant, changes), *settings in product(seeds, methods, variants, *values):
        said = [method or "", variant, *(f"{key.rsplit('.', 1)[-1]}_{value}" for key, value in settings), f"s{seed}"]
        name = "-".join(_word(item) for item in said if item)
        yield name[:LONGEST_NAME], method, [*changes.items(), *settings, ("seed", seed)]


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_")
