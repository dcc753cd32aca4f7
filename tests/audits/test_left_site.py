"""Runs without a client: every adapter that they broadcast is looked at, and runs that do not fit are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.audits.left_site import without
from fedse.audits.seats import scores
from fedse.cli.audit import audit
from fedse.errors import BadInput
from fedse.experience.buffer import read_file
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView
from fedse.runs.shared_adapter import shared_adapter
from fedse.types import Adapter


def test_every_broadcast_of_a_run_that_the_client_had_left_is_looked_at(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    made = table_experiment()
    folder = fedse.run(made, tmp_path).folder
    last = folder / f"rounds/{made.rounds:04d}/adapter"
    quiet = {**made.clients, "west": made.clients["west"].model_copy(update={"learns": False})}
    left = fedse.run(table_experiment(name="left", clients=quiet, start_adapter=str(last)), tmp_path).folder
    whole = shared_adapter(RunView.existing(folder), made.rounds)
    (found,) = without([left], "west", whole)
    assert found.adapters[0].digest() == whole.digest() and len(found.adapters) == made.rounds + 1
    assert found.learned == {item.token_ids for item in read_file(left / "clients/east/buffer.sqlite")}
    tried = list(found.attacks(whole))
    assert [(attack.seat, attack.name) for attack in tried[2:4]] == [
        ("reader, left round 1", "loss"),
        ("reader, left round 1", "change since the beginning"),
    ]
    assert scores(tried[1], lambda adapter: [float(adapter.size)]) == [0.0]
    with pytest.raises(BadInput, match="client 'east' learns in it"):
        without([left], "east", whole)
    with pytest.raises(BadInput, match="other tensors"):
        without([left], "west", Adapter({}))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"without": [Path("other")]}, "name it with --client"),
        ({"projection": True, "canaries": True}, "audits of their own"),
        ({"projection": True, "reference": [Path("other")]}, "audits of their own"),
    ],
)
def test_the_command_is_about_one_client_and_one_audit(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        audit(Path("run"), **asked)
