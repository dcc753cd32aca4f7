"""`fedse audit RUN`: which of a client's trajectories can be told from the adapters that others see?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedse.cli.audit_tables import audit_table, canary_table, projection_table, too_few
from fedse.cli.console import make_console, say


def audit(
    run: Annotated[Path, typer.Argument(help="A run's folder, with the buffers of its clients.")],
    client: Annotated[str, typer.Option(help="Only this client; default: each that sent an update in the round.")] = "",
    number: Annotated[
        int | None, typer.Option("--round", min=1, help="The round to look at; default: the last.")
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="Another run of the same experiment with another seed, for RMIA; one or two are enough."),
    ] = None,
    without: Annotated[
        list[Path] | None,
        typer.Option(help="A run that went on, or was made again, without the client: what of it is left there?"),
    ] = None,
    projection: Annotated[
        bool,
        typer.Option("--projection", help="Look for members in the span of single updates instead (ProjRes)."),
    ] = False,
    canaries: Annotated[
        bool,
        typer.Option("--canaries", help="Look for planted canaries instead (`start: canaries`), and bound epsilon."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Try membership inference as the hub, another site and a reader of the final adapter could try it.

    Nothing is learned; results are stored in the run's evaluations.
    """
    from fedse.audits.membership import audit as measure
    from fedse.audits.membership import check_auditable, check_buffers, check_demonstrations
    from fedse.audits.planted import audit_canaries, with_canaries
    from fedse.audits.projection_curve import projection_curve
    from fedse.errors import BadInput
    from fedse.experiments.options import experiment_of
    from fedse.experiments.running import open_run
    from fedse.plugins import nearest_or_all
    from fedse.runs.reading import RunView

    if projection + canaries + bool(reference or without) > 1:
        raise BadInput(
            "--projection and --canaries are audits of their own: ask for one at a time, and without other runs."
        )
    if without and not client:
        raise BadInput("--without is about one client: name it with --client.")
    view = RunView.existing(run)
    check_buffers(view)
    experiment = experiment_of(view.path)
    if not experiment.in_process:
        raise BadInput(
            f"the clients of {run} worked in other processes: the audit fits their adapters again in one, and needs "
            "`engine: local`."
        )
    if client and client not in (names := experiment.learners):
        raise BadInput(f"--client {client}: {nearest_or_all(client, names, 'Clients that learn:')}.")
    if number is not None:
        view.digest_of(number)
    with open_run(run) as federation:
        check_auditable(federation)
        chosen = number or federation.run.last_round() or 0
        # A run of an older fedse has not noted who contributed.
        asked = [client] if client else federation.server.load(chosen).contributed or experiment.learners
        clients = [item for item in federation.clients if item.name in asked]
        if canaries:
            clients = list(with_canaries(federation, clients))
        else:
            check_demonstrations(view, clients)
        found = []
        for position, item in enumerate(clients, start=1):
            say(f"auditing {item.name} in round {chosen}, {position} of {len(clients)}", err=True)
            if projection:
                found.append(projection_curve(federation, item, chosen))
            elif canaries:
                found.append(audit_canaries(federation, item, chosen))
            else:
                found.append(measure(federation, item, chosen, reference or (), without or ()))
    if as_json:
        say(json.dumps(found, indent=2))
        return
    console = make_console()
    table = projection_table if projection else canary_table if canaries else audit_table
    for result in found:
        for world in result["worlds"]:
            console.print(table(result, world) if world["rows"] else too_few(result, world))
