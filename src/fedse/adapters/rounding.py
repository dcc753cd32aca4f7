"""A packed adapter in fewer bytes: the change against the broadcast adapter, as float16 or in blocks of int8.

float32 carries the adapter itself and loses nothing. Every engine goes through it, the local one too, so that all of them
reach the same adapter at every precision.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from fedse.types import Encoded, Masked, Precision, Vector

BLOCK = 256
"""Values that share one scale in int8."""
SQUARE_DIGITS = 6
"""Of a squared length in a secure sum, each half as wide as a value."""


def encode(vector: Vector, broadcast: Vector, precision: Precision) -> Encoded:
    if precision == "float32":
        return Encoded(precision, vector)
    change = vector - broadcast
    if precision == "float16":
        return Encoded(precision, change.astype(np.float16))
    blocks = _blocks(change)
    scales = (np.abs(blocks).max(axis=1) / np.float32(127)).astype(np.float32)
    steps = np.divide(blocks, scales[:, None], out=np.zeros_like(blocks), where=scales[:, None] > 0)
    whole = np.rint(steps).astype(np.int8).ravel()[: change.size]
    return Encoded(precision, np.frombuffer(scales.astype("<f4").tobytes() + whole.tobytes(), dtype=np.uint8))


def decode(encoded: Encoded, broadcast: Vector) -> Vector:
    """The adapter that was sent in the clear, as near as the precision allows. Raises `ValueError` when it does not fit."""
    array = encoded.array
    if encoded.precision == "float32":
        return np.asarray(array, dtype=np.float32)
    if encoded.precision == "float16":
        return broadcast + _fitting(array, broadcast.size).astype(np.float32)
    blocks = -(-broadcast.size // BLOCK)
    content = _fitting(array, 4 * blocks + broadcast.size).tobytes()
    scales = np.frombuffer(content[: 4 * blocks], dtype="<f4").astype(np.float32)
    steps = _blocks(np.frombuffer(content[4 * blocks :], dtype=np.int8).astype(np.float32))
    return broadcast + (steps * scales[:, None]).ravel()[: broadcast.size]


def encoded_form(precision: Precision | Masked, size: int) -> tuple[str, int]:
    """Type and number of the values in the array of an adapter of so many values."""
    if precision in get_args(Masked):
        further = SQUARE_DIGITS if precision.endswith("squares") else 0
        return ("<u4" if precision.startswith("sum32") else "<u8"), size + further + 1
    if precision == "float32":
        return "<f4", size
    return ("<f2", size) if precision == "float16" else ("|u1", 4 * -(-size // BLOCK) + size)


def loss(vector: Vector, decoded: Vector, broadcast: Vector) -> float:
    """Norm of what rounding took away, as a share of the norm of the change."""
    change = float(np.linalg.norm(vector.astype(np.float64) - broadcast))
    return float(np.linalg.norm(decoded.astype(np.float64) - vector)) / change if change else 0.0


def _blocks(values: Vector) -> Vector:
    """Rows of `BLOCK` values; the last one is filled up with zeros."""
    padded = np.zeros(-(-values.size // BLOCK) * BLOCK, dtype=np.float32)
    padded[: values.size] = values
    return padded.reshape(-1, BLOCK)


def _fitting(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    if array.size != size:
        raise ValueError(f"an encoded adapter of {array.size} values where {size} belong")
    return array
