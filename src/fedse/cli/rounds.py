"""`--round NUMBER`, or `--round best`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedse.runs.reading import RunView

BEST = "best"
AfterRound = Annotated[
    str,
    typer.Option(
        "--round",
        metavar=f"NUMBER|{BEST}",
        help="After this round; 0 is the beginning; best: by the run's validation; default: the last.",
    ),
]


def chosen_round(folder: RunView, wanted: str, client: str = "") -> int:
    """The round that somebody asked for; the last if nobody did."""
    from fedse.errors import BadInput
    from fedse.evaluation.best_round import best_round
    from fedse.experiments.options import experiment_of

    if not wanted:
        return folder.last_round() or 0
    if wanted == BEST:
        # Before it nobody played with the shared adapter.
        first_shared = 0 if client else experiment_of(folder.path, stored=True).rounds_alone
        return best_round(folder, client, first_shared)
    if not (wanted.isascii() and wanted.isdigit() and len(wanted) < 10):
        raise BadInput(f"--round {wanted}: give the number of a round, or `{BEST}`.")
    return int(wanted)
