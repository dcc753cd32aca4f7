"""What does not go with taking shared adapters back."""

from __future__ import annotations

from fedse.adapters.plan import plan_of, withholds
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import build, capability


def check_promotion(experiment: ExperimentKeys) -> None:
    """Refuse a gate that would have nothing to go by or nothing to take back. Raises `ValueError`."""
    if experiment.promotion is None or not experiment.learning:
        return
    if experiment.sharing == "none":
        raise ValueError("with `sharing: none` there is no shared adapter to take back: leave `promotion` out")
    kept = {
        f"mix: {experiment.mix.name}": not capability(experiment.mix, "one_lesson"),
        f"aggregator: {experiment.aggregator.name}": withholds(plan_of(build("aggregator", experiment.aggregator))),
        f"learner: {experiment.learner.name}": bool(capability(experiment.learner, "learns_from_own_adapter")),
    }
    for name, keeps in kept.items():
        if keeps:
            raise ValueError(
                f"with `{name}` sites keep what they learned beside a shared adapter, and cannot take that back with it: "
                "leave `promotion` out, or the other"
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
