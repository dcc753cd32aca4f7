"""The plain mean: exact where it can be, the same in any order, and no hungrier with more clients."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.adapters.stored import UpdateFile, store_update
from fedse.aggregators.mean import Mean
from fedse.types import Adapter, ClientUpdate, ServerState, Vector

LAYOUT = (("m.lora_A.weight", (4, 50)), ("m.lora_B.weight", (30, 4)))
SIZE = 320


def _state(layout: tuple[tuple[str, tuple[int, ...]], ...] = LAYOUT) -> ServerState:
    tensors = {name: np.zeros(shape, dtype=np.float32) for name, shape in layout}
    return ServerState(4, Adapter(tensors, {"r": 4}), {"moment": np.ones(1, dtype=np.float32)})


def _stored(vectors: Sequence[Vector], folder: Path) -> list[UpdateFile]:
    layout = _state().adapter.layout
    return [
        store_update(ClientUpdate(f"c{number:02d}", 5, vector, layout, {}, {}), folder)
        for number, vector in enumerate(vectors)
    ]


def _mean(vectors: Sequence[Vector], folder: Path) -> Vector:
    state, _ = Mean().aggregate(_state(), _stored(vectors, folder))
    return pack(state.adapter)


def _random(seed: int, scale: float = 1.0) -> Vector:
    return (scale * np.random.default_rng(seed).standard_normal(SIZE)).astype(np.float32)


@pytest.mark.parametrize("clients", range(1, 8))
def test_the_mean_of_equal_adapters_is_that_adapter_bit_for_bit(tmp_path: Path, clients: int) -> None:
    vector = _random(0)
    vector[:6] = [0.0, -0.0, 1e-45, -1e-45, 3.4028235e38, 0.1]
    assert _mean([vector] * clients, tmp_path).tobytes() == vector.tobytes()


def test_the_order_of_clients_does_not_matter_where_sums_are_exact(tmp_path: Path) -> None:
    vectors = [np.round(_random(seed) * 1024).astype(np.float32) / 1024 for seed in range(4)]
    results = {_mean(order, tmp_path).tobytes() for order in permutations(vectors)}
    assert len(results) == 1


def test_the_order_of_clients_changes_at_most_the_last_bit(tmp_path: Path) -> None:
    vectors = [_random(seed, 10.0 ** (seed - 3)) for seed in range(7)]
    np.testing.assert_array_max_ulp(_mean(vectors, tmp_path), _mean(vectors[::-1], tmp_path), maxulp=1)


@pytest.mark.parametrize("clients", [1, 2, 5, 24])
def test_it_is_numpys_mean_in_double_precision(tmp_path: Path, clients: int) -> None:
    vectors = [_random(seed) for seed in range(clients)]
    expected = np.mean(np.stack(vectors).astype(np.float64), axis=0).astype(np.float32)
    np.testing.assert_array_max_ulp(_mean(vectors, tmp_path), expected, maxulp=1)


def test_the_state_moves_on_by_one_round_and_keeps_configuration_and_memory(tmp_path: Path) -> None:
    before = _state()
    after, own = Mean().aggregate(before, _stored([_random(0), _random(1)], tmp_path))
    assert (after.round, after.adapter.config, after.adapter.layout) == (5, {"r": 4}, before.adapter.layout)
    assert after.memory == before.memory
    assert own == {}
    assert not pack(before.adapter).any()


def test_a_variant_overrides_nothing_but_the_weights(tmp_path: Path) -> None:
    class FirstCountsThrice(Mean):
        def weights(self, updates: Sequence[object]) -> np.ndarray:
            return np.array([3.0, 1.0])

    updates = _stored([np.full(SIZE, 1, dtype=np.float32), np.full(SIZE, 5, dtype=np.float32)], tmp_path)
    state, _ = FirstCountsThrice().aggregate(_state(), updates)
    assert set(pack(state.adapter).tolist()) == {2.0}


def test_memory_does_not_grow_with_the_number_of_clients(tmp_path: Path) -> None:
    layout = (("m.lora_A.weight", (8, 250_000)),)
    vector = np.ones(2_000_000, dtype=np.float32)
    updates = [store_update(ClientUpdate(f"c{n:02d}", 1, vector, layout, {}, {}), tmp_path) for n in range(24)]
    state = _state(layout)
    peaks = {}
    for clients in (2, 24):
        tracemalloc.start()
        Mean().aggregate(state, updates[:clients])
        peaks[clients] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[2] > vector.nbytes  # NumPy's memory is counted
    assert peaks[24] < 1.02 * peaks[2]
