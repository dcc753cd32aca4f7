"""FedSA-LoRA: clients train both factors, share A and keep B to themselves (Guo and others, arXiv 2410.01463).

    next A = (1 / K) sum_k A_k            B_k stays at client k and goes on from where it was

Each client plays, learns and is evaluated with the shared A and its own B; there is no agent for all, and the adapter that
the server stores has the B it began with, which is zero. `fedse export RUN FOLDER --client NAME` writes a client's adapter.
Cost: half of `mean` up (A only) and one adapter down; the server holds two vectors of half the size. A client stores its B
after each round, in its own folder. Clients in one process answer one after another instead of in one batch, since each has
an adapter of its own.
Helps: where worlds conflict and each site wants an agent for itself. A newcomer begins with B = 0. In the very first step of
a run A has no gradient, because B is zero: rounds of a single step would send nothing.
"""

from __future__ import annotations

from fedse.adapters.plan import TensorPlan
from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import EQUAL_UPDATES, ONLY_THE_SUM


class FedSaLora(Mean):
    """The mean of A; each client keeps a B of its own: personal agents, half the upload."""

    plan = TensorPlan(trained="AB", sent="A")
    promises = frozenset({EQUAL_UPDATES, ONLY_THE_SUM})
