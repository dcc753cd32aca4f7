"""`fedse site`: one participant of a federation over several machines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fedse.cli import interrupts
from fedse.cli.console import say

app = typer.Typer(no_args_is_help=True, help="A site (client) of a federation over several machines.")


@app.command("init")
def init(
    kit: Annotated[Path, typer.Argument(help="The kit that the hub made for this site: a folder.")],
    folder: Annotated[
        Path | None, typer.Argument(help="Folder to make, or a site that gets a new key. By default named as the kit.")
    ] = None,
    experiment: Annotated[Path | None, typer.Option(help="The experiment, the same file as the hub's.")] = None,
) -> None:
    """Make a site of a kit and an experiment. The kit is deleted: it holds the site's secret key, which should be once."""
    from fedse.apps.site_folder import make_site

    made = make_site(kit, folder or Path(kit.resolve().name), experiment)
    say(f"Site: {made}   (fedse site run {made})")
    if kit.exists():
        say(f"{kit} could not be deleted: delete it, it holds the site's secret key.")


@app.command("key")
def key(
    folder: Annotated[Path, typer.Argument(help="The site's folder.")],
) -> None:
    """Make the site's key for secure sums, unless it is there, and print the public half for the other sites' files."""
    import importlib.util

    from fedse.errors import BadInput, MissingExtra

    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder: make the site first, with `fedse site init`.")
    if importlib.util.find_spec("cryptography") is None:
        raise MissingExtra("fedse site key", "cryptography", "secure")
    from fedse.privacy.sum_keys import make_key, public_text, read_key

    make_key(folder / "sum.key")
    say(f"Secret: {folder / 'sum.key'}   (it stays on this machine)")
    say("For `secure_sum.sites` of the other sites' files; bring it there by a way that the hub has no hand in:")
    say(f"  {folder.resolve().name}: {public_text(read_key(folder / 'sum.key'))}")


@app.command("run")
def run(
    file: Annotated[Path, typer.Argument(help="The site's folder, or its file.")],
) -> None:
    """Work for the hub until stopped. Worlds, trajectories and buffer stay on this machine."""
    from fedse.apps.site_file import load_site
    from fedse.engines.flower.settings import prepare

    prepare("fedse site")
    from fedse.apps.private import private
    from fedse.apps.site import only_one, run_site
    from fedse.apps.site_folder import file_of

    def tell(text: str) -> None:
        say(f"{time.strftime('%H:%M:%S')} {text}")

    loaded = load_site(file_of(file))
    try:
        with interrupts.tidy_when_terminated(), private(loaded.options.folder), only_one(loaded):
            run_site(loaded, tell)
    except KeyboardInterrupt:
        raise typer.Exit(interrupts.CODE) from None
