"""What does not go with taking shared adapters back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedse.plugins import capability

if TYPE_CHECKING:
    from fedse.experiments.options import Experiment


def check_promotion(experiment: Experiment) -> None:
    """Refuse a gate that would have nothing to go by or nothing to take back. Raises `ValueError`."""
    if experiment.promotion is None or not experiment.learning:
        return
    if experiment.sharing == "none":
        raise ValueError("with `sharing: none` there is no shared adapter to take back: leave `promotion` out")
    if capability(experiment.mix, "needs_plain_mean"):
        raise ValueError(
            f"`mix: {experiment.mix.name}` takes what a client sent last out of the shared adapter, and an adapter that was "
            "taken back does not hold it: leave `promotion` or `mix` out"
        )
    if experiment.evaluation.tasks_per_round == 0:
        raise ValueError(
            "`promotion` goes by what adapters do in each round, and `evaluation.tasks_per_round` is 0: raise it, or leave "
            "`promotion` out"
        )
    if experiment.evaluation.mean_of_last > 1:
        raise ValueError(
            "`promotion` judges the adapter of one round, and `evaluation.mean_of_last` measures the mean of several: leave "
            "one of them out"
        )
