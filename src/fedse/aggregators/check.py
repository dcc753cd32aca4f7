"""Does an aggregator keep its promises? For authors of aggregators, and for our own.

    findings = check_aggregator(lambda: MyAggregator(rate=0.5))

Every finding has a name, whether it passed, and a sentence that says what was seen. Some promises are made by every
aggregator; others only by one that lists them in its attribute `promises` (see `rule.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from fedse.adapters.held_update import HeldUpdate
from fedse.adapters.packing import length, pack, slices
from fedse.adapters.plan import factor, in_turn, part, plan_of, sent
from fedse.adapters.summed_update import SummedUpdate
from fedse.aggregators.rule import (
    EQUAL_UPDATES,
    MEAN_PRODUCT,
    MIXED_RANKS,
    ONLY_THE_SUM,
    PROMISES,
    SUM_AND_SQUARES,
)
from fedse.errors import BadInput
from fedse.plugins.promises import Finding, NotMade, demand, expected, try_promises
from fedse.protocols import Aggregator, StoredUpdate
from fedse.types import Adapter, Layout, ServerState, Tensors, Vector

AggregatorFactory = Callable[[], Aggregator]
Effect = dict[str, npt.NDArray[np.float64]]

_SHAPES = {"layers.0.q_proj": (12, 20), "layers.0.v_proj": (7, 20), "layers.1.q_proj": (12, 9)}  # outputs, inputs
_RANK = 3
_CLIENTS = 5
_TOLERANCE = 1e-5


def check_aggregator(factory: AggregatorFactory, only: Collection[str] = ()) -> list[Finding]:
    """Try every promise, or only those with these names, on fresh instances of the aggregator."""
    states = random.getstate(), np.random.get_state()
    try:
        return try_promises(_PROMISES, factory, only)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


# Material


def some_adapter(seed: int, spread: float = 1.0, rank: int = _RANK) -> Adapter:
    """LoRA pairs of three modules and a tensor that belongs to none."""
    draw = np.random.default_rng(seed)
    tensors = {"head.bias": spread * draw.standard_normal(5)}
    for name, (outputs, inputs) in _SHAPES.items():
        tensors[f"{name}.lora_A.weight"] = spread * draw.standard_normal((rank, inputs))
        tensors[f"{name}.lora_B.weight"] = spread * draw.standard_normal((outputs, rank))
    return Adapter({name: tensor.astype(np.float32) for name, tensor in tensors.items()}, {"r": rank, "lora_alpha": 6})


def some_state(seed: int = 99) -> ServerState:
    return ServerState(4, some_adapter(seed), {})


def asked_of(aggregator: Aggregator, state: ServerState) -> Adapter:
    """The part of the state's adapter that clients send in the round that follows."""
    return sent(state.adapter, plan_of(aggregator).in_round(state.round + 1))


def some_updates(
    aggregator: Aggregator, state: ServerState, seed: int = 0, clients: int = _CLIENTS, spread: float = 0.1
) -> list[StoredUpdate]:
    """What clients might send in answer to this state; each tells other counts."""
    asked = asked_of(aggregator, state)
    return [
        _update(index, asked, pack(asked) + _noise(asked.layout, 1000 * seed + index, spread))
        for index in range(clients)
    ]


def _noise(layout: Layout, seed: int, spread: float) -> Vector:
    return (spread * np.random.default_rng(seed).standard_normal(length(layout))).astype(np.float32)


def _update(index: int, asked: Adapter, vector: Vector) -> HeldUpdate:
    explored = 20
    successes = (7 * index + 3) % explored
    counts = {"explored": explored, "errors": 0, "successes": successes, "learned_from": 10 + 13 * index}
    return HeldUpdate(f"client{index}", asked.layout, vector.astype(np.float32), counts)


def effect(adapter: Adapter) -> Effect:
    """What an adapter does: the summed products of each module's pairs, and the tensors that belong to no pair."""
    found: Effect = {}
    for name, tensor in adapter.tensors.items():
        partner = name.replace(".lora_A.", ".lora_B.")
        if factor(name) == "A" and partner in adapter.tensors:
            product = adapter.tensors[partner].astype(np.float64) @ tensor.astype(np.float64)
            module = name.replace(f".lora_A.{part(name)}.", ".lora_A.")
            found[module] = found.get(module, 0.0) + product
        elif not factor(name) or name.replace(".lora_B.", ".lora_A.") not in adapter.tensors:
            found[name] = tensor.astype(np.float64)
    return found


def at_client(state: ServerState, update: StoredUpdate) -> Adapter:
    """The adapter that a client trained: what it sent in the place of what was broadcast."""
    own = {name: update.read(start, stop).reshape(shape) for name, shape, start, stop in slices(update.layout)}
    return Adapter({**state.adapter.tensors, **own}, state.adapter.config)


