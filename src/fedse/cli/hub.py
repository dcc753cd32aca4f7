"""`fedse hub`: the middle of a federation over several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedse.cli import interrupts
from fedse.cli.console import make_console, warn

app = typer.Typer(no_args_is_help=True, help="The hub (server) of a federation over several machines.")
FOLDER = Annotated[Path, typer.Option("--hub", help="The hub's folder.")]


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="Folder to make, or a hub to which sites are added.")],
    site: Annotated[list[str], typer.Option("--site", help="Name of a site; may be given several times.")],
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT at which sites reach the hub. For a new hub: 127.0.0.1:8443.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of Flower's server, on this machine only. For a new hub: 8000."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(help="Address of this machine at which nginx listens; by default that of --address."),
    ] = None,
    fence: Annotated[
        bool | None, typer.Option("--fence/--no-fence", help="Whether nginx is started with the hub, as its fence.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS and no keys: for a network that is closed to others.")
    ] = False,
) -> None:
    """Make authority, certificate, one key for each site, and a kit to carry to each; or add sites to a hub."""
    from pydantic import ValidationError

    from fedse.apps.hub import INSECURE, tell_open_hub
    from fedse.apps.hub_folder import HubFolder
    from fedse.apps.hub_options import HubOptions
    from fedse.apps.private import private
    from fedse.engines.flower.settings import prepare
    from fedse.errors import BadInput
    from fedse.experiments.file import explain

    prepare("fedse hub")
    given = {"address": address, "port": port, "listen": listen, "fence": fence, "insecure": insecure}
    try:
        options = HubOptions.model_validate({key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        raise BadInput(explain(error, HubOptions, {(): "fedse hub init"})) from error
    with private():
        hub = HubFolder.create(folder, options, site)
    tell_open_hub(hub)
    console = make_console()
    if hub.options.insecure:
        console.print(INSECURE, style="bold red", soft_wrap=True, highlight=False)
    console.print(f"Hub: {folder}, sites: {', '.join(hub.sites())}", soft_wrap=True, highlight=False)
    for name in hub.sites():
        kit = hub.path / "sites" / name
        if (kit / "site.yaml").exists():
            console.print(f"Kit of {name}: {kit}   (carry it to the site; there: fedse site init)", soft_wrap=True)


@app.command("revoke")
def revoke(site: Annotated[str, typer.Argument(help="Name of the site.")], hub: FOLDER = Path("hub")) -> None:
    """Refuse a site's key from now on, also in a hub that is open. `fedse hub init --site NAME` makes a new one."""
    from fedse.apps.hub import tell_open_hub
    from fedse.apps.hub_folder import HubFolder
    from fedse.apps.private import private

    folder = HubFolder.existing(hub)
    with private():
        folder.revoke(site)
    now = "from now on" if tell_open_hub(folder) else "when the hub is opened (it is not open now)"
    make_console().print(
        f"The key of {site} is refused {now}. A new one: fedse hub init {hub} --site {site}",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


@app.command("renew")
def renew(hub: FOLDER = Path("hub")) -> None:
    """Make new certificates of the same authority, also for a hub that is open. Keys of sites have no end."""
    from fedse.apps.certificates import ends
    from fedse.apps.fence import reload
    from fedse.apps.hub_folder import HubFolder
    from fedse.apps.private import private

    folder = HubFolder.existing(hub)
    before = ends(folder.certificate("ca.crt")) if not folder.options.insecure else None
    with private():
        folder.renew()
    reload(folder.path)
    make_console().print(
        f"The certificates are valid until {ends(folder.certificate('server.crt')):%Y-%m-%d}. Sites take them with the "
        f"ca.crt that they have until {before:%Y-%m-%d}; carry {folder.certificate('ca.crt')} to them before that day.",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


@app.command("run")
def run(
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    hub: FOLDER = Path("hub"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. --set rounds=3.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
) -> None:
    """Open the hub and run an experiment on its sites. The same command resumes an interrupted run."""
    from fedse.apps.hub import run_hub
    from fedse.apps.hub_file import load_for_hub
    from fedse.apps.hub_folder import HubFolder
    from fedse.apps.private import private
    from fedse.cli.progress import Progress
    from fedse.federation.refusals import refusals_of
    from fedse.runs.reading import RunView

    console = make_console()
    folder = HubFolder.existing(hub)
    experiment = load_for_hub(file, settings or [])
    progress = Progress(console, experiment.rounds_to_play)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False, highlight=False)

    try:
        with interrupts.tidy_when_terminated(), private(folder.path), progress:
            result = run_hub(folder, file, settings or [], runs, [progress], say)
    except KeyboardInterrupt:
        say("\nInterrupted. Nothing complete is lost; the same command resumes the run.")
        raise typer.Exit(interrupts.CODE) from None
    warn(console, refusals_of(RunView.existing(Path(result["folder"]))))
    say(f"Run: {result['folder']}   (fedse show {result['folder']})")
    say(f"Adapter: {result['adapter']}")


@app.command("open")
def open_(hub: FOLDER = Path("hub")) -> None:
    """Open the hub without a run, for people who submit runs with `flwr run` themselves. Ctrl-C closes it."""
    from fedse.apps.flower_server import HubFailed
    from fedse.apps.hub import open_hub
    from fedse.apps.hub_folder import HubFolder
    from fedse.apps.private import private

    folder = HubFolder.existing(hub)
    console = make_console()

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False, highlight=False)

    try:
        with interrupts.tidy_when_terminated(), private(folder.path), open_hub(folder, say) as superlink:
            say(f"submit a run: FLWR_HOME={folder.home} flwr run {folder.path}/bundle hub -c 'experiment=\"FILE\"'")
            superlink.wait()
            raise HubFailed(f"Flower's server ended; {folder.home}/superlink.log says why.")
    except KeyboardInterrupt:
        raise typer.Exit(interrupts.CODE) from None
