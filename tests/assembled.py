"""The federation of an experiment in a folder, of which only the run's log is told: for tests that look inside it."""

from __future__ import annotations

from pathlib import Path

from fedse.experiments.assembling import Federation, assemble
from fedse.experiments.beginning import beginning_of
from fedse.experiments.components import Components, build_components
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder
from fedse.runs.trackers import told_of


def assembled(experiment: Experiment, folder: Path, components: Components | None = None) -> Federation:
    components = components or build_components(experiment)
    run = RunFolder.create(folder, experiment.to_yaml(), experiment.digest())
    return assemble(experiment, components, run, told_of(run.path), beginning_of(experiment, components, run))
