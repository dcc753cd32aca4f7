"""What does not go with what a learner goes back to: earlier rounds, an adapter of its own, the base model."""

from __future__ import annotations

from fedse.adapters.plan import plan_of
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import build, capability


def check_lessons(experiment: ExperimentKeys) -> None:
    """Refuse lessons that would have no effect or fail in a later round. Raises `ValueError`."""
    if not experiment.learning:
        return
    learner = experiment.learner
    # The class of somebody's own may not be at hand, where a stored run is read.
    aggregator = None if experiment.aggregator.foreign else build("aggregator", experiment.aggregator)
    name, shared = f"`learner: {learner.name}`", f"`aggregator: {experiment.aggregator.name}`"
    grows = getattr(aggregator, "adds_ranks", False)
    if capability(learner, "replays") and not experiment.buffer.history:
        raise ValueError(
            f"{name} replays earlier rounds, and `buffer.history: false` forgets them: leave `buffer.history` out, or "
            "choose another learner"
        )
    if capability(learner, "learns_from_own_adapter") and (grows or not capability(experiment.mix, "one_lesson")):
        raise ValueError(
            f"{name} needs adapters whose tensors are alike in every round, which {shared} or `mix: {experiment.mix.name}` "
            "do not keep: use `mean` or another that adds no ranks, and `mix: broadcast`"
        )
    if not learner.options.get("restart"):
        return
    freezes = aggregator is not None and plan_of(aggregator).in_round(1).trained != "AB"
    if grows or freezes or any(capability(experiment.mix, name) for name in ("needs_plain_mean", "freezes_shared")):
        raise ValueError(
            f"`learner.restart` begins anew with all of the adapter, and {shared} or `mix: {experiment.mix.name}` freeze a "
            "part of it: leave `restart` out, or let clients train everything"
        )
    if capability(learner, "learns_from_broadcast"):
        raise ValueError(
            f"{name} learns in part what the adapter says with which a lesson begins, and with `restart: true` that is the "
            "base model: leave `restart` out"
        )
