"""What a client does with a message, in the simulation and at a site: the local engine with this client alone."""

from __future__ import annotations

from collections.abc import Callable

from fedse.engines.flower.wire import Parcel, pack_reply, read_task, renamed
from fedse.protocols import Engine
from fedse.types import ClientFailure, ClientReply, RoundTask


def answer_to(parcel: Parcel, engine: Callable[[str], Engine]) -> Parcel:
    """The reply to a task. Whatever goes wrong crosses as the name of its class only."""
    try:
        task = read_task(parcel)
    except Exception as error:
        return pack_reply(ClientFailure("", "", renamed(error)))
    client = str(parcel.header["client"])
    try:
        return pack_reply(carry_out(task, client, engine(client)))
    except Exception as error:
        return pack_reply(ClientFailure(client, task.name, renamed(error)))


def carry_out(task: RoundTask, client: str, engine: Engine) -> ClientReply:
    engine.send({client: task})
    (answer,) = engine.poll()
    return answer
