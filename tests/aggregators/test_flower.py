"""Our rules beside Flower's strategies, on the same arrays over several rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.aggregators.check import HeldUpdate
from fedse.aggregators.fedadam import FedAdam
from fedse.aggregators.fedavgm import FedAvgM
from fedse.aggregators.fedyogi import FedYogi
from fedse.aggregators.krum import Krum
from fedse.aggregators.mean import Mean
from fedse.aggregators.median import CoordinateMedian
from fedse.aggregators.multi_krum import MultiKrum
from fedse.aggregators.size_weighted import SizeWeighted
from fedse.aggregators.trimmed_mean import TrimmedMean
from fedse.types import Adapter, ServerState

SHAPES = {"a.lora_A.weight": (3, 11), "a.lora_B.weight": (6, 3)}
SIZES = (30, 5, 12, 8, 45, 21, 9)


def _adapter(seed: int, around: Adapter | None = None, spread: float = 1.0) -> Adapter:
    draw = np.random.default_rng(seed)
    tensors = {name: spread * draw.standard_normal(shape) for name, shape in SHAPES.items()}
    if around is not None:
        tensors = {name: tensor + around.tensors[name] for name, tensor in tensors.items()}
    return Adapter({name: tensor.astype(np.float32) for name, tensor in tensors.items()})


def _flowers_round(strategy: Any, number: int, before: Adapter, sent: list[Adapter], weighted: bool) -> Adapter:
    """What a strategy makes of one round, given messages as clients would send them."""
    from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict

    if hasattr(strategy, "current_arrays"):
        arrays = {name: Array(tensor) for name, tensor in before.tensors.items()}
        keeps_records = type(strategy).__name__ == "FedAvgM"
        strategy.current_arrays = ArrayRecord(arrays) if keeps_records else dict(before.tensors)
    messages = []
    for index, adapter in enumerate(sent):
        content = RecordDict(
            {
                "arrays": ArrayRecord({name: Array(tensor) for name, tensor in adapter.tensors.items()}),
                "metrics": MetricRecord({"num-examples": SIZES[index] if weighted else 1}),
            }
        )
        # Outside a run of Flower's a message needs its metadata by hand.
        metadata = Metadata(1, str(index), index + 1, 0, "", "", 0.0, 3600.0, "train", 1, 1)
        messages.append(Message(content, metadata=metadata))
    arrays, _ = strategy.aggregate_train(number, messages)
    assert arrays is not None
    return Adapter({name: np.asarray(array.numpy(), dtype=np.float32) for name, array in arrays.items()})


def _compare(ours: Any, theirs: Any, weighted: bool = False, prepare: Callable[[Any, int], None] | None = None) -> None:
    state = ServerState(0, _adapter(99))
    for number in range(1, 4):
        sent = [_adapter(10 * number + index, state.adapter, 0.1) for index in range(len(SIZES))]
        if prepare:
            prepare(theirs, number)
        expected = _flowers_round(theirs, number, state.adapter, sent, weighted)
        updates = [
            HeldUpdate(f"c{index}", adapter.layout, pack(adapter), {"learned_from": SIZES[index]})
            for index, adapter in enumerate(sent)
        ]
        state, _ = ours.aggregate(state, updates)
        np.testing.assert_allclose(pack(state.adapter), pack(expected), rtol=2e-5, atol=2e-6)


@pytest.fixture
def strategies() -> Any:
    return pytest.importorskip("flwr.serverapp.strategy")


def test_the_mean_is_fedavg_with_equal_sizes(strategies: Any) -> None:
    _compare(Mean(), strategies.FedAvg())


def test_the_size_weighted_mean_is_fedavg(strategies: Any) -> None:
    _compare(SizeWeighted(), strategies.FedAvg(), weighted=True)


def test_momentum(strategies: Any) -> None:
    _compare(
        FedAvgM(momentum=0.7, learning_rate=0.5), strategies.FedAvgM(server_momentum=0.7, server_learning_rate=0.5)
    )


def _begin_at_tau_squared(strategy: Any, number: int) -> None:
    if number == 1:
        strategy.v_t = {name: np.full(shape, strategy.tau**2) for name, shape in SHAPES.items()}


def test_adam(strategies: Any) -> None:
    def prepare(strategy: Any, number: int) -> None:
        _begin_at_tau_squared(strategy, number)
        # Flower enlarges the rate of early rounds; the paper of FedAdam, and our rule, do not.
        strategy.eta = 0.01 * (1 - 0.9 ** (number + 1)) / np.sqrt(1 - 0.99 ** (number + 1))

    _compare(
        FedAdam(learning_rate=0.01, tau=1e-3), strategies.FedAdam(beta_1=0.9, beta_2=0.99, tau=1e-3), prepare=prepare
    )


def test_yogi(strategies: Any) -> None:
    theirs = strategies.FedYogi(eta=0.01, beta_1=0.9, beta_2=0.99, tau=1e-3)
    _compare(FedYogi(learning_rate=0.01, tau=1e-3), theirs, prepare=_begin_at_tau_squared)


def test_the_median(strategies: Any) -> None:
    _compare(CoordinateMedian(), strategies.FedMedian())


@pytest.mark.parametrize("share", [0.0, 0.15, 0.3, 0.45])
def test_the_trimmed_mean(strategies: Any, share: float) -> None:
    _compare(TrimmedMean(share=share), strategies.FedTrimmedAvg(beta=share))


@pytest.mark.parametrize("hostile", [0, 1, 2])
def test_krum(strategies: Any, hostile: int) -> None:
    _compare(Krum(hostile=hostile), strategies.Krum(num_malicious_nodes=hostile))


@pytest.mark.parametrize("keep", [1, 3, 5])
def test_multi_krum(strategies: Any, keep: int) -> None:
    theirs = strategies.MultiKrum(num_malicious_nodes=2, num_nodes_to_select=keep)
    _compare(MultiKrum(hostile=2, keep=keep), theirs)
