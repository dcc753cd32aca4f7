"""Which tensors of an adapter clients train, which they send, which they keep: read by client, round and aggregator.

A tensor is known by its name. `X.lora_A.weight` and `X.lora_B.weight` are the two factors of a module's shared pair. Beside
it there may be further pairs that add to the same module:

    X.lora_A.residual.weight    frozen ranks that an exact aggregator broadcasts; never trained, never sent back
    X.lora_A.personal.weight    a client's own pair; trained, never sent

A tensor that is no factor (the model `table`) is always trained and sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedse.adapters.packing import slices, views
from fedse.types import Adapter, Layout, Library, RoundTask, Tensors, Vector

RESIDUAL = "residual"
PERSONAL = "personal"


@dataclass(frozen=True)
class TensorPlan:
    """What happens to the factors of the shared pair. One that is trained and not sent stays private at its client."""

    trained: str = "AB"
    """Factors that clients train."""
    sent: str = "AB"
    """Factors that clients send."""

    def in_round(self, number: int) -> TensorPlan:
        del number  # The same in all of them.
        return self


@dataclass(frozen=True)
class Alternation:
    """Plans that take turns from round to round, the first in round 1."""

    turns: tuple[TensorPlan, ...]

    def in_round(self, number: int) -> TensorPlan:
        return self.turns[(number - 1) % len(self.turns)]


IN_TURN = Alternation((TensorPlan(trained="B", sent="B"), TensorPlan(trained="A", sent="A")))
"""B in odd rounds and A in even ones. With the other factor alike at all clients, products add up as the factors do."""

Plan = TensorPlan | Alternation


def plan_of(aggregator: Any) -> Plan:
    """What an aggregator asks of clients; one that says nothing asks for everything."""
    plan = getattr(aggregator, "plan", None)
    return plan if isinstance(plan, TensorPlan | Alternation) else TensorPlan()


def withholds(plan: Plan) -> bool:
    """Whether there is a factor that clients train and do not send."""
    turns = plan.turns if isinstance(plan, Alternation) else (plan,)
    return any(set(turn.trained) - set(turn.sent) for turn in turns)


def in_turn(factors: Iterable[str]) -> str:
    """The factors of successive rounds in words: once if they are the same."""
    return ", ".join(dict.fromkeys(factors))


def factor(name: str) -> str:
    """ "A", "B", or nothing for a tensor that is no factor."""
    return next((letter for letter in "AB" if f".lora_{letter}." in name), "")


def part(name: str) -> str:
    """Which pair of its module a tensor belongs to: "residual", "personal", or nothing for the shared one."""
    letter = factor(name)
    return next((other for other in (RESIDUAL, PERSONAL) if f".lora_{letter}.{other}." in name), "")


def in_part(name: str, other: str) -> str:
    """The name of the tensor with the same role in another pair of the module."""
    letter = factor(name)
    return name.replace(f".lora_{letter}.", f".lora_{letter}.{other}.")


def sent(adapter: Adapter, plan: TensorPlan) -> Adapter:
    """The part of an adapter that an update holds."""
    return _only(adapter, {name for name in adapter.tensors if _is_sent(name, plan)})


def part_to_send(task: RoundTask, plan: Plan) -> Vector:
    """The part of the broadcast adapter that an update takes the place of, packed: what a change is counted from."""
    now = plan.in_round(task.round)
    pieces = [task.vector[start:stop] for name, _, start, stop in slices(task.layout) if _is_sent(name, now)]
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32)


def sent_layout(task: RoundTask, plan: Plan) -> Layout:
    """Names and shapes of what an update to the task holds."""
    now = plan.in_round(task.round)
    return tuple((name, shape) for name, shape in task.layout if _is_sent(name, now))


def shared_layout(layout: Layout) -> Layout:
    """Names and shapes of an adapter without the further pairs beside the shared one."""
    return tuple((name, shape) for name, shape in layout if not part(name))


def opened(library: Library, layout: Layout) -> dict[str, Tensors]:
    """The tensors of each client's adapter in a library that came with a broadcast adapter."""
    return {client: views(vector, shared_layout(layout)) for client, vector in library.items()}


def private(adapter: Adapter, plan: TensorPlan) -> Adapter:
    """The part that a client trains and keeps."""
    kept = {
        name
        for name in adapter.tensors
        if part(name) == PERSONAL or (not part(name) and _is_in(name, plan.trained) and not _is_in(name, plan.sent))
    }
    return _only(adapter, kept)


def frozen(adapter: Adapter, plan: TensorPlan) -> frozenset[str]:
    """Names of the tensors that learners leave as they are."""
    return frozenset(
        name
        for name in adapter.tensors
        if part(name) == RESIDUAL or (not part(name) and not _is_in(name, plan.trained))
    )


def _is_sent(name: str, plan: TensorPlan) -> bool:
    return not part(name) and _is_in(name, plan.sent)


def _is_in(name: str, factors: str) -> bool:
    return not factor(name) or factor(name) in factors


def _only(adapter: Adapter, names: set[str]) -> Adapter:
    return Adapter({name: adapter.tensors[name] for name in sorted(names)}, adapter.config)
