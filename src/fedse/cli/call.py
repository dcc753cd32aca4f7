"""`fedse.run(...)`: what the command `fedse run` does, for Python."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedse.cli.console import PAGE, VisibleConsole, warn
from fedse.cli.progress import Progress
from fedse.experiments import running
from fedse.experiments.options import Experiment, load_experiment

if TYPE_CHECKING:
    from fedse.experiments.assembling import MakeEngine, RunResult
    from fedse.protocols import Tracker


def run(
    experiment: Experiment | str | Path | Mapping[str, Any],
    runs: str | Path = "runs",
    max_minutes: float | None = None,
    trackers: Iterable[Tracker] = (),
    make_engine: MakeEngine | None = None,
    verbose: bool | None = None,
) -> RunResult:
    """Run an experiment, given as a file, as its keys or as an object, or resume it where it was stopped.

    Raises `Stopped` when `max_minutes` are over. `verbose` prints what happens; left out, it does so in a terminal and in a
    notebook.
    """
    if isinstance(experiment, Mapping):
        experiment = Experiment(**experiment)
    elif not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment)
    watched = _watched() if verbose is None else verbose
    progress = _progress(experiment) if watched else None
    with progress or nullcontext():
        told = [*trackers, *([progress] if progress else [])]
        result = running.run(experiment, runs, max_minutes, told, make_engine)
    if progress is not None:
        warn(progress.console, result.warnings)
    return result


def _watched() -> bool:
    """Whether somebody is there to read: in a terminal, or behind a prompt, as notebooks have one."""
    return sys.stdout.isatty() or hasattr(sys, "ps1")


def _progress(experiment: Experiment) -> Progress:
    # Notebooks show plain lines better than rich's pages, each of which would be a picture of its own. Their kernels set
    # FORCE_COLOR, by which rich takes them for a terminal and would draw its moving table there, one below the other.
    page: dict[str, Any] = {} if sys.stdout.isatty() else {"width": PAGE, "force_terminal": False}
    console = VisibleConsole(**page, force_jupyter=False)
    console.print(f"{experiment.name}: preparing model {experiment.model.name}", soft_wrap=True, markup=False)
    return Progress(console, experiment.rounds_to_play)