def _difference(one: Effect, other: Effect) -> float:
    """Largest difference, as a share of the largest value."""
    if one.keys() != other.keys():
        return float("inf")
    scale = max((float(np.abs(values).max(initial=0.0)) for values in other.values()), default=0.0) or 1.0
    return max((float(np.abs(one[name] - other[name]).max(initial=0.0)) for name in one), default=0.0) / scale


def _in_double(tensors: Tensors) -> Effect:
    return {name: values.astype(np.float64) for name, values in tensors.items()}


def _promised(factory: AggregatorFactory) -> frozenset[str]:
    return frozenset(getattr(factory(), "promises", ()))


def _bits(state: ServerState) -> tuple[Any, ...]:
    memory = {name: (values.dtype.str, values.shape, values.tobytes()) for name, values in state.memory.items()}
    return state.round, state.adapter.digest(), dict(state.adapter.config), memory


# Promises


def _declares(factory: AggregatorFactory) -> str:
    promised = _promised(factory)
    unknown = sorted(promised - set(PROMISES))
    demand(not unknown, f"`promises` holds {unknown}, known are {list(PROMISES)}")
    plans = [plan_of(factory()).in_round(number) for number in range(1, 5)]
    for plan in plans:
        for word, letters in (("trained", plan.trained), ("sent", plan.sent)):
            demand(set(letters) <= set("AB") and letters != "", f"`plan.{word}` is {letters!r}, not A, B or AB")
        demand(set(plan.sent) <= set(plan.trained), "the plan sends a factor that nobody trains")
    told = ", ".join(sorted(promised)) or "nothing beyond what every aggregator does"
    trained, given = in_turn(plan.trained for plan in plans), in_turn(plan.sent for plan in plans)
    return f"promises {told}; clients train {trained} and send {given}"


def _next_state(factory: AggregatorFactory) -> str:
    aggregator, state = factory(), some_state()
    following, numbers = aggregator.aggregate(state, some_updates(aggregator, state))
    demand(following.round == state.round + 1, f"after round {state.round} comes round {following.round}")
    shared = {name: tensor for name, tensor in following.adapter.tensors.items() if not part(name)}
    demand(Adapter(shared).layout == state.adapter.layout, "tensors of the adapter changed their names or shapes")
    kinds = {str(tensor.dtype) for tensor in following.adapter.tensors.values()}
    demand(kinds == {"float32"}, f"the adapter's tensors are {', '.join(sorted(kinds))}, not float32")
    for name, value in numbers.items():
        demand(
            name.isidentifier() and np.isfinite(value), f"it reports {name!r} = {value!r}, not a number under a name"
        )
    demand(_difference(effect(following.adapter), effect(state.adapter)) > 0, "updates change nothing")
    return f"one round on, {len(following.memory)} tensors remembered, reports {', '.join(numbers) or 'nothing'}"


def _one_client(factory: AggregatorFactory) -> str:
    aggregator, state = factory(), some_state()
    [only] = some_updates(aggregator, state, clients=1)
    following, _ = aggregator.aggregate(state, [only])
    gap = _difference(effect(following.adapter), effect(at_client(state, only)))
    if _promised(factory) & {EQUAL_UPDATES, MEAN_PRODUCT}:
        demand(gap <= _TOLERANCE, f"the update of a single client is not what comes out, it differs by {gap:.2g}")
    return f"what comes out differs from the only update by {gap:.2g} of its largest value"


def _no_client(factory: AggregatorFactory) -> str:
    aggregator, state = factory(), some_state()
    state, _ = aggregator.aggregate(state, some_updates(aggregator, state))
    following, _ = aggregator.aggregate(state, [])
    demand(following.round == state.round + 1, f"after round {state.round} comes round {following.round}")
    demand(_bits(following)[1:] == _bits(state)[1:], "without updates the adapter or the memory changes")
    return "adapter and memory stay as they are, and the round is over"


def _order(factory: AggregatorFactory) -> str:
    for clients in (2, _CLIENTS):
        state = some_state()
        updates = some_updates(factory(), state, clients=clients)
        forwards, _ = factory().aggregate(state, updates)
        for order in (updates[::-1], updates[1:] + updates[:1]):
            otherwise, _ = factory().aggregate(state, order)
            gap = _difference(effect(otherwise.adapter), effect(forwards.adapter))
            demand(gap <= _TOLERANCE, f"another order of {clients} clients changes the result by {gap:.2g}")
            gap = _difference(_in_double(otherwise.memory), _in_double(forwards.memory))
            demand(gap <= _TOLERANCE, f"another order of {clients} clients changes the memory by {gap:.2g}")
    return f"2 and {_CLIENTS} clients in other orders give the same product and memory within {_TOLERANCE:g}"


