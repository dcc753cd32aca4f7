"""What `fedse audit` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def too_few(result: Mapping[str, Any], world: Mapping[str, Any]) -> str:
    from fedse.audits.membership import FEWEST

    return (
        f"{result['client']}, {world['world']}: {world['members']} members and {world['others']} non-members are left, "
        f"fewer than {FEWEST} of one kind, so nothing is said. Members are the expert's demonstrations that the client "
        "began with (`start: demonstrations`) and that no reference run learned from; the world needs training tasks beyond "
        "those and beyond what was explored."
    )


def audit_table(result: Mapping[str, Any], world: Mapping[str, Any]) -> Table:
    from fedse.audits.membership import alike

    counts = f"{world['members']} members, {world['others']} non-members"
    trust = (
        ""
        if alike(world)
        else "; the control is not at 0.5: the two sets differ by themselves, do not read the other rows"
    )
    table = Table(
        title=f"Who can tell what {result['client']} learned from ({world['world']}, round {result['round']}, {counts})",
        caption="AUC 0.5 is guessing, 1 is certainty; TPR: members found at 1 % false positives (%); 95 % bootstrap "
        f"intervals over trajectories{trust}",
        title_justify="left",
        caption_justify="left",
    )
    for column in ("who, and what they see", "attack"):
        table.add_column(column)
    for column in ("AUC", "95 %", "TPR", "95 %"):
        table.add_column(column, justify="right")
    for row in world["rows"]:
        low, high = row["auc_interval"]
        least, most = row["tpr_interval"]
        table.add_row(
            row["seat"],
            row["attack"],
            f"{row['auc']:.3f}",
            f"{low:.3f}-{high:.3f}",
            f"{100 * row['tpr']:.1f}",
            f"{100 * least:.1f}-{100 * most:.1f}",
        )
    return table


def projection_table(result: Mapping[str, Any], world: Mapping[str, Any]) -> Table:
    counts = f"{world['members']} members, {world['others']} non-members"
    table = Table(
        title=f"What the hub finds in single updates of {result['client']} by projection ({world['world']}, round "
        f"{result['round']}, {counts})",
        caption="AUC 0.5 is guessing, 1 is certainty; TPR: members found at 1 % false positives (%); means over the "
        "updates, range: the lowest and the highest AUC",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("update")
    for column in ("trajectories", "updates", "AUC", "range", "TPR"):
        table.add_column(column, justify="right")
    for row in world["rows"]:
        low, high = row["auc_range"]
        table.add_row(
            row["update"],
            str(row["trajectories"] or "all"),
            str(row["updates"]),
            f"{row['auc']:.3f}",
            f"{low:.3f}-{high:.3f}",
            f"{100 * row['tpr']:.1f}",
        )
    return table


def canary_table(result: Mapping[str, Any], world: Mapping[str, Any]) -> Table:
    upper = result["upper_bound"]
    accounted = "no noise, so no upper bound" if upper is None else f"upper bound of the accountant {upper:.2f}"
    table = Table(
        title=f"Which canaries of {result['client']} can be told ({world['world']}, round {result['round']}, "
        f"{world['planted']} of {world['canaries']} planted)",
        caption=f"epsilon is at least so much at delta {result['delta']:g} (95 %, each row by itself); {accounted}",
        title_justify="left",
        caption_justify="left",
    )
    for column in ("who, and what they see", "attack"):
        table.add_column(column)
    for column in ("AUC", "epsilon at least", "right guesses"):
        table.add_column(column, justify="right")
    for row in world["rows"]:
        told = f"{row['right']} of {row['guesses']}"
        table.add_row(row["seat"], row["attack"], f"{row['auc']:.3f}", f"{row['epsilon']:.2f}", told)
    return table
