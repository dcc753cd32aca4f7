"""`fedse view` and `fedse report`: a page that shows runs in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedse.cli.console import say

if TYPE_CHECKING:
    from fedse.page.shown import Shown

_TRAJECTORIES = 400
OWN_WORLDS = typer.Option(
    "--own-worlds", help="Also draw worlds that are not part of fedse. This loads the run's own code."
)


def view(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of runs or of sites; default: all runs in the folder `runs`."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    own_worlds: Annotated[bool, OWN_WORLDS] = False,
) -> None:
    """Show runs in a browser, also while they are in progress. Only this machine can open the page; Ctrl-C ends it."""
    from fedse.page.answers import Answers
    from fedse.page.server import PageServer
    from fedse.page.shown import by_name

    shown = by_name([_shown(path, own_worlds) for path in runs] if runs else _all_runs(Path("runs"), own_worlds))
    with PageServer(Answers(shown), port) as server:
        say(f"The page: {server.url}")
        say("Only this machine can open it, with the whole address. Ctrl-C ends it.")
        if browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("")


def report(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a site's.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("report.html"),
    trajectories: Annotated[
        int, typer.Option(min=0, help="Most trajectories that it contains; 0: none.")
    ] = _TRAJECTORIES,
    own_worlds: Annotated[bool, OWN_WORLDS] = False,
) -> None:
    """Write the page of a run as one file that opens from disk."""
    from fedse.page.report import report as make
    from fedse.storage import atomic

    shown = _shown(run, own_worlds)
    say(f"Reading {run}")
    page, contained, total = make(shown.name, shown, trajectories)
    atomic.write_text(output, page)
    private = " It holds trajectories: treat it as private." if contained else ""
    say(f"Wrote {output} ({len(page.encode()) / 1e6:.1f} MB) with {contained} of {total} trajectories.{private}")


def _shown(path: Path, own_worlds: bool) -> Shown:
    from fedse.errors import BadInput
    from fedse.page.shown import Shown
    from fedse.runs.reading import RunView

    if not (path / "site.yaml").is_file():
        return Shown.of(RunView.existing(path), own_worlds)
    from fedse.apps.site_file import load_site

    site = load_site(path / "site.yaml")
    if not (site.run_folder / "clients").is_dir():
        raise BadInput(f"the site {path} has no episodes yet: they come with the first task of its hub.")
    return Shown(RunView(site.run_folder), site.experiment, f"{site.experiment.name} at {site.name}")


def _all_runs(folder: Path, own_worlds: bool) -> list[Shown]:
    """Those that can be read; of the others it is said why they are left out."""
    from fedse.errors import BadInput, FedseError

    found = []
    for manifest in sorted(folder.glob("*/manifest.json")):
        try:
            found.append(_shown(manifest.parent, own_worlds))
        except FedseError as error:
            say(f"Left out: {error}", err=True)
    if not found:
        raise BadInput(f"there are no runs in {folder}: name a run's folder, or make one with `fedse demo`.")
    return found
