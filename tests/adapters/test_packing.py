"""An adapter crosses as one float32 vector in sorted name order, bit for bit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedse.adapters.packing import length, modules, pack, slices, unpack
from fedse.types import Adapter, Vector


def _tensors() -> dict[str, Vector]:
    draw = np.random.default_rng(0)
    special = np.array([[0.0, -0.0, np.inf], [np.float32(1e-45), 3.4e38, -1.1]], dtype=np.float32)
    return {
        "z.lora_A.weight": draw.standard_normal((2, 5)).astype(np.float32),
        "z.lora_B.weight": draw.standard_normal((7, 2)).astype(np.float32),
        "a.bias": special,
        "b.scalar": np.float32(3).reshape(()),
        "c.empty": np.zeros((0, 4), dtype=np.float32),
    }


def test_packing_and_unpacking_gives_the_same_bits() -> None:
    adapter = Adapter(_tensors(), {"r": 2})
    back = unpack(pack(adapter), adapter.layout, adapter.config)
    assert back.digest() == adapter.digest()
    assert back.layout == adapter.layout
    assert back.config == {"r": 2}
    for name, tensor in adapter.tensors.items():
        assert back.tensors[name].tobytes() == tensor.tobytes()


def test_the_order_of_a_dictionary_changes_nothing() -> None:
    tensors = _tensors()
    turned = {name: tensors[name] for name in reversed(list(tensors))}
    assert pack(Adapter(turned)).tobytes() == pack(Adapter(tensors)).tobytes()
    assert Adapter(turned).layout == Adapter(tensors).layout
    assert Adapter(turned).digest() == Adapter(tensors).digest()


def test_tensors_that_are_not_contiguous_pack_by_value() -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert pack(Adapter({"x": whole.T})).tolist() == whole.T.ravel().tolist()
    assert Adapter({"x": whole.T}).digest() == Adapter({"x": np.ascontiguousarray(whole.T)}).digest()


def test_unpacked_tensors_do_not_share_memory_with_the_vector() -> None:
    adapter = Adapter({"x": np.ones((2, 2), dtype=np.float32)})
    vector = pack(adapter)
    back = unpack(vector, adapter.layout, {})
    vector[:] = 5
    assert back.tensors["x"].tolist() == [[1, 1], [1, 1]]


def test_a_single_bit_changes_the_digest() -> None:
    tensors = _tensors()
    changed = {**tensors, "a.bias": np.where(tensors["a.bias"] == 0, 0.0, tensors["a.bias"]).astype(np.float32)}
    assert Adapter(changed).digest() != Adapter(tensors).digest()  # -0.0 became 0.0


def test_an_adapter_without_tensors_is_an_empty_vector() -> None:
    assert pack(Adapter({})).shape == (0,)
    assert unpack(pack(Adapter({})), (), {}).tensors == {}
    assert length(()) == 0


def test_slices_cover_the_vector_without_gap_or_overlap() -> None:
    layout = Adapter(_tensors()).layout
    bounds = [(start, stop) for _, _, start, stop in slices(layout)]
    assert bounds[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert bounds[-1][1] == length(layout) == Adapter(_tensors()).size


def test_lora_pairs_are_found_and_others_stand_alone() -> None:
    found = modules(Adapter(_tensors()).layout)
    assert sorted(tuple(sorted(module)) for module in found) == [("",), ("",), ("",), ("A", "B")]
    pair = next(module for module in found if "A" in module)
    assert (pair["A"][0], pair["B"][0]) == ((2, 5), (7, 2))


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_precisions_become_float32(dtype: type) -> None:
    assert pack(Adapter({"x": np.ones(3, dtype=dtype)})).dtype == np.float32
