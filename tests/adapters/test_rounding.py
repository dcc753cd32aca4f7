from __future__ import annotations

import numpy as np
import pytest

from fedse.adapters.rounding import BLOCK, decode, encode, loss
from fedse.types import Encoded

CHANCE = np.random.default_rng(5)


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, 5 * BLOCK + 7])
@pytest.mark.parametrize(
    ("precision", "most", "share"), [("float32", 0.0, 1), ("float16", 5e-4, 2), ("int8", 2e-2, 3.8)]
)
def test_a_change_comes_back_as_near_as_its_precision_allows(
    size: int, precision: str, most: float, share: float
) -> None:
    broadcast = CHANCE.normal(size=size).astype(np.float32)
    vector = broadcast + 1e-3 * CHANCE.normal(size=size).astype(np.float32)
    encoded = encode(vector, broadcast, precision)  # type: ignore[arg-type]
    back = decode(encoded, broadcast)
    assert back.dtype == np.float32 and loss(vector, back, broadcast) <= most
    if size > BLOCK:
        assert vector.nbytes / encoded.array.nbytes >= share


def test_float32_is_exact_for_any_bits() -> None:
    vector = CHANCE.integers(0, 2**31, 1000, dtype=np.int32).view(np.float32)
    assert decode(encode(vector, np.zeros(1000, np.float32), "float32"), vector).tobytes() == vector.tobytes()


def test_int8_is_within_half_a_step_of_its_block() -> None:
    vector = CHANCE.normal(size=4 * BLOCK).astype(np.float32)
    vector[BLOCK : 2 * BLOCK] = 0
    zeros = np.zeros_like(vector)
    away = np.abs(decode(encode(vector, zeros, "int8"), zeros) - vector).reshape(4, BLOCK)
    steps = np.abs(vector.reshape(4, BLOCK)).max(axis=1) / 127
    assert (away <= steps[:, None] * 0.5001).all() and not away[1].any()


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_an_array_of_another_length_is_refused(precision: str) -> None:
    with pytest.raises(ValueError, match="belong"):
        decode(Encoded(precision, np.zeros(3, np.uint8)), np.zeros(10, np.float32))  # type: ignore[arg-type]
