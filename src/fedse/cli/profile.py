"""`fedse profile FILE`: where the time of a round goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fedse.cli.console import make_console

if TYPE_CHECKING:
    from fedse.evaluation.profile import Stretch
    from fedse.experiments.options import Experiment

_COUNTED = {
    "episodes": "episodes",
    "episodes to evaluate": "of them evaluation",
    "prefilled": "tokens prefilled",
    "decoded": "tokens decoded",
    "learned": "tokens learned",
}
_MOST_ROUNDS = 4


def profile(
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    rounds: Annotated[int, typer.Option(min=0, help="Rounds to play, whatever the file says.")] = 2,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. --set evaluation.test_tasks=0."),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Keep the run in this folder; default: a folder that is removed.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where to write; the picture goes beside it.")] = Path("profile.json"),
    overlap: Annotated[
        bool,
        typer.Option(
            "--overlap",
            help="On a GPU, do not wait for it where a span ends: its work then counts where the host waits for it.",
        ),
    ] = False,
) -> None:
    """Play a few rounds of an experiment and its evaluation, and show where the time goes."""
    from fedse.errors import BadInput
    from fedse.evaluation.profile import END, Profile
    from fedse.evaluation.profile_plot import draw_profile
    from fedse.experiments.options import load_experiment
    from fedse.experiments.running import prepare
    from fedse.runs.provenance import describe, devices
    from fedse.stopwatch import MEANINGS, Stopwatch, running
    from fedse.storage import atomic

    experiment = load_experiment(file, [*(settings or []), f"rounds={rounds}"])
    if output.suffix != ".json":
        raise BadInput(f"--output {output}: the name has to end in .json.")
    for target in (output, output.with_suffix(".png")):
        if target.exists():
            raise BadInput(f"{target} exists already: choose another name with --output, or remove it.")
    console = make_console()
    console.print(f"{experiment.name}: playing {rounds} rounds", soft_wrap=True, markup=False)
    waited_for: list[str] = []
    machine: dict[str, Any] = {}

    folder = TemporaryDirectory(prefix="fedse-profile-") if runs is None else nullcontext(runs)
    with folder as kept_in:
        stopwatch = Stopwatch()
        found = Profile(stopwatch)
        with running(stopwatch):
            with prepare(experiment, kept_in, [found]) as federation:
                model = federation.components.model if federation.components else None
                machine.update(describe(model))
                gpus = [name for name in devices(model) if name.startswith("cuda")]
                if gpus and not overlap:
                    stopwatch.settle = _wait_for(gpus)
                    waited_for.extend(gpus)
                federation.finish()
            found.cut(END)
    result = {
        "experiment": experiment.name,
        "rounds": rounds,
        "machine": machine,
        "waits_for": waited_for,
        "meanings": MEANINGS,
        "stretches": [stretch.to_json() for stretch in found.stretches],
    }
    with atomic.explained(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(output, json.dumps(result, indent=1) + "\n")
    console.print(_table(experiment, found.stretches))
    if waited_for:
        console.print(
            "Every span waits for the GPU, so that its work counts where it was launched. Nothing overlaps: the run takes "
            "longer than it does unwatched; --overlap shows the host's time instead."
        )
    console.print(f"Written: {output}", soft_wrap=True)
    picture = draw_profile(found.stretches, f"{experiment.name}: where the time goes", output.with_suffix(".png"))
    if picture is not None:
        console.print(f"Picture: {picture}", soft_wrap=True)


def _wait_for(devices: Sequence[str]) -> Callable[[], None]:
    import torch

    def wait() -> None:
        for device in devices:
            torch.cuda.synchronize(device)

    return wait


def _table(experiment: Experiment, stretches: Sequence[Stretch]) -> Table:
    """Seconds of each span in the parts of the run, in all rounds together, and its share of these."""
    rounds = [stretch for stretch in stretches if stretch.name.startswith("round ")]
    shown = _shown(stretches, [stretch.name for stretch in rounds])
    everywhere, in_rounds = _seconds(stretches), _seconds(rounds)
    table = Table(title=f"Where the time of {experiment.name} goes (seconds)", title_justify="left")
    table.add_column("span")
    for stretch in shown:
        table.add_column(stretch.name.removeprefix("evaluation on "), justify="right")
    table.add_column("all rounds", justify="right")
    table.add_column("%", justify="right")
    whole = sum(in_rounds.values())
    order = sorted(everywhere, key=lambda name: (name == "rest", -in_rounds.get(name, 0.0), -everywhere[name]))
    for name in order:
        cells = [f"{stretch.spans[name]:.2f}" if name in stretch.spans else "-" for stretch in shown]
        spent = in_rounds.get(name, 0.0)
        table.add_row(name, *cells, f"{spent:.2f}", f"{100 * spent / whole:.1f}" if whole else "-")
    table.add_section()
    table.add_row("all", *(f"{stretch.seconds:.2f}" for stretch in shown), f"{whole:.2f}", "100.0" if whole else "-")
    for counted, label in _COUNTED.items():
        counts = [stretch.counts.get(counted, 0) for stretch in shown]
        counts.append(sum(stretch.counts.get(counted, 0) for stretch in rounds))
        table.add_row(label, *(f"{count:,}" for count in counts), "")
    return table


def _seconds(stretches: Sequence[Stretch]) -> dict[str, float]:
    """Of each span, together."""
    found: dict[str, float] = {}
    for stretch in stretches:
        for name, seconds in stretch.spans.items():
            found[name] = found.get(name, 0.0) + seconds
    return found


def _shown(stretches: Sequence[Stretch], rounds: Sequence[str]) -> list[Stretch]:
    """What has a column of its own. Of many rounds the first two, one in the middle and the last have: a terminal has no
    room for more, and the file has all of them."""
    few = rounds if len(rounds) <= _MOST_ROUNDS else [*rounds[:2], rounds[len(rounds) // 2], rounds[-1]]
    return [stretch for stretch in stretches if stretch.name not in rounds or stretch.name in few]
