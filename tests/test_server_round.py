"""`benchmarks/server_round.py` measures the server's part of a round and nothing of its clients."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from fedse.types import RoundTask


@pytest.mark.slow
def test_spans_of_the_server_are_told_and_clients_are_not_counted(
    benchmarks: Callable[[str], ModuleType],
) -> None:
    server_round = benchmarks("server_round")

    class Slow(server_round.AtOnce):  # type: ignore[misc, name-defined]
        def _update(self, name: str, task: RoundTask) -> object:
            began = server_round.time.process_time()
            while server_round.time.process_time() - began < 0.2:
                pass
            return super()._update(name, task)

    server_round.AtOnce = Slow
    found = server_round.measured(clients=2, layers=1, rounds=3)
    assert {"aggregate", "disk"} <= found["seconds"].keys()
    assert 0 < found["all"] < 0.2, "two clients took at least twice as long"
    assert found["clients"] == 2 and found["values"] == 81_408
