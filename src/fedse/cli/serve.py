"""`fedse serve RUN`: let others talk to the agent of a run, by the OpenAI protocol."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from fedse.cli.console import say
from fedse.cli.interrupts import tidy_when_terminated
from fedse.cli.rounds import AfterRound, chosen_round


def serve(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    wanted: AfterRound = "",
    client: Annotated[
        str,
        typer.Option(help="Answer as this client plays, where it has an adapter of its own or keeps a part private."),
    ] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0 takes a free one.")] = 8000,
    key_from: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Environment variable with the key that requests must bring.")
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change how the model computes, e.g. --set policy.reply_tokens=512"
        ),
    ] = None,
) -> None:
    """Serve a stored adapter at /v1/chat/completions, on this machine only, until you stop it.

    Nothing is written. Replies are as long as the run's own at most (policy.reply_tokens).
    """
    from fedse.errors import BadInput
    from fedse.experiments.components import make_players
    from fedse.experiments.options import experiment_of
    from fedse.experiments.stored_adapter import stored_adapter
    from fedse.runs.reading import RunView
    from fedse.serving.server import AgentServer
    from fedse.serving.worker import Worker

    for setting in settings or []:
        if not setting.startswith(("model.", "policy.")):
            raise BadInput(f"--set {setting}: only keys of model and policy make a difference here.")
    key = _key(key_from)
    folder = RunView.existing(run)
    number = chosen_round(folder, wanted, client)
    adapter = stored_adapter(folder, number, client)
    if not adapter.tensors:
        raise BadInput(f"{run} has no adapter, as its model is served elsewhere already.")
    experiment = experiment_of(folder.path, settings or [], stored=True)
    say(f"Loading the model {experiment.model.name} with the adapter after round {number}")
    model, policy = make_players(experiment.model, experiment.policy)
    policy.load(adapter)
    if getattr(policy, "asks_for_actions", False):
        say("Replies are free here: policy.legal_actions needs a world that lists its actions.")
    name = f"{experiment.name}@{number}{f':{client}' if client else ''}"
    worker = Worker(policy, model.chat, model.context)
    try:
        server = AgentServer(worker, name, port, key)
    except OSError as error:
        raise BadInput(f"--port {port}: cannot listen there ({error.strerror}): choose another.") from error
    server.listen()
    say(f"Serving {name} at {server.url}   (Ctrl-C stops it)")
    with tidy_when_terminated():
        try:
            worker.work()
        finally:
            server.close()


def _key(variable: str) -> str:
    from fedse.errors import BadInput

    if not variable:
        return ""
    if not re.fullmatch("[A-Z_][A-Z0-9_]*", variable):
        # Not repeated here: it may be the key itself.
        raise BadInput("--key-from takes the name of an environment variable, in capitals, never the key itself.")
    if not (key := os.environ.get(variable, "").strip()) or not (key.isascii() and key.isprintable()):
        raise BadInput("--key-from: the environment variable it names holds no key: put one into it.")
    return key
