"""`fedse audit RUN`: which of a client's trajectories can be told from the adapters that others see?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedse.cli.console import make_console, say


def audit(
    run: Annotated[Path, typer.Argument(help="A run's folder, with the buffers of its clients.")],
    client: Annotated[str, typer.Option(help="Only this client; default: each that sent an update in the round.")] = "",
    number: Annotated[
        int | None, typer.Option("--round", min=1, help="The round to look at; default: the last.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Try membership inference from the seats of the hub, another site and a reader of the final adapter.

    Nothing is learned; results are stored in the run's evaluations.
    """
    from fedse.audits.membership import audit as measure
    from fedse.audits.membership import check_auditable, check_buffers
    from fedse.errors import BadInput
    from fedse.experiments.options import experiment_of
    from fedse.experiments.running import open_run
    from fedse.plugins import nearest
    from fedse.runs.reading import RunView

    view = RunView.existing(run)
    check_buffers(view)
    experiment = experiment_of(view.path)
    if not experiment.in_process:
        raise BadInput(
            f"the clients of {run} worked in other processes: the audit fits their adapters again in one, and needs "
            "`engine: local`."
        )
    if client and client not in (names := experiment.learners()):
        raise BadInput(f"--client {client}: {nearest(client, names)}Clients that learn: {', '.join(names)}.")
    if number is not None:
        view.digest_of(number)
    with open_run(run) as federation:
        check_auditable(federation)
        chosen = number or federation.run.last_round() or 0
        # A run of an older fedse has not noted who contributed.
        asked = [client] if client else federation.server.load(chosen).contributed or experiment.learners()
        found = [measure(federation, item, chosen) for item in federation.clients if item.name in asked]
    if as_json:
        say(json.dumps(found, indent=2))
        return
    console = make_console()
    for result in found:
        for world in result["worlds"]:
            console.print(audit_table(result, world) if world["rows"] else _too_few(result, world))


def _too_few(result: Mapping[str, Any], world: Mapping[str, Any]) -> str:
    from fedse.audits.membership import FEWEST

    return (
        f"{result['client']}, {world['world']}: {world['members']} members and {world['others']} non-members are left, "
        f"fewer than {FEWEST} of one kind, so nothing is said. Members are the expert's demonstrations that the client "
        "began with (`start: demonstrations`); the world needs training tasks beyond those and beyond what was explored."
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
