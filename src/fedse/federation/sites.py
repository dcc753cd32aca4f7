"""What an engine is given: the sites, to be built here or in other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedse.adapters.plan import TensorPlan
from fedse.federation.client import Client
from fedse.protocols import Engine, Model, Policy, Tracker


@dataclass(frozen=True)
class Sites:
    """Building is left to the engine: one process holds them all, or none of them is here."""

    names: tuple[str, ...]
    run: str
    """Name of the run, by which sites keep their state apart."""
    terms: str
    """Digest of what server and sites must agree on."""
    plan: TensorPlan
    """What of the adapter sites send."""
    tracker: Tracker
    here: Callable[[], tuple[Model, Policy, Sequence[Client]]]
    """All sites with the model and the policy they share, in this process."""
    elsewhere: Callable[[str], Engine]
    """An engine with one site only. Can be pickled, so that another process can call it."""
