"""`fedse export RUN TARGET`: take an adapter, a merged model or a client's experience out of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedse.cli.console import say
from fedse.cli.rounds import AfterRound, chosen_round

if TYPE_CHECKING:
    from fedse.experience.atif import Agent
    from fedse.runs.reading import RunView

_BASE_KEY = "base_model_name_or_path"


class What(StrEnum):
    ADAPTER = "adapter"
    MERGED = "merged"
    EXPERIENCE = "experience"


def export(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    target: Annotated[
        Path, typer.Argument(help="Where to write: a new folder, or a .json, .jsonl, .parquet or .atif file.")
    ],
    what: Annotated[
        What | None,
        typer.Option(
            help="The PEFT adapter, the base model with it merged in, or the buffers; default: as TARGET's ending says.",
            show_default=False,
        ),
    ] = None,
    wanted: AfterRound = "",
    client: Annotated[
        str,
        typer.Option(
            help="Whose experience (default: all clients'), or who plays with the adapter where each has its own."
        ),
    ] = "",
) -> None:
    """Write an adapter, a model or collected experience for other programs to load.

    PEFT and vLLM read the adapter folder, transformers the merged model; README.md in it says what it is. A .json file holds
    the successful conversations in AgentGym's layout and can begin another run (start: FILE); .jsonl and .parquet hold
    everything in the buffers, and .atif the same with one ATIF document on each line.
    """
    from fedse.errors import BadInput
    from fedse.experience.export import ENDINGS
    from fedse.runs.reading import RunView

    folder = RunView.existing(run)
    if what is None:
        _check_ending(target, ENDINGS)
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
        _write_model(folder, target, what, number, client)
        say(f"Wrote {target} (after round {number})")


def _check_ending(target: Path, known: Sequence[str]) -> None:
    """A name such as `episodes.csv` asks for a file, and `adapter-v1.2` for a folder."""
    from fedse.errors import BadInput

    ending = target.suffix
    if ending in known or not ending[1:].isalpha():
        return
    meant = f"did you mean '{ending.lower()}'? Experience" if ending.lower() in known else "experience"
    raise BadInput(
        f"{target}: fedse writes no file with the ending '{ending}': {meant} goes into {', '.join(known[:-1])} or "
        f"{known[-1]} files; for an adapter folder leave the ending out, or add `--what adapter`."
    )


def _write_model(folder: RunView, target: Path, what: What, number: int, client: str) -> None:
    from fedse.adapters.files import write_adapter
    from fedse.cli.model_card import BASE, NAME, Exported, model_card
    from fedse.errors import BadInput
    from fedse.experiments.running import stored_experiment
    from fedse.experiments.stored_adapter import stored_adapter
    from fedse.plugins import build, capability
    from fedse.storage import atomic

    adapter = stored_adapter(folder, number, client)
    if not adapter.tensors:
        raise BadInput(f"{folder.path} has no adapter, as its model is served elsewhere: use --what experience.")
    base = str(adapter.config.get(_BASE_KEY) or "")
    part = stored_experiment(folder).model
    beside = what is What.ADAPTER and capability(part, "only_here")
    with atomic.new_folder(target) as made:
        if what is What.MERGED:
            model = build("model", part)
            if not hasattr(model, "save_merged"):
                raise BadInput(f"{folder.path} has no language model to merge into: export the adapter instead.")
            model.save_merged(adapter, made)
        elif beside:
            build("model", part).save_base(made / BASE)
            # With the dot before it nobody takes a folder that was moved away for a name on a hub.
            place = target / BASE if target.is_absolute() else f"./{target / BASE}"
            write_adapter(replace(adapter, config={**adapter.config, _BASE_KEY: str(place)}), made)
        else:
            write_adapter(adapter, made)
        card = model_card(Exported(what.value, folder, number, client, base, beside, target.name))
        (made / NAME).write_text(card, encoding="utf-8")


def _experience(folder: RunView, target: Path, client: str) -> int:
    from fedse.errors import BadInput
    from fedse.experience.buffer import read_file
    from fedse.experience.export import ATIF
    from fedse.experience.export import export as write
    from fedse.experiments.stored_adapter import known_clients
    from fedse.federation.wholeness import check_experience

    clients = known_clients(folder, client)
    if not clients:
        raise BadInput(f"{folder.path} holds no experience: it is with the sites of this run, and stays there.")
    chosen = [client] if client else clients
    check_experience(folder, chosen)
    buffers = [folder.client_folder(name) / "buffer.sqlite" for name in chosen]
    agent = _agent(folder, buffers) if target.suffix == ATIF else None
    return write([item for path in buffers for item in read_file(path)], target, agent)


def _agent(folder: RunView, buffers: list[Path]) -> Agent:
    """Who played in a run."""
    from fedse.cli.model_card import shown_name
    from fedse.experience.atif import Agent
    from fedse.experience.buffer_file import tokenizer_of
    from fedse.experiments.running import stored_experiment
    from fedse.models.chat import ByteChat
    from fedse.runs.shared_adapter import shared_adapter

    experiment = stored_experiment(folder)
    base = shared_adapter(folder, 0).config.get(_BASE_KEY) or experiment.policy.options.get("model")
    tokenizers = {tokenizer_of(path) for path in buffers} - {ByteChat.fingerprint}
    return Agent(shown_name(str(base or experiment.model.name)), "".join(tokenizers) if len(tokenizers) == 1 else "")
