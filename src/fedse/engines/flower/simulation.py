"""Flower's simulation: the clients in worker processes of one machine, the server here."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pydantic import Field

from fedse.engines.flower.grid import GridEngine, Node
from fedse.engines.flower.settings import prepare
from fedse.engines.flower.wire import from_records, to_records
from fedse.engines.flower.work import answer_to
from fedse.errors import ServerFailed
from fedse.federation.sites import Sites
from fedse.plugins import PluginOptions
from fedse.protocols import Engine
from fedse.types import ClientReply, RoundTask

KEPT_OPEN = 8
"""Clients that a worker process keeps open; the base model is loaded once for all of them."""

_QUIET_RAY: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}


class FlowerEngine:
    """Flower's simulation on one machine; `fedse hub` and `fedse site` run the same experiment on several."""

    class Options(PluginOptions):
        cpus_per_client: float = Field(default=1.0, gt=0)
        """Cores that a client takes; as many clients work at once as fit the machine."""
        gpus_per_client: float = Field(default=0.0, ge=0)
        """GPUs, or parts of one, that a client takes."""

    def __init__(self, sites: Sites, cpus_per_client: float = 1.0, gpus_per_client: float = 0.0) -> None:
        prepare("engine: flower")
        prepare("engine: flower", "ray")
        self.clients = sites.names
        self._sites = sites
        self._resources: dict[str, Any] = {"num_cpus": cpus_per_client, "num_gpus": gpus_per_client}
        self._over = threading.Event()
        self._ready: queue.Queue[Any] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._engine: GridEngine | None = None

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        self._started().send(tasks)

    def poll(self, seconds: float | None = None) -> list[ClientReply]:
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = 5.0 if until is None else min(5.0, until - time.monotonic())
            if answers := self._started().poll(left):
                return answers
            if until is not None and time.monotonic() >= until:
                return []

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _started(self) -> GridEngine:
        if self._engine is None:
            self._thread = threading.Thread(target=self._simulate, name="flower-simulation", daemon=True)
            self._thread.start()
            grid = self._ready.get()
            if isinstance(grid, BaseException):
                raise ServerFailed(f"Flower's simulation did not start: {grid}.") from grid
            self._engine = GridEngine(grid, self._sites, partial(_any_node, self.clients), pause=0.1)
        elif self._thread is None or not self._thread.is_alive():
            raise ServerFailed("Flower's simulation ended before the run did; the same command resumes the run.")
        return self._engine

    def _simulate(self) -> None:
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        # It warns that `flwr run` is to be preferred. That one leaves a server process behind; and the version is pinned.
        logging.getLogger("flwr").setLevel(logging.ERROR)
        server = ServerApp()

        @server.main()
        def main(grid: Any, context: Any) -> None:
            del context
            self._ready.put(grid)
            self._over.wait()

        try:
            run_simulation(
                server_app=server,
                client_app=client_app(self._sites.elsewhere),
                num_supernodes=len(self.clients),
                backend_config={"client_resources": self._resources, "init_args": _QUIET_RAY},
            )
        except BaseException as error:
            self._ready.put(error)


def _any_node(clients: tuple[str, ...], nodes: Iterable[Any]) -> dict[str, Node]:
    """Nodes of a simulation are alike, since all of them see the same disk: each client is given one."""
    return {client: Node(number) for client, number in zip(clients, sorted(n.node_id for n in nodes), strict=False)}


def client_app(elsewhere: Callable[[str], Engine]) -> Any:
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.train()(_Handler(elsewhere))
    app.evaluate()(_Handler(elsewhere))
    return app


_OPEN: OrderedDict[str, Engine] = OrderedDict()


class _Handler:
    """Answers messages in a worker process, which keeps the clients it served last open."""

    def __init__(self, elsewhere: Callable[[str], Engine]) -> None:
        self._elsewhere = elsewhere

    def __call__(self, message: Any, context: Any) -> Any:
        from flwr.app import Message

        del context
        return Message(to_records(answer_to(from_records(message.content), self._engine)), reply_to=message)

    def _engine(self, client: str) -> Engine:
        if client not in _OPEN:
            _OPEN[client] = self._elsewhere(client)
        _OPEN.move_to_end(client)
        while len(_OPEN) > KEPT_OPEN:
            _OPEN.popitem(last=False)
        return _OPEN[client]
