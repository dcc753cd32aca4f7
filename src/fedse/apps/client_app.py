"""The ClientApp. Flower starts a process for each message; this one is light and hands the message to the site's worker,
which has the base model loaded and the buffer open."""

from __future__ import annotations

from multiprocessing.connection import Client
from typing import Any

from fedse.engines.flower.settings import prepare
from fedse.engines.flower.wire import (
    FORMAT,
    SITE,
    Parcel,
    from_bytes,
    from_records,
    pack_reply,
    renamed,
    to_bytes,
    to_records,
)
from fedse.types import ClientFailure

prepare("fedse site")

from flwr.app import Message  # noqa: E402 - after the switches
from flwr.clientapp import ClientApp  # noqa: E402

WORKER = "worker"
"""Key of the node configuration under which the path of the worker's socket stands."""

app = ClientApp()


@app.train()
def train(message: Any, context: Any) -> Any:
    return _carried(message, context)


@app.evaluate()
def evaluate(message: Any, context: Any) -> Any:
    return _carried(message, context)


@app.query()
def query(message: Any, context: Any) -> Any:
    """The name of this site, for a hub without keys, which cannot know it otherwise."""
    return Message(to_records(Parcel({"format": FORMAT, SITE: str(context.node_config[SITE])})), reply_to=message)


def _carried(message: Any, context: Any) -> Any:
    try:
        answer = _ask(str(context.node_config[WORKER]), from_records(message.content))
    except Exception as error:
        # Raised further, its text would be sent to the hub.
        answer = pack_reply(ClientFailure("", "", renamed(error)))
    return Message(to_records(answer), reply_to=message)


def _ask(address: str, parcel: Parcel) -> Parcel:
    with Client(address, family="AF_UNIX") as worker:
        worker.send_bytes(to_bytes(parcel))
        return from_bytes(worker.recv_bytes())
