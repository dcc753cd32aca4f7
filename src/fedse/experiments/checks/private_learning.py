"""What does not go with learning under noise: whatever lets one trajectory change more than its own part of a step."""

from __future__ import annotations

from fedse.adapters.plan import plan_of, withholds
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import build, capability


def check_private_learning(experiment: ExperimentKeys) -> None:
    """Refuse what epsilon would not cover, and more rounds than a budget allows. Raises `ValueError`."""
    learner = experiment.learner
    if not experiment.learning or not capability(learner, "draws_noise"):
        return
    name = f"`learner: {learner.name}`"
    if experiment.exploring and not capability(experiment.curriculum, "ignores_the_past"):
        raise ValueError(
            f"{name} accounts for what is learned, and `curriculum: {experiment.curriculum.name}` chooses tasks by what "
            "happened to others, without noise: use `curriculum: uniform`"
        )
    if experiment.exploring and not capability(experiment.rescue, "empty"):
        raise ValueError(
            f"with {name} an episode must be one trajectory, and `rescue: {experiment.rescue.name}` makes a second one of "
            "it: leave `rescue` out"
        )
    if not capability(experiment.filter, "one_by_one"):
        raise ValueError(
            f"{name} needs a filter that looks at each trajectory by itself, and `filter: {experiment.filter.name}` does "
            "not: use `success` or `threshold`"
        )
    for start in {choice.name: choice for choice in map(experiment.start_of, experiment.clients)}.values():
        if not capability(start, "one_by_one"):
            raise ValueError(
                f"with {name} a trajectory must not decide whether another is learned from, as `start: {start.name}` lets "
                "it: begin with `demonstrations`, `recorded` or `none`"
            )
    if experiment.buffer.max_trajectories is not None or experiment.buffer.max_per_task is not None:
        raise ValueError(
            f"with {name} a trajectory must not decide whether another is learned from: leave `buffer.max_trajectories` and "
            "`buffer.max_per_task` out"
        )
    if not capability(experiment.mix, "one_lesson"):
        raise ValueError(
            f"{name} accounts for one lesson per round, and `mix: {experiment.mix.name}` may have others: leave `mix` out"
        )
    aggregator = build("aggregator", experiment.aggregator)
    if counts := sorted(getattr(aggregator, "needs_counts", ())):
        raise ValueError(
            f"{name} puts noise on adapters, and `aggregator: {experiment.aggregator.name}` weighs them by counts without "
            f"noise ({', '.join(counts)}): use another, such as `mean`"
        )
    if withholds(plan_of(aggregator)):
        raise ValueError(
            f"{name} accounts for what is sent once, and `aggregator: {experiment.aggregator.name}` keeps a part at the "
            "site that a repeated round would change: use another, such as `mean` or `ffa_lora`"
        )
    measured = experiment.evaluation
    if measured.learned_by_world or measured.after_learning or experiment.learned_probes:
        raise ValueError(
            f"with {name} leave `evaluation.learned_by_world`, `evaluation.after_learning` and `learned` of probes out: "
            "they tell counts of what is learned, and of an adapter that may not be the one that leaves"
        )
    budget = learner.options.get("epsilon")
    if budget is None or experiment.rounds == 0:
        return
    made = build("learner", learner, _Nothing())
    if (spent := made.spent(experiment.rounds)) > budget:
        raise ValueError(
            f"learner.epsilon: {experiment.rounds} rounds spend epsilon = {spent:.2f}, and {budget:g} may be spent: raise "
            f"`noise_multiplier` to {made.enough_noise(experiment.rounds, budget):g}, or have fewer rounds or epochs"
        )


class _Nothing:
    """In the place of a model: what noise costs does not depend on one."""

    network = None
