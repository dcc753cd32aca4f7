"""The library: what each client sent last, kept by the server and handed to everybody."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedse
from factored_table import A, B, FactoredLearner
from fedse.adapters.files import read_adapter
from fedse.adapters.packing import pack
from fedse.aggregators.mean import Mean
from fedse.errors import BadAggregate, BadInput
from fedse.evaluation.measured import costs
from fedse.experiments.options import Experiment
from fedse.mixes.broadcast import Broadcast
from fedse.runs.folder import RunFolder
from fedse.types import Adapter, Lesson, Sent, ServerState, Tensors
from short_maze import SHORT_MAZE

MAZE = {"worlds": [SHORT_MAZE]}
FOUR = dict.fromkeys(("east", "north", "south", "west"), MAZE)


class Neighbour(Broadcast):
    """Plays with what the client after it in the alphabet sent last."""

    needs_library = True
    own_mixture = True

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        names = sorted(sent.library)
        later = [name for name in names if name > self.client] or names
        return super().compose(sent, {**kept, **(sent.library[later[0]] if later else {})})


class Scribbles(Neighbour):
    """Writes into what belongs to all."""

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        for tensors in sent.library.values():
            for tensor in tensors.values():
                tensor += 1
        return super().compose(sent, kept)


class AddsRanks(Mean):
    """Broadcasts something beside the pair without having said so."""

    def aggregate(self, state: ServerState, updates: Any) -> Any:
        following, numbers = super().aggregate(state, updates)
        more = {
            name.replace(".weight", ".residual.weight"): tensor for name, tensor in following.adapter.tensors.items()
        }
        return replace(following, adapter=Adapter({**following.adapter.tensors, **more}, state.adapter.config)), numbers


NEIGHBOUR = {"mix": f"{__name__}:Neighbour", "clients": FOUR}


def library(folder: Path, number: int) -> dict[str, Any]:
    file = folder / f"rounds/{number:04d}/server/memory.safetensors"
    return {key.removeprefix("library/"): vector for key, vector in load_file(file).items()}


def report(folder: Path, number: int) -> Any:
    return json.loads((folder / f"rounds/{number:04d}/report.json").read_text())


def test_the_server_keeps_what_everybody_sent_and_their_mean_is_the_broadcast_adapter(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(factored(**NEIGHBOUR), tmp_path)
    for number in (1, 2, 3):
        held = library(result.folder, number)
        assert list(held) == sorted(FOUR)
        mean = np.mean([held[name].astype(float) for name in sorted(held)], axis=0).astype(np.float32)
        shared = pack(read_adapter(result.folder / f"rounds/{number:04d}/adapter"))
        assert mean.tobytes() == shared.tobytes()
    assert not (result.folder / "rounds/0000/server").exists()


@pytest.mark.slow
def test_downloads_are_told_and_counted(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(factored(**NEIGHBOUR), tmp_path)
    size = 4 * result.adapter.size
    assert [report(result.folder, number).get("library_bytes", 0) for number in (1, 2, 3)] == [0, 4 * size, 4 * size]
    found = costs(RunFolder.existing(result.folder), sharing=True, pooled=False)
    assert found[3].bytes == 4 * size * (1 + 1) + 2 * 4 * size * (1 + 1 + 4)
    told = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    (warning,) = [event["message"] for event in told if event.get("kind") == "library"]
    assert "sent the single updates of all the others" in warning and "4 adapters more" in warning
    plain = fedse.run(factored(name="plain", clients=FOUR), tmp_path)
    assert (
        "library_bytes" not in report(plain.folder, 2) and "library" not in (plain.folder / "events.jsonl").read_text()
    )


def test_who_is_not_asked_keeps_the_last_update(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(factored(**NEIGHBOUR, participation={"fraction": 0.5}, rounds=5), tmp_path)
    held: dict[str, bytes] = {}
    for number in range(1, 6):
        now = {name: vector.tobytes() for name, vector in library(result.folder, number).items()}
        contributed = set(report(result.folder, number)["diagnostics"]["contributed"])
        assert len(contributed) == 2 and now.keys() == held.keys() | contributed
        changed = {name for name in now if now[name] != held.get(name)}
        assert changed and changed <= contributed
        held = now


@pytest.mark.parametrize(
    "setting",
    [
        {"participation": {"fraction": 0.5}},
        *(pytest.param(setting, marks=pytest.mark.slow) for setting in ({}, {"sending": {"precision": "int8"}})),
    ],
)
def test_a_stopped_run_goes_on_byte_for_byte_and_bytes_that_cross_change_nothing(
    factored: Callable[..., Experiment], tmp_path: Path, setting: dict[str, Any]
) -> None:
    straight = fedse.run(factored(**NEIGHBOUR, **setting), tmp_path / "straight")
    fedse.run(factored(**NEIGHBOUR, **setting, rounds=2), tmp_path / "stopped")
    resumed = fedse.run(factored(**NEIGHBOUR, **setting), tmp_path / "stopped")
    crossed = fedse.run(factored(**NEIGHBOUR, **setting, engine="carried_tasks:Carried"), tmp_path / "crossed")
    for other in (resumed, crossed):
        assert other.adapter.digest() == straight.adapter.digest()
        assert other.validation["worlds"] == straight.validation["worlds"]
        for file in ("rounds/0003/server/memory.safetensors", "rounds/0002/server/memory.safetensors"):
            assert (other.folder / file).read_bytes() == (straight.folder / file).read_bytes()


@pytest.mark.parametrize(("aggregator", "fixed"), [("ffa_lora", A), ("rolora", B)])
def test_of_a_part_that_is_sent_the_library_has_the_whole(
    factored: Callable[..., Experiment], tmp_path: Path, aggregator: str, fixed: str
) -> None:
    result = fedse.run(factored(**NEIGHBOUR, aggregator=aggregator, rounds=2), tmp_path)
    before = read_adapter(result.folder / "rounds/0001/adapter")
    held = library(result.folder, 2)
    size, start = before.tensors[fixed].size, 0 if fixed == A else before.tensors[A].size
    for vector in held.values():
        assert vector.size == before.size
        assert vector[start : start + size].tobytes() == before.tensors[fixed].tobytes()
    assert len({vector.tobytes() for vector in held.values()}) > 1


class WritesToItsOwn(FactoredLearner):
    """Changes the adapter that it is given in place, as it may."""

    def learn(self, lesson: Lesson) -> Any:
        for tensor in lesson.start.tensors.values():
            tensor += 0.5
        return super().learn(lesson)


@pytest.mark.slow
def test_what_belongs_to_all_cannot_be_written_to(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(factored(**NEIGHBOUR, rounds=2, learner=f"{__name__}:WritesToItsOwn"), tmp_path / "own")
    assert result.adapter.digest()
    with pytest.raises(ValueError, match="read-only"):
        fedse.run(factored(mix=f"{__name__}:Scribbles", clients=FOUR), tmp_path)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"aggregator": "fedsa_lora"}, "mixes whole adapters of the clients"),
        ({"aggregator": "flora"}, "use an aggregator such as `mean`"),
        ({"aggregator": "tsv_merge"}, "use an aggregator such as `mean`"),
        ({"method": "local_se"}, "nobody sends: leave `mix` out"),
        ({"evaluation": {"mean_of_last": 2}}, "leave `evaluation.mean_of_last` out"),
    ],
)
def test_what_cannot_have_a_library_is_refused(
    factored: Callable[..., Experiment], setting: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        factored(**NEIGHBOUR, **setting)
    assert factored(**NEIGHBOUR, aggregator={"name": "tsv_merge", "rank": 0}).has_library


def test_an_aggregator_that_adds_ranks_unannounced_is_stopped(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(BadAggregate, match=r"further ranks beside the shared pair \(table.lora_A.residual.weight\)"):
        fedse.run(factored(**NEIGHBOUR, aggregator=f"{__name__}:AddsRanks"), tmp_path)
