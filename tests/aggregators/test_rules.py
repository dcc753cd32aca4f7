"""Each rule for whole vectors against its formula written out, and what it is for: whom it trusts, what it costs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.aggregators import rule
from fedse.aggregators.bounded_momentum import BoundedMomentum
from fedse.aggregators.check import HeldUpdate, check_aggregator, some_adapter, some_state, some_updates
from fedse.aggregators.fedadam import FedAdam
from fedse.aggregators.fedavgm import FedAvgM
from fedse.aggregators.fedyogi import FedYogi
from fedse.aggregators.krum import Krum
from fedse.aggregators.median import CoordinateMedian
from fedse.aggregators.multi_krum import MultiKrum, squared_distances
from fedse.aggregators.norm_bounded import NormBounded
from fedse.aggregators.size_weighted import SizeWeighted
from fedse.aggregators.success_weighted import SuccessWeighted
from fedse.aggregators.trimmed_mean import TrimmedMean
from fedse.errors import BadInput
from fedse.types import Adapter, ServerState, Vector

STATE = some_state()
BROADCAST = pack(STATE.adapter).astype(np.float64)


def updates(vectors: Sequence[Any], counts: Sequence[dict[str, int]] = ()) -> list[HeldUpdate]:
    told = counts or [{}] * len(vectors)
    layout = STATE.adapter.layout
    return [
        HeldUpdate(f"c{number:02d}", layout, np.asarray(vector, dtype=np.float32), told[number])
        for number, vector in enumerate(vectors)
    ]


def drawn(clients: int, spread: float = 0.1, seed: int = 0) -> list[Vector]:
    draw = np.random.default_rng(seed)
    return [(BROADCAST + spread * draw.standard_normal(len(BROADCAST))).astype(np.float32) for _ in range(clients)]


def result(aggregator: Any, sent: Sequence[HeldUpdate], state: ServerState = STATE) -> Vector:
    return pack(aggregator.aggregate(state, sent)[0].adapter)


@pytest.mark.parametrize(("kind", "name"), [(SizeWeighted, "learned_from"), (SuccessWeighted, "successes")])
def test_weights_are_the_counts_that_updates_carry(kind: Any, name: str) -> None:
    vectors, weights = drawn(3), (4, 0, 12)
    sent = updates(vectors, [{name: weight, "other": 5} for weight in weights])
    expected = np.average(np.stack(vectors).astype(np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(result(kind(), sent), expected, rtol=1e-6)
    equal = result(kind(), updates(vectors, [{name: 0}] * 3))
    np.testing.assert_allclose(equal, np.mean(np.stack(vectors).astype(np.float64), axis=0), rtol=1e-6)
    with pytest.raises(BadInput, match=f"client 'c00' carries no count '{name}'"):
        kind().aggregate(STATE, updates(vectors))


def test_momentum_goes_on_after_the_clients_stopped() -> None:
    """With updates equal to the broadcast adapter, each step is `momentum` times the last."""
    aggregator = FedAvgM(momentum=0.5)
    state, _ = aggregator.aggregate(STATE, updates(drawn(3)))
    first = pack(state.adapter) - BROADCAST
    following, numbers = aggregator.aggregate(state, updates([pack(state.adapter)] * 3))
    second = pack(following.adapter).astype(np.float64) - pack(state.adapter)
    np.testing.assert_allclose(second, 0.5 * first, atol=1e-6)
    assert numbers["step_norm"] == pytest.approx(np.linalg.norm(second), rel=1e-4)


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_the_first_adaptive_step_is_the_formula_by_hand(kind: Any) -> None:
    vectors = drawn(4)
    change = np.mean(np.stack(vectors).astype(np.float64), axis=0) - BROADCAST
    before = 1e-6
    second = 0.99 * before + 0.01 * change**2
    if kind is FedYogi:
        second = before - 0.01 * change**2 * np.sign(before - change**2)
    expected = BROADCAST + 0.02 * (0.1 * change) / (np.sqrt(second) + 1e-3)
    np.testing.assert_allclose(result(kind(learning_rate=0.02), updates(vectors)), expected, rtol=1e-5, atol=1e-7)


def test_yogi_forgets_a_large_round_more_slowly_than_adam() -> None:
    after: dict[str, float] = {}
    for kind in (FedAdam, FedYogi):
        state, _ = kind().aggregate(STATE, updates(drawn(3, spread=10.0)))
        for number in range(5):
            calm = [pack(state.adapter) + 1e-6 * vector for vector in drawn(3, seed=number)]
            state, _ = kind().aggregate(state, updates(calm))
        after[kind.__name__] = float(state.memory["second_moment"].mean())
    assert after["FedYogi"] > 1.04 * after["FedAdam"]


@pytest.mark.parametrize("kind", [CoordinateMedian, TrimmedMean, Krum, MultiKrum])
def test_one_client_of_five_cannot_move_a_robust_rule_far(kind: Any) -> None:
    honest = drawn(4, 0.01)
    for attack in (1e6, -1e6):
        sent = updates([*honest, BROADCAST + attack])
        assert np.abs(result(kind(), sent) - BROADCAST).max() < 0.1


def test_one_client_moves_the_bounded_mean_by_its_share_of_the_bound_at_most() -> None:
    honest = drawn(4, 0.01)
    sent = updates([*honest, BROADCAST + 1e6])
    following, numbers = NormBounded().aggregate(STATE, sent)
    norms = sorted(np.linalg.norm(vector - BROADCAST) for vector in honest)
    assert np.linalg.norm(pack(following.adapter) - BROADCAST) <= numbers["norm_bound"] * 1.001
    assert norms[0] <= numbers["norm_bound"] <= norms[-1]
    assert numbers["shortened"] == 2.0


def test_a_bound_of_ones_own_shortens_everybody() -> None:
    vectors = drawn(3)
    changes = [vector - BROADCAST for vector in vectors]
    expected = BROADCAST + np.mean([0.5 * change / np.linalg.norm(change) for change in changes], axis=0)
    np.testing.assert_allclose(result(NormBounded(bound=0.5), updates(vectors)), expected, atol=1e-6)


def after_rounds(aggregator: Any, rounds: Sequence[Sequence[Vector]]) -> Vector:
    """Where the adapter is when clients have sent these changes to what they were broadcast, round after round."""
    state = STATE
    for changes in rounds:
        state, _ = aggregator.aggregate(state, updates([pack(state.adapter) + change for change in changes]))
    return pack(state.adapter)


@pytest.mark.parametrize("options", [{}, {"nesterov": True, "learning_rate": 0.7, "momentum": 0.5}])
def test_bounded_momentum_is_momentum_on_shortened_changes(options: dict[str, Any]) -> None:
    draw = np.random.default_rng(1)
    rounds = [[spread * draw.standard_normal(len(BROADCAST)) for spread in (0.1, 0.2, 0.5)] for _ in range(3)]
    shortened = [[change * min(1, 0.2 / np.linalg.norm(change)) for change in changes] for changes in rounds]
    expected = after_rounds(FedAvgM(**options), shortened)
    np.testing.assert_allclose(after_rounds(BoundedMomentum(**options, bound=0.2), rounds), expected, atol=1e-6)
    unbounded = after_rounds(FedAvgM(**options), rounds)
    assert np.abs(unbounded - expected).max() > 0.01
    np.testing.assert_allclose(after_rounds(BoundedMomentum(**options, bound=1e3), rounds), unbounded, atol=1e-6)


def test_one_client_cannot_take_bounded_momentum_along() -> None:
    draw = np.random.default_rng(2)
    honest = [[0.01 * draw.standard_normal(len(BROADCAST)) for _ in range(4)] for _ in range(4)]
    attacked = [[*changes, np.full(len(BROADCAST), 1e3)] for changes in honest]
    longest = max(np.linalg.norm(change) for changes in honest for change in changes)
    # Whatever all five send, four rounds of momentum 0.9 go no further than four, three, two and one bounds.
    assert np.linalg.norm(after_rounds(BoundedMomentum(), attacked) - BROADCAST) < 10 * longest
    assert np.linalg.norm(after_rounds(FedAvgM(), attacked) - BROADCAST) > 1e3 * longest


@pytest.mark.parametrize("clients", [1, 2, 4, 5, 11])
def test_trimming_leaves_out_a_fifth_at_each_end(clients: int) -> None:
    vectors = np.stack(drawn(clients))
    out = clients // 5
    expected = np.sort(vectors, axis=0)[out : clients - out].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(result(TrimmedMean(), updates(list(vectors))), expected, rtol=1e-5, atol=1e-7)


def test_krums_scores_are_those_of_the_definition() -> None:
    vectors = drawn(7)
    squared = np.array([[np.sum((one.astype(np.float64) - other) ** 2) for other in vectors] for one in vectors])
    np.testing.assert_allclose(squared_distances(updates(vectors)), squared, rtol=1e-6, atol=1e-9)
    scores = [np.sort(np.delete(row, index))[: 7 - 2 - 2].sum() for index, row in enumerate(squared)]
    chosen = result(Krum(hostile=2), updates(vectors))
    assert np.array_equal(chosen, vectors[int(np.argmin(scores))])
    best = np.argsort(scores)[:5]
    expected = np.mean(np.stack(vectors)[best].astype(np.float64), axis=0)
    np.testing.assert_allclose(result(MultiKrum(hostile=2), updates(vectors)), expected, rtol=1e-6)


def test_krum_tells_whether_its_theorem_applies() -> None:
    assert Krum().aggregate(STATE, updates(drawn(5)))[1]["krum_guaranteed"] == 1.0
    assert Krum().aggregate(STATE, updates(drawn(4)))[1]["krum_guaranteed"] == 0.0


@pytest.mark.parametrize("kind", [CoordinateMedian, TrimmedMean, Krum, MultiKrum])
def test_pieces_give_what_the_whole_gives(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = updates(drawn(6))
    whole = result(kind(), sent)
    monkeypatch.setattr(rule, "PIECE", 60)
    assert len(rule.pieces(len(BROADCAST), 6)) > 10
    assert np.array_equal(result(kind(), sent), whole)


@pytest.mark.parametrize("kind", [CoordinateMedian, TrimmedMean, MultiKrum, NormBounded, BoundedMomentum, FedAdam])
def test_memory_does_not_grow_with_the_number_of_clients(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "PIECE", 1 << 16)
    layout = (("table", (400_000,)),)
    state = ServerState(0, Adapter({"table": np.zeros(400_000, dtype=np.float32)}))
    vector = np.random.default_rng(0).standard_normal(400_000).astype(np.float32)
    peaks = {}
    for clients in (4, 24):
        sent = [HeldUpdate(f"c{number:02d}", layout, vector) for number in range(clients)]
        tracemalloc.start()
        kind().aggregate(state, sent)
        peaks[clients] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[4] > vector.nbytes
    assert peaks[24] < 1.1 * peaks[4]


def test_an_update_of_another_rank_is_refused_in_a_sentence() -> None:
    other = some_adapter(0, rank=5)
    with pytest.raises(BadInput, match=r"client 'c' has other tensors or ranks than CoordinateMedian"):
        CoordinateMedian().aggregate(STATE, [HeldUpdate("c", other.layout, pack(other))])


def test_nesterovs_step_is_torchs() -> None:
    import torch

    state = some_state()
    ahead = FedAvgM(momentum=0.9, learning_rate=0.7, nesterov=True)
    held = torch.nn.Parameter(torch.from_numpy(pack(state.adapter)).double())
    torchs = torch.optim.SGD([held], lr=0.7, momentum=0.9, nesterov=True)
    for seed in range(4):
        sent = some_updates(ahead, state, seed=seed)
        mean = np.mean([update.read() for update in sent], axis=0, dtype=np.float64)
        held.grad = held.detach() - torch.from_numpy(mean)
        torchs.step()
        state, _ = ahead.aggregate(state, sent)
        np.testing.assert_allclose(pack(state.adapter), held.detach().numpy(), atol=1e-4)
    assert all(finding.passed for finding in check_aggregator(lambda: FedAvgM(nesterov=True)))


@pytest.mark.parametrize(("clients", "share"), [(4, "0.25"), (3, "0.34"), (2, None), (1, None)])
def test_a_trimmed_mean_that_trims_nobody_says_so_and_what_would_help(clients: int, share: str | None) -> None:
    said = TrimmedMean().advice(clients)
    assert f"leaves out nobody of {clients} clients" in said
    assert (f"set aggregator.share to {share} or more" if share else "take `median`") in said
    if share:
        assert TrimmedMean(share=float(share)).advice(clients) == ""


def test_a_trimmed_mean_tells_how_many_it_left_out() -> None:
    assert TrimmedMean().advice(5) == "" and TrimmedMean(share=0.0).advice(4) == ""
    for clients, out in ((4, 0.0), (5, 1.0), (10, 2.0)):
        assert TrimmedMean().aggregate(STATE, updates(drawn(clients)))[1] == {"trimmed": out}


@pytest.mark.parametrize("rule", [NormBounded, BoundedMomentum])
def test_a_rule_that_has_nobody_to_compare_with_says_so(rule: Any) -> None:
    assert "one sends in a round, so it bounds nothing" in rule().advice(1)
    assert rule().advice(2) == rule(bound=0.5).advice(1) == ""
