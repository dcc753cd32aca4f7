"""`benchmarks/wire.py` reads tasks and answers off the lengths, directions and times of encrypted records."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def wire(benchmarks: Callable[[str], ModuleType]) -> Any:
    return benchmarks("wire")


def record(kind: int, length: int) -> bytes:
    return bytes([kind, 3, 3]) + length.to_bytes(2, "big") + bytes(length)


def test_records_are_told_apart_however_the_bytes_come(wire: Any) -> None:
    stream = record(22, 300) + record(23, 70) + record(23, 16_401) + record(23, 1)
    for size in (1, 7, 1000, len(stream)):
        records = wire.Records()
        found = [length for at in range(0, len(stream), size) for length in records.lengths(stream[at : at + size])]
        assert found == [75, 16_406, 6], "encrypted ones, with their heads"


def test_what_passes_arrives_and_only_lengths_are_kept(wire: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        forwarder = wire.Forwarder(hub.getsockname()[1])
        with socket.create_connection(("127.0.0.1", forwarder.port)) as site:
            there, _ = hub.accept()
            with there:
                for sender, receiver, length in ((site, there, 100), (there, site, 40)):
                    sender.sendall(record(23, length))
                    assert receiver.recv(1000) == record(23, length)
    assert [(item.up, item.bytes) for item in forwarder.passed] == [(True, 105), (False, 45)]


def greeting(wire: Any, time: float, connection: int) -> list[Any]:
    """What the hub shows, the site's last word, and two tickets, one of which may come in the middle of what is sent."""
    steps = ((False, 900), (True, 74), (False, 287), (False, 287))
    return [wire.Passed(time, connection, up, length) for up, length in steps]


def test_a_task_and_its_answer_are_found_and_a_site_that_sends_no_adapter(wire: Any) -> None:
    adapter = 400_000
    passed = [
        *greeting(wire, 0.0, 1),
        wire.Passed(1.0, 1, True, 900),
        wire.Passed(1.1, 1, False, 180),  # a poll without a task
        wire.Passed(4.0, 1, True, 970),
        wire.Passed(4.5, 1, False, adapter),
        wire.Passed(9.0, 1, True, 910),
        wire.Passed(9.1, 1, False, 200),  # a heartbeat while it works
        wire.Passed(24.5, 1, True, 5_800),
        wire.Passed(24.6, 1, False, 200),
        *greeting(wire, 24.6, 2)[:-1],
        wire.Passed(24.7, 2, True, 200_000),
        greeting(wire, 24.75, 2)[-1],
        wire.Passed(24.8, 2, True, 200_500),
        wire.Passed(24.9, 2, False, 200),
        wire.Passed(30.0, 1, True, 970),
        wire.Passed(30.5, 1, False, adapter + 20),
        wire.Passed(36.5, 1, True, 5_700),
        wire.Passed(36.6, 1, False, 200),
    ]
    learned, abstained = wire.answers(passed, adapter)
    assert learned == (adapter, 20.0, 5_800, 400_500)
    assert abstained == (adapter + 20, 6.0, 5_700, 0)


def test_what_is_constant_tells_nothing(wire: Any) -> None:
    rows = [{"learned_from": number, "seconds": 3.0 * number, "adapter_up": 7} for number in (1, 5, 9)]
    assert wire.correlation(rows, "adapter_up") is None
    assert wire.correlation(rows, "seconds") == pytest.approx(1.0)
