"""Secure sums of an experiment: what does not go with them, and the keys of clients that live on one machine."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from fedse.aggregators.rule import ONLY_THE_SUM
from fedse.errors import MissingExtra
from fedse.plugins import build, capability
from fedse.privacy.secure_sum import SumMember
from fedse.runs.folder import RunFolder

if TYPE_CHECKING:
    from fedse.experiments.options import Experiment

KEY, PUBLIC, ANSWERED = "sum.key", "sum.pub", "sum-answered.safetensors"
"""Files of a client."""


def check_secure_sum(experiment: Experiment) -> None:
    """Refuse what needs single updates, or leaves a sum without some of its sites. Raises `ValueError`."""
    options = experiment.sending.secure_sum
    if options is None or not experiment.learning:
        return
    if experiment.sharing == "none":
        raise ValueError("with `sharing: none` nobody sends anything: leave `sending.secure_sum` out")
    aggregator = experiment.aggregator
    if not aggregator.foreign and ONLY_THE_SUM not in getattr(build("aggregator", aggregator), "promises", ()):
        raise ValueError(
            f"`aggregator: {aggregator.name}` looks at single updates, and `sending.secure_sum` shows their sum alone: use "
            "one that promises 'only the sum' (docs/aggregators.md), such as `mean`"
        )
    if experiment.checks.governance is not None:
        raise ValueError(
            "`checks.governance` compares single updates, and `sending.secure_sum` shows their sum alone: leave one of "
            "them out"
        )
    if experiment.has_library() or capability(experiment.mix, "needs_plain_mean"):
        raise ValueError(
            f"`mix: {experiment.mix.name}` needs to know whose updates are in the broadcast adapter, and "
            "`sending.secure_sum` tells only how many: leave one of them out"
        )
    if experiment.participation.quorum < 1:
        raise ValueError(
            "a secure sum needs all sites that were asked, and `participation.quorum` closes rounds without some: "
            "leave it out"
        )
    first = [name for name in experiment.holdings() if experiment.joins(name) == 1]
    measuring = sum(name not in experiment.learners() for name in first)
    adding = experiment.participation.asked(len(first)) - measuring
    if adding < options.least:
        raise ValueError(
            f"`sending.secure_sum.least` is {options.least}, and {adding} clients that learn may be all that are asked in a "
            "round: choose less, or let more of them take part"
        )


def make_keys(experiment: Experiment, run: RunFolder) -> None:
    """A key pair for each client of a run on one machine, which has all of them at hand."""
    if experiment.sending.secure_sum is None:
        return
    if importlib.util.find_spec("cryptography") is None:
        raise MissingExtra("sending.secure_sum", "cryptography", "secure")
    from fedse.privacy.sum_keys import make_key, public_text, read_key
    from fedse.storage import atomic

    run.keep_clients_private()
    for name in experiment.learners():
        folder = run.client_folder(name)
        if not (folder / PUBLIC).exists():
            make_key(folder / KEY)
            atomic.write_text(folder / PUBLIC, public_text(read_key(folder / KEY)) + "\n")


def member_on_this_machine(experiment: Experiment, run: RunFolder, name: str) -> SumMember | None:
    """None where the client adds to no sum. The keys are there."""
    options = experiment.sending.secure_sum
    if options is None or name not in experiment.learners():
        return None
    from fedse.privacy.sum_keys import read_key, read_public

    others = {
        path.parent.name: path for path in sorted(run.path.glob(f"clients/*/{PUBLIC}")) if path.parent.name != name
    }
    return SumMember(
        name=name,
        run=experiment.name,
        options=options,
        key=read_key(run.client_folder(name) / KEY),
        others={other: read_public(path.read_text().strip(), other) for other, path in others.items()},
        answered=run.client_folder(name) / ANSWERED,
    )
