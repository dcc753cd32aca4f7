"""`fedse hub`: the middle of a federation over several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedse.cli import interrupts
from fedse.cli.console import make_console

app = typer.Typer(no_args_is_help=True, help="The middle of a federation over several machines.")
FOLDER = Annotated[Path, typer.Option("--hub", help="The hub's folder.")]


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="Folder to make, or a hub to which sites are added.")],
    site: Annotated[list[str], typer.Option("--site", help="Name of a site; may be given several times.")],
    address: Annotated[
        str, typer.Option(help="HOST:PORT at which sites reach the hub's reverse proxy.")
    ] = "127.0.0.1:8443",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Flower's server, on this machine only.")] = 8000,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS and no keys: for a network that is closed to others.")
    ] = False,
) -> None:
    """Make authority, certificate, one key for each site, a kit to carry to each, and the fence of the hub."""
    from pydantic import ValidationError

    from fedse.apps.hub import INSECURE
    from fedse.apps.hub_folder import HubFolder, HubOptions
    from fedse.engines.flower.quiet import prepare
    from fedse.errors import BadInput

    prepare("fedse hub")
    try:
        options = HubOptions(address=address, port=port, insecure=insecure)
    except ValidationError as error:
        raise BadInput(f"--address {address}: give it as HOST:PORT, such as hub.example.org:8443.") from error
    hub = HubFolder.create(folder, options, site)
    console = make_console()
    if insecure:
        console.print(INSECURE, style="bold red", soft_wrap=True, highlight=False)
    console.print(f"Hub: {folder}, sites: {', '.join(hub.sites())}", soft_wrap=True, highlight=False)
    console.print(
        f"Fence: nginx -p {hub.path} -c {hub.path}/nginx.conf   (REQUIRED: Flower's server has no login on its control "
        "routes; never open its port to others)",
        soft_wrap=True,
        highlight=False,
    )
    for name in hub.sites():
        kit = hub.path / "sites" / name
        if (kit / "site.yaml").exists():
            console.print(f"Kit of {name}: {kit}   (carry it to the site, then delete it here)", soft_wrap=True)


@app.command("run")
def run(
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    hub: FOLDER = Path("hub"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. --set rounds=3.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
) -> None:
    """Open the hub and run an experiment on its sites. The same command goes on where an interrupted run stopped."""
    from fedse.apps.hub import run_hub
    from fedse.apps.hub_file import load_for_hub
    from fedse.apps.hub_folder import HubFolder
    from fedse.cli.progress import Progress

    console = make_console()
    folder = HubFolder.existing(hub)
    experiment = load_for_hub(file, settings or [])
    progress = Progress(console, experiment.rounds_to_play)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False, highlight=False)

    try:
        with progress:
            result = run_hub(folder, file, settings or [], runs, [progress], say)
    except KeyboardInterrupt:
        say("\nInterrupted. Nothing complete is lost; the same command goes on.")
        raise typer.Exit(interrupts.CODE) from None
    say(f"Run: {result['folder']}   (fedse show {result['folder']})")
    say(f"Adapter: {result['adapter']}")


@app.command("open")
def open_(hub: FOLDER = Path("hub")) -> None:
    """Open the hub without a run, for people who submit runs with `flwr run` themselves. Ctrl-C closes it."""
    from fedse.apps.flower_server import HubFailed
    from fedse.apps.hub import open_hub
    from fedse.apps.hub_folder import HubFolder

    folder = HubFolder.existing(hub)
    console = make_console()

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False, highlight=False)

    try:
        with open_hub(folder, say) as superlink:
            say(f"submit a run: FLWR_HOME={folder.home} flwr run {folder.path}/bundle hub -c 'experiment=\"FILE\"'")
            superlink.wait()
            raise HubFailed(f"Flower's server ended; {folder.home}/superlink.log says why.")
    except KeyboardInterrupt:
        raise typer.Exit(interrupts.CODE) from None
