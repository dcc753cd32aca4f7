"""Whether a run has everything that its experiment asks for, and why it has not."""

from __future__ import annotations

from contextlib import suppress

from fedse.errors import RunConflict
from fedse.evaluation.measured import has_evaluation
from fedse.experiments.options import Experiment
from fedse.experiments.running import stored_experiment
from fedse.runs.reading import RunView


def is_complete(run: RunView, experiment: Experiment) -> bool:
    """All rounds, and the evaluations that follow the last one."""
    if run.last_round() != experiment.rounds_to_play:
        return False
    # A run that goes on sets aside what is damaged, and measures again.
    with suppress(RunConflict):
        return all(has_evaluation(run, split) for split in experiment.closing_splits)
    return False


def why_stopped(run: RunView) -> str | None:
    """Why a run ended before it was done; None if it goes on, was killed, or has since got what it lacked, be it from
    `fedse eval`."""
    why = run.told_stop()
    return None if why is None or is_complete(run, stored_experiment(run)) else why
