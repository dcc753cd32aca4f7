"""What an engine is given: the sites, to be built here or in other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedse.adapters.plan import Plan
from fedse.clients.client import Client
from fedse.errors import BadInput
from fedse.federation.expected import Expected
from fedse.protocols import Engine, Learner, Model, Policy, Tracker


@dataclass(frozen=True)
class Household:
    """Sites that live in one process, with what they share there."""

    model: Model
    policy: Policy
    learner: Learner
    clients: Sequence[Client]


def _nobody(*_: Any) -> Any:
    raise BadInput("the clients of this run are in other processes or on other machines.")


@dataclass(frozen=True)
class Sites:
    """Building is left to the engine: one process holds them all, or none of them is here."""

    names: tuple[str, ...]
    run: str
    """Name of the run, by which sites keep their state apart."""
    terms: str
    """Digest of what server and sites must agree on."""
    plan: Plan
    """What of the adapter sites send."""
    tracker: Tracker
    expected: Expected = field(default_factory=Expected)
    """What their answers may hold."""
    here: Callable[[], Household] = _nobody
    """All sites, in this process."""
    elsewhere: Callable[[str], Engine] = _nobody
    """An engine with one site only. Can be pickled, so that another process can call it."""
