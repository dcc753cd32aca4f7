"""Which worlds a site with several of them learns from: shares of the tokens that have a loss."""

from __future__ import annotations

from fedse.evaluation.measured import world_name
from fedse.runs.reading import RunView

LEARNED_FROM = "learned_from"
"""Name under which clients tell how much of each world a lesson is made of."""


def learned_shares(run: RunView) -> dict[str, dict[int, float]]:
    """Of each client and world the share in the client's lesson of each round; nothing where it is not told."""
    found: dict[str, dict[int, float]] = {}
    for number in range(1, (run.last_round() or 0) + 1):
        for entry in (run.report(number) or {}).get("clients", {}).values():
            # A row has the mean of an episode, which is missing where there is none.
            rows = [
                (row, row["episodes"] * (row["tokens"] or 0)) for row in entry.get("probes", {}).get(LEARNED_FROM, [])
            ]
            whole = sum(tokens for _, tokens in rows)
            for row, tokens in rows if whole else []:
                found.setdefault(world_name(row["client"], row["world"]), {})[number] = tokens / whole
    return dict(sorted(found.items()))
