"""The numbers about a round, against a computation with every product written out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedse.adapters import stored
from fedse.adapters.packing import pack, slices
from fedse.adapters.stored import UpdateFile, store_update
from fedse.aggregators import diagnostics
from fedse.aggregators.diagnostics import diagnose
from fedse.types import Adapter, ClientUpdate

SHAPES = {"q": (6, 9), "v": (4, 7)}  # outputs, inputs
RANK = 3


def _adapter(seed: int, spread: float = 1.0, around: Adapter | None = None) -> Adapter:
    draw = np.random.default_rng(seed)
    tensors = {}
    for name, (outputs, inputs) in SHAPES.items():
        tensors[f"{name}.lora_A.weight"] = spread * draw.standard_normal((RANK, inputs))
        tensors[f"{name}.lora_B.weight"] = spread * draw.standard_normal((outputs, RANK))
    tensors["head.bias"] = spread * draw.standard_normal(5)
    if around is not None:
        tensors = {name: tensor + around.tensors[name] for name, tensor in tensors.items()}
    return Adapter({name: tensor.astype(np.float32) for name, tensor in tensors.items()})


def _stored(adapters: list[Adapter], folder: Path) -> list[UpdateFile]:
    return [
        store_update(ClientUpdate(f"c{number:02d}", 1, pack(adapter), adapter.layout, {}, {}), folder)
        for number, adapter in enumerate(adapters)
    ]


def _dense_gap(adapters: list[Adapter]) -> float:
    lost = whole = 0.0
    for name in SHAPES:
        downs = [adapter.tensors[f"{name}.lora_A.weight"].astype(np.float64) for adapter in adapters]
        ups = [adapter.tensors[f"{name}.lora_B.weight"].astype(np.float64) for adapter in adapters]
        mean_of_products = np.mean([up @ down for up, down in zip(ups, downs, strict=True)], axis=0)
        product_of_means = np.mean(ups, axis=0) @ np.mean(downs, axis=0)
        whole += np.linalg.norm(mean_of_products) ** 2
        lost += np.linalg.norm(mean_of_products - product_of_means) ** 2
    return float(np.sqrt(lost / whole))


def _cosine(one: Any, other: Any) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_distances_are_those_of_the_projectors_onto_what_changed(tmp_path: Path) -> None:
    broadcast = _adapter(99)
    adapters = [_adapter(seed, 0.1, around=broadcast) for seed in range(3)]
    found = diagnose(broadcast, _stored(adapters, tmp_path))["subspace_distance"]
    assert found.keys() == {"c00|c01", "c00|c02", "c01|c02"}
    for pair, value in found.items():
        wanted = []
        for name in (f"{module}.lora_B.weight" for module in SHAPES):
            changes = [adapters[int(each[1:])].tensors[name] - broadcast.tensors[name] for each in pair.split("|")]
            one, other = (change @ np.linalg.pinv(change) for change in changes)
            wanted.append(np.sum((one - other) ** 2) / (2 * RANK))
        assert value == pytest.approx(np.mean(wanted), abs=1e-4)
    lone = diagnose(_without_pairs(0), _stored([_without_pairs(1), _without_pairs(2)], tmp_path / "lone"))
    assert "cosine" in lone and "subspace_distance" not in lone


@pytest.mark.parametrize("clients", [1, 2, 3, 8])
def test_norms_cosines_and_gap_equal_the_dense_computation(tmp_path: Path, clients: int) -> None:
    broadcast = _adapter(99)
    adapters = [_adapter(seed, 0.3, broadcast) for seed in range(clients)]
    found = diagnose(broadcast, _stored(adapters, tmp_path))

    changes = [pack(adapter).astype(np.float64) - pack(broadcast) for adapter in adapters]
    mean = np.mean(changes, axis=0)
    for number, change in enumerate(changes):
        assert found["update_norm"][f"c{number:02d}"] == pytest.approx(np.linalg.norm(change), rel=1e-9)
        assert found["cosine_to_mean"][f"c{number:02d}"] == pytest.approx(_cosine(change, mean), abs=1e-9)
    assert found["mean_update_norm"] == pytest.approx(np.linalg.norm(mean), rel=1e-9)
    pairs = [(i, j) for i in range(clients) for j in range(i + 1, clients)]
    assert found["cosine"].keys() == {f"c{i:02d}|c{j:02d}" for i, j in pairs}
    for i, j in pairs:
        assert found["cosine"][f"c{i:02d}|c{j:02d}"] == pytest.approx(_cosine(changes[i], changes[j]), abs=1e-9)
    assert found["product_gap"] == pytest.approx(_dense_gap(adapters), rel=1e-6, abs=1e-9)
    assert found["product_gap_is"] == "exact"
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("clients", [3, 40])
@pytest.mark.parametrize("factor", [".lora_A.", ".lora_B."])
def test_nothing_is_lost_where_one_factor_is_the_same_everywhere(tmp_path: Path, factor: str, clients: int) -> None:
    shared = _adapter(0)
    adapters = []
    for seed in range(1, clients + 1):
        own = _adapter(seed)
        frozen = {name: tensor for name, tensor in shared.tensors.items() if factor in name}
        adapters.append(Adapter({**own.tensors, **frozen}))
    assert diagnose(shared, _stored(adapters, tmp_path))["product_gap"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("clients", [diagnostics.EXACT_UP_TO, diagnostics.EXACT_UP_TO + 1])
def test_the_switch_to_the_estimate_comes_after_32_clients(tmp_path: Path, clients: int) -> None:
    broadcast = _adapter(99)
    found = diagnose(broadcast, _stored([_adapter(n, 0.3, broadcast) for n in range(clients)], tmp_path))
    assert ("cosine" in found) == (clients <= 32)
    assert ("estimate" in found["product_gap_is"]) == (clients > 32)


@pytest.mark.parametrize("spread", [0.05, 0.3, 2.0])
def test_above_32_clients_the_gap_is_an_estimate_and_the_rest_still_exact(tmp_path: Path, spread: float) -> None:
    broadcast = _adapter(99)
    adapters = [_adapter(seed, spread, broadcast) for seed in range(36)]
    found = diagnose(broadcast, _stored(adapters, tmp_path))
    assert found["product_gap"] == pytest.approx(_dense_gap(adapters), rel=0.25)
    assert found["product_gap"] != pytest.approx(_dense_gap(adapters), rel=1e-9)
    changes = [pack(adapter).astype(np.float64) - pack(broadcast) for adapter in adapters]
    mean = np.mean(changes, axis=0)
    assert found["mean_update_norm"] == pytest.approx(np.linalg.norm(mean), rel=1e-9)
    for number, change in enumerate(changes):
        assert found["update_norm"][f"c{number:02d}"] == pytest.approx(np.linalg.norm(change), rel=1e-9)
        assert found["cosine_to_mean"][f"c{number:02d}"] == pytest.approx(_cosine(change, mean), abs=1e-9)
    assert diagnose(broadcast, _stored(adapters, tmp_path)) == found


def _without_pairs(seed: int) -> Adapter:
    return Adapter({"table": np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)})


def _half_a_pair(seed: int) -> Adapter:
    return Adapter({"q.lora_A.weight": np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)})


@pytest.mark.parametrize("clients", [2, 33])
@pytest.mark.parametrize("make", [_without_pairs, _half_a_pair])
def test_adapters_without_lora_pairs_have_no_gap(tmp_path: Path, make: Callable[[int], Adapter], clients: int) -> None:
    found = diagnose(make(99), _stored([make(seed) for seed in range(clients)], tmp_path))
    assert found["product_gap"] is None
    assert all(norm > 0 for norm in found["update_norm"].values())


def test_opposite_updates_cancel_without_a_division_by_zero(tmp_path: Path) -> None:
    start = Adapter({"table": np.zeros(4, dtype=np.float32)})
    ahead = Adapter({"table": np.array([1, 2, 0, 0], dtype=np.float32)})
    back = Adapter({"table": -ahead.tensors["table"]})
    found = diagnose(start, _stored([ahead, back], tmp_path))
    assert found["mean_update_norm"] == 0
    assert found["cosine_to_mean"] == {"c00": 0, "c01": 0}
    assert found["cosine"]["c00|c01"] == pytest.approx(-1)


@pytest.mark.parametrize("clients", [1, 3])
def test_updates_are_read_once_and_in_pieces_as_large_as_memory_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    """A piece of a file takes as long to open as to compute with, and a GPU in the same process waits for it."""
    broadcast, read = _adapter(99), UpdateFile.read
    pieces: list[tuple[str, int, int | None]] = []

    def noted(update: UpdateFile, start: int = 0, stop: int | None = None) -> Any:
        pieces.append((update.client, start, stop))
        return read(update, start, stop)

    monkeypatch.setattr(UpdateFile, "read", noted)
    updates = _stored([_adapter(seed) for seed in range(clients)], tmp_path)
    found = diagnose(broadcast, updates)
    assert sorted(client for client, start, _ in pieces if start == 0) == [update.client for update in updates]
    assert len(pieces) == clients
    pieces.clear()
    monkeypatch.setattr(stored, "AHEAD", 0)
    assert diagnose(broadcast, updates) == found
    wanted = [
        (f"c{client:02d}", start, stop) for client in range(clients) for *_, start, stop in slices(broadcast.layout)
    ]
    assert sorted(pieces, key=str) == sorted(wanted, key=str)


def test_a_piece_ends_where_the_vector_ends(tmp_path: Path) -> None:
    adapter = _adapter(1)
    (update,) = _stored([adapter], tmp_path)
    whole = pack(adapter)
    assert np.array_equal(update.read(), whole)
    assert np.array_equal(update.read(7, 12), whole[7:12])
    assert np.array_equal(update.read(len(whole) - 3, len(whole) + 50), whole[-3:])
    assert len(update.read(len(whole), len(whole) + 1)) == 0
