"""What does not go with what buffers begin with."""

from __future__ import annotations

from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import capability


def check_beginnings(experiment: ExperimentKeys) -> None:
    """Refuse a beginning that nobody learns from, and learning without one. Raises `ValueError`."""
    if not experiment.learning:
        return
    for name in experiment.measuring:
        if experiment.clients[name].start is not None:
            raise ValueError(f"client '{name}' has `learns: false` and begins with nothing: leave its `start` out")
    if experiment.exploring:
        return
    learning = experiment.learning_clients
    empty = [name for name in learning if capability(experiment.start_of(name), "empty")]
    if empty == learning if experiment.pooled else empty:
        raise ValueError(
            "without exploring, clients learn from what their buffers begin with, and `start: none` gives client "
            f"'{empty[0]}' nothing"
        )
    if not experiment.buffer.history:
        raise ValueError(
            "after its first round a client with `buffer.history: false` learns from exploration alone, and this "
            "experiment explores nothing"
        )
