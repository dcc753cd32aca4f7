"""Every rule with every scale, played on validation tasks; the best one is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedse.adapters.first import further_ranks, rank_of
from fedse.errors import BadInput
from fedse.merging.candidates import Candidate
from fedse.merging.fewer_ranks import with_ranks
from fedse.merging.measuring import Measuring
from fedse.merging.sources import Gathered
from fedse.types import Adapter


@dataclass(frozen=True)
class Row:
    """One rule with one scale, and what came of it."""

    rule: str
    scale: float | None
    ranks: int
    lost: float
    """Share of the products' norm that did not fit into the ranks that were asked for."""
    measured: Mapping[str, Any]

    @property
    def worth(self) -> tuple[float, int]:
        """Success counts first; of equals the one with fewer ranks is better."""
        macro = self.measured["macro"]
        return -1.0 if macro is None else macro, -self.ranks


def check_rank(rank: int | None, initial: Adapter) -> None:
    if rank is not None and rank < rank_of(initial):
        raise BadInput(f"--rank {rank}: the model's adapter has {rank_of(initial)} ranks: give as many or more.")


def merge_all(
    candidates: Sequence[Candidate],
    gathered: Gathered,
    measuring: Measuring,
    rank: int | None = None,
    tell: Callable[[Row], None] = lambda _: None,
) -> tuple[list[Row], Row, Adapter]:
    """All rows, the best of them, the first of equals, and its adapter. With `rank` no result has more ranks than that."""
    rows: list[Row] = []
    kept: tuple[Row, Adapter] | None = None
    for candidate in candidates:
        adapter, lost = candidate.merge(gathered), 0.0
        if rank is not None:
            adapter, lost = with_ranks(adapter, rank)
        ranks = rank_of(adapter) + further_ranks(adapter)
        rows.append(Row(candidate.rule, candidate.scale, ranks, lost, measuring.everywhere(adapter)))
        if kept is None or rows[-1].worth > kept[0].worth:
            kept = rows[-1], adapter
        tell(rows[-1])
    assert kept is not None, "there is a rule at least"
    return rows, *kept
