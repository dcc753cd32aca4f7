"""`fedse export RUN TARGET`: take an adapter, a merged model or a client's experience out of a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedse.cli.console import say
from fedse.cli.rounds import chosen_round

if TYPE_CHECKING:
    from fedse.runs.reading import RunView
    from fedse.types import Adapter


class What(StrEnum):
    ADAPTER = "adapter"
    MERGED = "merged"
    EXPERIENCE = "experience"


def export(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    target: Annotated[Path, typer.Argument(help="Where to write: a new folder, or a .json, .jsonl or .parquet file.")],
    what: Annotated[
        What | None,
        typer.Option(
            help="The PEFT adapter, the base model with it merged in, or the buffers; default: as TARGET's ending says.",
            show_default=False,
        ),
    ] = None,
    wanted: Annotated[
        str,
        typer.Option(
            "--round", metavar="NUMBER|best", help="After this round; best: by the run's validation; default: the last."
        ),
    ] = "",
    client: Annotated[
        str,
        typer.Option(
            help="Whose experience (default: all clients'), or who plays with the adapter where each has its own."
        ),
    ] = "",
) -> None:
    """Write what others can load.

    PEFT and vLLM read the adapter folder, transformers the merged model. A .json file holds the successful conversations in
    AgentGym's layout and can begin another run (start: FILE); .jsonl and .parquet hold everything in the buffers.
    """
    from fedse.adapters.files import write_adapter
    from fedse.errors import BadInput
    from fedse.experience.export import ENDINGS
    from fedse.runs.reading import RunView
    from fedse.storage import atomic

    folder = RunView.existing(run)
    if what is None:
        what = What.EXPERIENCE if target.suffix in ENDINGS else What.ADAPTER
    if target.exists():
        raise BadInput(f"{target} exists already: choose another name or remove it.")
    if what is What.EXPERIENCE and wanted:
        raise BadInput("--round goes with an adapter or a merged model: a buffer holds the experience of all rounds.")
    if what is What.EXPERIENCE:
        written = _experience(folder, target, client)
        say(f"Wrote {target}: {written} trajectories")
    else:
        number = chosen_round(folder, wanted, client)
        adapter = _adapter(folder, number, client)
        if not adapter.tensors:
            raise BadInput(f"{run} has no adapter, as its model is served elsewhere: use --what experience.")
        with atomic.new_folder(target) as made:
            if what is What.ADAPTER:
                write_adapter(adapter, made)
            else:
                from fedse.experiments.options import experiment_of
                from fedse.plugins import build

                model = build("model", experiment_of(folder.path).model)
                if not hasattr(model, "save_merged"):
                    raise BadInput(f"{run} has no language model to merge into: export the adapter instead.")
                model.save_merged(adapter, made)
        say(f"Wrote {target} (after round {number})")


def _adapter(folder: RunView, number: int, client: str) -> Adapter:
    """The shared adapter after a round, or the client's own one in a run that shares none."""
    from fedse.clients.own import own_adapter
    from fedse.errors import BadInput
    from fedse.experiments.running import stored_experiment
    from fedse.plugins import nearest
    from fedse.runs.shared_adapter import mean_of_last

    folder.check_state(number)
    experiment = stored_experiment(folder)
    if experiment.sharing == "none" and number > 0:
        clients = sorted(experiment.holdings())
        if client not in clients:
            what = f"--client {client}: {nearest(client, clients)}" if client else ""
            raise BadInput(
                f"{what}each client of {folder.path} has an adapter of its own; --client is one of {', '.join(clients)}."
            )
        if number < (first := experiment.joins(client)):
            raise BadInput(
                f"--client {client}: it joins in round {first} and has no adapter of its own after round {number}."
            )
        return own_adapter(folder, client, number)
    adapter = mean_of_last(folder, number, experiment.evaluation.mean_of_last)
    return _with_private_part(folder, adapter, client, number) if client else adapter


def _with_private_part(folder: RunView, adapter: Adapter, client: str, number: int) -> Adapter:
    """The adapter that a client plays with after a round."""
    from fedse.adapters.plan import opened
    from fedse.clients.notebook import Notebook
    from fedse.clients.trials import TriesOut
    from fedse.errors import BadInput
    from fedse.experiments.building import build_mix
    from fedse.experiments.running import stored_experiment
    from fedse.federation.library import library_of
    from fedse.federation.stored_state import stored_state
    from fedse.types import Sent

    _known_client(folder, client)
    folder.check_kept(client, number)
    own = Notebook(folder.client_folder(client) / "private").before(number + 1).tensors
    experiment = stored_experiment(folder)
    mix = build_mix(experiment, client)
    if isinstance(mix, TriesOut):
        raise BadInput(
            f"--client {client}: with `mix: {experiment.mix.name}` it plays before it chooses what to begin with, which an "
            "export cannot: leave it out, or evaluate the run with `fedse eval`."
        )
    if not own and not experiment.has_library():
        raise BadInput(
            f"--client {client}: it keeps nothing private, the adapter belongs to all clients: leave it out."
        )
    state = stored_state(folder, number)
    sent = Sent(adapter, number, state.contributed, opened(library_of(state), adapter.layout))
    return mix.compose(sent, own)


def _known_client(folder: RunView, client: str) -> list[str]:
    """The clients of a run; the one asked for has to be among them."""
    from fedse.errors import BadInput
    from fedse.plugins import nearest

    clients = sorted(path.name for path in (folder.path / "clients").glob("*"))
    if client and client not in clients:
        raise BadInput(f"--client {client}: {nearest(client, clients)}This run has: {', '.join(clients)}.")
    return clients


def _experience(folder: RunView, target: Path, client: str) -> int:
    from fedse.experience.buffer import read_file
    from fedse.experience.export import export as write
    from fedse.federation.wholeness import check_experience

    clients = _known_client(folder, client)
    chosen = [client] if client else clients
    check_experience(folder, chosen)
    held = [item for name in chosen for item in read_file(folder.client_folder(name) / "buffer.sqlite")]
    return write(held, target)
