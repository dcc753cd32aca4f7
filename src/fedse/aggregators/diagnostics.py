"""What a round's updates say about each other: how far each went, whether they agree, what the mean loses.

All numbers are about the change against the broadcast adapter, except the product gap, which is about the adapters:

    product_gap = || mean(B_k A_k) - mean(B_k) mean(A_k) || / || mean(B_k A_k) ||     (Frobenius, over all modules)

`subspace_distance` says whether two clients' changes of B go in the same directions, whatever they write there
(`subspaces.py`; left out where nobody sends B).

Up to 32 clients everything is exact and computed one module at a time from the factors. Above that cosines and distances
between clients are left out and the gap is estimated by random projection, which keeps memory independent of the number of
clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedse.adapters.packing import modules, pack
from fedse.adapters.stored import ReadAhead, read_ahead
from fedse.aggregators.subspaces import MeanDistances
from fedse.protocols import StoredUpdate
from fedse.seeds import generator
from fedse.types import Adapter

EXACT_UP_TO = 32
PROBES = 64
Matrix = npt.NDArray[np.float64]


def diagnose(broadcast: Adapter, updates: Sequence[StoredUpdate]) -> dict[str, Any]:
    """Numbers for the report. Needs at least one update."""
    names = [update.client for update in updates]
    exact = _Exact(broadcast, updates) if len(updates) <= EXACT_UP_TO else None
    if exact:
        products = exact.products
        to_mean, squares = products.mean(axis=1), np.diag(products)
        mean_square = float(products.mean())
    else:
        to_mean, squares, mean_square = _change_products_with_mean(broadcast, updates)
    norms = np.sqrt(squares)
    mean_norm = float(np.sqrt(max(mean_square, 0.0)))
    found: dict[str, Any] = {
        "update_norm": dict(zip(names, norms.tolist(), strict=True)),
        "mean_update_norm": mean_norm,
        "cosine_to_mean": dict(zip(names, _ratio(to_mean, norms * mean_norm), strict=True)),
    }
    if exact:
        found["cosine"] = {
            f"{names[i]}|{names[j]}": _ratio(products[i, j], norms[i] * norms[j])
            for i in range(len(names))
            for j in range(i + 1, len(names))
        }
        if (distances := exact.distances.mean) is not None:
            found["subspace_distance"] = {
                f"{names[i]}|{names[j]}": float(distances[i, j])
                for i in range(len(names))
                for j in range(i + 1, len(names))
            }
    found["product_gap"] = exact.gap if exact else _estimated_gap(broadcast, updates)
    found["product_gap_is"] = "exact" if exact else f"an estimate from {PROBES} random projections"
    return found


def _ratio(value: Any, by: Any) -> Any:
    """A quotient that is 0 where nothing moved."""
    quotient = np.divide(value, by, out=np.zeros_like(np.asarray(value, dtype=np.float64)), where=np.asarray(by) > 0)
    return quotient.tolist()


class _Exact:
    """What compares all updates with each other. Each tensor of each update is asked for once."""

    def __init__(self, broadcast: Adapter, updates: Sequence[StoredUpdate]) -> None:
        self.products = np.zeros((len(updates), len(updates)))
        """Inner products of all pairs of changes."""
        self.distances = MeanDistances()
        """Between the changes of B."""
        self._lost = self._whole = 0.0
        start, ahead = pack(broadcast), read_ahead(updates)
        for module in modules(broadcast.layout):
            # One module of all clients is in memory at a time, and what is read ahead.
            tensors = {name: np.stack([_factors(update, where) for update in ahead]) for name, where in module.items()}
            for name, (shape, begin, end) in module.items():
                self._take_changes(name, tensors[name] - start[begin:end].reshape(shape))
            if "A" in tensors and "B" in tensors:
                self._take_pair(tensors["B"], tensors["A"])

    def _take_changes(self, name: str, changes: Matrix) -> None:
        flat = changes.reshape(len(changes), -1)
        self.products += flat @ flat.T
        if name == "B":
            self.distances.add(list(changes))

    def _take_pair(self, up: Matrix, down: Matrix) -> None:
        ups, downs = _inner_products(up.transpose(0, 2, 1)), _inner_products(down)
        # || sum_k U_k V_k ||^2 = trace((U^T U)(V V^T)) for the factors side by side.
        self._whole += float(np.sum(ups * downs)) / len(up) ** 2
        # The difference is itself a mean of products: those of the factors' deviations from their means.
        self._lost += float(np.sum(_of_deviations(ups) * _of_deviations(downs))) / len(up) ** 2

    @property
    def gap(self) -> float | None:
        return float(np.sqrt(max(self._lost, 0.0) / self._whole)) if self._whole > 0 else None


def _change_products_with_mean(broadcast: Adapter, updates: Sequence[StoredUpdate]) -> tuple[Matrix, Matrix, float]:
    """Products of each change with the mean change, squares, and the mean's square, one client in memory at a time."""
    start = pack(broadcast).astype(np.float64)
    mean = np.zeros_like(start)
    for update in updates:
        mean += (update.read() - start) / len(updates)
    to_mean, squares = np.zeros(len(updates)), np.zeros(len(updates))
    for index, update in enumerate(updates):
        change = update.read() - start
        to_mean[index], squares[index] = change @ mean, change @ change
    return to_mean, squares, float(mean @ mean)


def _pairs(broadcast: Adapter) -> Iterator[tuple[tuple[tuple[int, ...], int, int], tuple[tuple[int, ...], int, int]]]:
    for module in modules(broadcast.layout):
        if "A" in module and "B" in module:
            yield module["A"], module["B"]


def _factors(update: ReadAhead, where: tuple[tuple[int, ...], int, int]) -> Matrix:
    shape, begin, end = where
    return update.read(begin, end).reshape(shape).astype(np.float64)


def _inner_products(rows: Matrix) -> Matrix:
    """Of all clients' rows with each other: clients x ranks x clients x ranks."""
    clients, rank, _ = rows.shape
    stacked = rows.reshape(clients * rank, -1)
    return (stacked @ stacked.T).reshape(clients, rank, clients, rank)


def _of_deviations(products: Matrix) -> Matrix:
    """The inner products of what is left of each when the mean over the clients is taken away."""
    half: Matrix = products - products.mean(axis=0)
    whole: Matrix = half - half.mean(axis=2, keepdims=True)
    return whole


def _estimated_gap(broadcast: Adapter, updates: Sequence[StoredUpdate]) -> float | None:
    """The same ratio on random sign vectors x: E || M x ||^2 = || M ||^2, with one client's module in memory at a time."""
    lost = whole = 0.0
    ahead = read_ahead(updates)
    for number, (where_a, where_b) in enumerate(_pairs(broadcast)):
        signs = generator("product gap", number).integers(0, 2, (where_a[0][1], PROBES)) * 2.0 - 1.0
        mean_a = np.zeros(where_a[0])
        mean_b = np.zeros(where_b[0])
        mean_product = np.zeros((where_b[0][0], PROBES))
        for update in ahead:
            down, up = _factors(update, where_a), _factors(update, where_b)
            mean_a += down / len(updates)
            mean_b += up / len(updates)
            mean_product += up @ (down @ signs) / len(updates)
        whole += float(np.sum(mean_product**2))
        lost += float(np.sum((mean_product - mean_b @ (mean_a @ signs)) ** 2))
    return float(np.sqrt(lost / whole)) if whole > 0 else None
