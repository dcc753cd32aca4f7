"""The keys with which clients that live on one machine take part in secure sums."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from fedse.errors import MissingExtra
from fedse.experiments.options import Experiment
from fedse.privacy.secure_sum import SumMember
from fedse.runs.folder import RunFolder

KEY, PUBLIC, ANSWERED = "sum.key", "sum.pub", "sum-answered.safetensors"
"""Files of a client."""


def make_keys(learners: Iterable[str], run: RunFolder) -> None:
    """A key pair for each client that adds to sums, of a run on one machine, which has all of them at hand."""
    if importlib.util.find_spec("cryptography") is None:
        raise MissingExtra("sending.secure_sum", "cryptography", "secure")
    from fedse.privacy.sum_keys import make_key, public_text, read_key
    from fedse.storage import atomic

    run.keep_clients_private()
    for name in learners:
        folder = run.client_folder(name)
        if not (folder / PUBLIC).exists():
            make_key(folder / KEY)
            atomic.write_text(folder / PUBLIC, public_text(read_key(folder / KEY)) + "\n")


def member_on_this_machine(experiment: Experiment, run: RunFolder, name: str) -> SumMember | None:
    """None where the client adds to no sum. The keys are there."""
    options = experiment.sending.secure_sum
    if options is None or name not in experiment.learners:
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
