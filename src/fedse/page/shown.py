"""A run as the page shows it: its folder, its experiment, and what kind of folder it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from fedse.experiments.options import Experiment, experiment_of
from fedse.experiments.running import stored_experiment
from fedse.page.catalogue import Catalogue
from fedse.page.drawings import Drawings
from fedse.runs.reading import RunView

Kind = Literal["run", "hub", "site"]


class Shown:
    """A hub has rounds and no trajectories, a site has its own trajectories and no rounds, a run on one machine has both."""

    def __init__(self, run: RunView, experiment: Experiment, name: str) -> None:
        self.run = run
        self.experiment = experiment
        self.name = name
        self.catalogue = Catalogue(run)
        self.drawings = Drawings(experiment)

    @classmethod
    def of(cls, run: RunView, own_worlds: bool = False) -> Shown:
        """Looking at somebody's run loads no code that it names, unless its own worlds are asked for."""
        experiment = stored_experiment(run)
        if own_worlds:
            experiment = experiment_of(run.path)
        return cls(run, experiment, run.path.resolve().name)

    @property
    def kind(self) -> Kind:
        if not (self.run.path / "manifest.json").is_file():
            return "site"
        return "run" if (self.run.path / "clients").is_dir() else "hub"

    def clients(self) -> list[str]:
        """All of the run's; at a site, the site itself."""
        return self.catalogue.clients() if self.kind == "site" else list(self.experiment.holdings)

    def last_round(self) -> int:
        """The newest complete one; 0 at a site, whose hub counts rounds."""
        return 0 if self.kind == "site" else self.run.last_round() or 0


def by_name(runs: Iterable[Shown]) -> dict[str, Shown]:
    """Runs under names that differ, also where folders in different places are named alike."""
    found: dict[str, Shown] = {}
    for run in runs:
        name, count = run.name, 1
        while name in found:
            count += 1
            name = f"{run.name}~{count}"
        found[name] = run
    return found
