"""FFA-LoRA: A stays as it was drawn, clients train and send B only (Sun and others, arXiv 2403.12313).

    A = A of the initial adapter, for ever            next B = (1 / K) sum_k B_k

Exact: with one A, the mean of products is the product of means.
Cost: half of `mean` up (B only) and one adapter down; the server holds two vectors of half the size. Clients keep no moments
for A. Learners have to leave A alone, which `imitation` does (see `adapters/plan.py`).
Helps: with noise for privacy (no product of two noises), with little bandwidth, and wherever the gap of plain averaging
matters. It loses where the rank is small: the rows of A are random and stay so.
"""

from __future__ import annotations

from fedse.adapters.plan import TensorPlan
from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import EQUAL_UPDATES, MEAN_PRODUCT, ONLY_THE_SUM


class FfaLora(Mean):
    """The mean of B; A stays as it was drawn and is neither trained nor sent: exact, half the upload."""

    plan = TensorPlan(trained="B", sent="B")
    promises = frozenset({EQUAL_UPDATES, MEAN_PRODUCT, ONLY_THE_SUM})