def _same_again(factory: AggregatorFactory) -> str:
    state, results = some_state(), []
    aggregator = factory()
    updates, others = some_updates(aggregator, state), some_updates(aggregator, state, seed=1)
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        before = random.getstate(), repr(np.random.get_state())
        results.append(_bits(aggregator.aggregate(state, updates)[0]))
        demand(
            (random.getstate(), repr(np.random.get_state())) == before,
            "the aggregator draws from or reseeds a global generator",
        )
        aggregator.aggregate(state, others)
    results.append(_bits(factory().aggregate(state, updates)[0]))
    demand(results[0] == results[2], "another instance gives another result")
    demand(results[0] == results[1], "a second call gives another result: something is remembered outside the state")
    return "the same bits twice with something else in between, and from another instance"


def _untouched(factory: AggregatorFactory) -> str:
    aggregator, state = factory(), some_state()
    state, _ = aggregator.aggregate(state, some_updates(aggregator, state))
    updates = some_updates(aggregator, state, seed=1)
    before = _bits(state), [(update.client, dict(update.counts), update.read().tobytes()) for update in updates]
    aggregator.aggregate(state, updates)
    after = _bits(state), [(update.client, dict(update.counts), update.read().tobytes()) for update in updates]
    demand(before[0] == after[0], "the state that was given is changed")
    demand(before[1] == after[1], "updates that were given are changed")
    return "state, memory and updates are as they were"


def _memory(factory: AggregatorFactory) -> str:
    straight = restored = some_state()
    aggregator = factory()
    for number in range(3):
        updates = some_updates(aggregator, straight, seed=number)
        straight, _ = aggregator.aggregate(straight, updates)
        restored, _ = factory().aggregate(restored, updates)
        if restored.memory:
            stored = save({name: np.ascontiguousarray(values) for name, values in restored.memory.items()})
            restored = ServerState(restored.round, restored.adapter, load(stored))
        demand(_bits(straight) == _bits(restored), f"stored and loaded after each round, round {number + 1} differs")
    size = sum(values.nbytes for values in restored.memory.values()) / sum(
        tensor.nbytes for tensor in restored.adapter.tensors.values()
    )
    return f"three rounds give the same bits when stored between; memory is {size:.1f} times the adapter"


def _finite(factory: AggregatorFactory) -> str:
    aggregator = factory()
    zeros = ServerState(
        0, Adapter({name: np.zeros_like(t) for name, t in some_adapter(0).tensors.items()}, {"r": _RANK})
    )
    cases = {
        "updates equal to the broadcast adapter": (some_state(), 0.0),
        "an adapter of zeros that nobody changes": (zeros, 0.0),
        "very small changes": (some_state(), 1e-20),
        "large changes": (some_state(), 1e4),
    }
    for told, (state, spread) in cases.items():
        following, numbers = aggregator.aggregate(state, some_updates(aggregator, state, spread=spread))
        for name, values in {**following.adapter.tensors, **following.memory}.items():
            demand(bool(np.isfinite(values).all()), f"{told}: {name} holds values that are not finite")
        demand(all(np.isfinite(value) for value in numbers.values()), f"{told}: it reports a number that is not finite")
    return f"{len(cases)} odd rounds: " + ", ".join(cases)


def _equal_updates(factory: AggregatorFactory) -> str:
    aggregator, state = factory(), some_state()
    asked = asked_of(aggregator, state)
    vector = pack(asked) + _noise(asked.layout, 7, 0.1)
    for clients in (1, 2, 3, 6):
        updates: Sequence[StoredUpdate] = [_update(index, asked, vector) for index in range(clients)]
        following, _ = aggregator.aggregate(state, updates)
        gap = _difference(effect(following.adapter), effect(at_client(state, updates[0])))
        if EQUAL_UPDATES in _promised(factory):
            demand(gap <= _TOLERANCE, f"{clients} equal updates give something else, it differs by {gap:.2g}")
            own = asked_of(aggregator, replace(following, round=state.round))
            largest = float(np.abs(pack(own) - vector).max()) / float(np.abs(vector).max())
            demand(largest <= _TOLERANCE, f"{clients} equal updates give other factors, they differ by {largest:.2g}")
    if EQUAL_UPDATES not in _promised(factory):
        raise NotMade(f"not promised; six equal updates come out different by {gap:.2g}")
    return "1, 2, 3 and 6 equal updates give the adapter they hold"


