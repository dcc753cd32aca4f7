"""What does not go with what is measured."""

from __future__ import annotations

from fedse.clients.client import EVALUATION
from fedse.evaluation.learned_shares import LEARNED_FROM
from fedse.evaluation.side_by_side import AFTER_LEARNING, AS_BROADCAST
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import capability


def check_probes(experiment: ExperimentKeys) -> None:
    """Refuse probes whose scores could not be told from others. Raises `ValueError`."""
    labels = list(experiment.labelled_probes)
    taken = {EVALUATION, AFTER_LEARNING, AS_BROADCAST, LEARNED_FROM, *experiment.learned_probes}
    if len({*labels} - taken) < len(labels) or not all(label.isidentifier() for label in labels):
        raise ValueError(f"probes need names of their own, which are words: {', '.join(labels)}")
    without_tests = experiment.evaluation.test_tasks == 0
    for label, choice in experiment.labelled_probes.items():
        if without_tests and capability(choice, "of_one_split") and choice.options.get("split") == "test":
            raise ValueError(
                f"`probes: {label}` measures the test split, and with `evaluation.test_tasks: 0` there is no test: raise "
                "it, or let the probe measure the validation split"
            )


def check_mean_of_last(experiment: ExperimentKeys) -> None:
    """Refuse a mean over rounds that is nobody's adapter. Raises `ValueError`."""
    if experiment.evaluation.mean_of_last == 1:
        return
    if experiment.sharing == "none":
        raise ValueError(
            "`evaluation.mean_of_last` is of shared adapters, and with `sharing: none` there are none: leave it out"
        )
    if capability(experiment.mix, "needs_plain_mean") or experiment.has_library:
        raise ValueError(
            f"`mix: {experiment.mix.name}` works on what each client sent in the last round, which a mean over rounds does "
            "not hold: leave `evaluation.mean_of_last` out"
        )
    if capability(experiment.aggregator, "new_factors"):
        raise ValueError(
            f"`aggregator: {experiment.aggregator.name}` makes new factors in every round, whose mean over rounds says "
            "nothing: leave `evaluation.mean_of_last` out"
        )


def check_learned_by_world(experiment: ExperimentKeys) -> None:
    """Refuse shares of worlds where each site has one. Raises `ValueError`."""
    if experiment.evaluation.learned_by_world and all(len(worlds) == 1 for worlds in experiment.holdings.values()):
        raise ValueError("every site has one world and learns from it alone: leave `evaluation.learned_by_world` out")
