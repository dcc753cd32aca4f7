"""RoLoRA: A and B are trained in turn, so that every mean is exact (Chen and others, arXiv 2502.01755).

    odd rounds    A stays,  next B = (1 / K) sum_k B_k
    even rounds   B stays,  next A = (1 / K) sum_k A_k

With one factor alike at all clients, the mean of products is the product of means; unlike with `ffa_lora`, A is learned too.
Cost: half of `mean` up (the factor that is trained) and one adapter down. A learner on a GPU that records its passes records
them anew each round, because another factor is frozen.
Helps: wherever the gap of plain averaging matters and A must not stay random. Each factor moves in every second round only:
compare at twice the rounds, or with half the epochs.
"""

from __future__ import annotations

from fedse.adapters.plan import IN_TURN
from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import EQUAL_UPDATES, MEAN_PRODUCT, ONLY_THE_SUM


class RoLora(Mean):
    """The mean of B after odd rounds and of A after even ones; the other factor is neither trained nor sent: exact."""

    plan = IN_TURN
    promises = frozenset({EQUAL_UPDATES, MEAN_PRODUCT, ONLY_THE_SUM})