def _mean_product(factory: AggregatorFactory) -> str:
    aggregator, state = factory(), some_state()
    worst = 0.0
    for number in range(3):
        updates = some_updates(aggregator, state, seed=number)
        mean = _mean_effect(state, updates)
        state, _ = aggregator.aggregate(state, updates)
        worst = max(worst, _difference(effect(state.adapter), mean))
    if MEAN_PRODUCT not in _promised(factory):
        raise NotMade(f"not promised; over three rounds the product differs from the mean of products by {worst:.2g}")
    demand(worst <= _TOLERANCE, f"over three rounds the product differs from the mean of products by {worst:.2g}")
    return f"over three rounds the product is the mean of products within {worst:.1g}"


def _mean_effect(state: ServerState, updates: Sequence[StoredUpdate]) -> Effect:
    effects = [effect(at_client(state, update)) for update in updates]
    return {name: np.mean([one[name] for one in effects], axis=0) for name in effects[0]}


def _mixed_ranks(factory: AggregatorFactory) -> str:
    aggregator, state = factory(), some_state()
    ranks = (2, _RANK, 5)
    updates: list[StoredUpdate] = []
    for index, rank in enumerate(ranks):
        asked = asked_of(aggregator, replace(state, adapter=some_adapter(index, 0.5, rank)))
        updates.append(_update(index, asked, pack(asked)))
    if MIXED_RANKS not in _promised(factory):
        with expected(BadInput, f"updates of ranks {ranks}"):
            aggregator.aggregate(state, updates)
        raise NotMade("not promised; refused in a sentence")
    following, _ = aggregator.aggregate(state, updates)
    gap = _difference(effect(following.adapter), _mean_effect(state, updates))
    if MEAN_PRODUCT in _promised(factory):
        demand(gap <= _TOLERANCE, f"ranks {ranks}: the product differs from the mean of products by {gap:.2g}")
    return f"ranks {ranks} give an adapter of rank {_RANK}, its product differs from the mean of products by {gap:.2g}"


def _only_the_sum(factory: AggregatorFactory) -> str:
    if ONLY_THE_SUM not in _promised(factory):
        raise NotMade("not promised; single updates, or more than their mean, are needed")
    worst = _of_mean(factory, lambda layout, mean, _: HeldUpdate("", layout, mean))
    demand(worst <= _TOLERANCE, f"over three rounds the mean of the updates gives something else, by {worst:.2g}")
    return f"over three rounds the mean of the updates gives the same within {worst:.1g}"


def _sum_and_squares(factory: AggregatorFactory) -> str:
    if SUM_AND_SQUARES not in _promised(factory):
        raise NotMade("not promised")
    worst = _of_mean(
        factory,
        lambda layout, mean, squares: SummedUpdate("", layout, mean, {}, len(squares), sum(squares) / len(squares)),
    )
    demand(worst <= _TOLERANCE, f"over three rounds mean and squares give something else, by {worst:.2g}")
    return f"over three rounds the mean of the updates and of their squares gives the same within {worst:.1g}"


def _of_mean(factory: AggregatorFactory, as_one: Callable[[Layout, Vector, Sequence[float]], StoredUpdate]) -> float:
    """How far what comes of one update in the place of all is from what comes of all; `as_one` makes it from their layout,
    their mean and the squared lengths of their changes."""
    of_all = of_mean = some_state()
    aggregator, worst = factory(), 0.0
    for number in range(3):
        updates = some_updates(aggregator, of_all, seed=number)
        asked = asked_of(aggregator, of_all)
        read = [update.read().astype(np.float64) for update in updates]
        squares = [float(np.sum((vector - pack(asked)) ** 2)) for vector in read]
        of_all, _ = aggregator.aggregate(of_all, updates)
        one = as_one(asked.layout, np.mean(read, axis=0).astype(np.float32), squares)
        of_mean, _ = aggregator.aggregate(of_mean, [one])
        worst = max(worst, _difference(effect(of_mean.adapter), effect(of_all.adapter)))
        worst = max(worst, _difference(_in_double(of_mean.memory), _in_double(of_all.memory)))
    return worst


_PROMISES: dict[str, Callable[[AggregatorFactory], str]] = {
    "declarations": _declares,
    "next state": _next_state,
    "one client": _one_client,
    "no client": _no_client,
    "order of clients": _order,
    "same input, same result": _same_again,
    "inputs stay as they are": _untouched,
    "memory can be stored": _memory,
    "finite": _finite,
    EQUAL_UPDATES: _equal_updates,
    MEAN_PRODUCT: _mean_product,
    MIXED_RANKS: _mixed_ranks,
    ONLY_THE_SUM: _only_the_sum,
    SUM_AND_SQUARES: _sum_and_squares,
}
