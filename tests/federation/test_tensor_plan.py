"""Whole rounds in which clients train, send or keep only a part of the adapter, with a table in two factors: no torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedse
from factored_table import RANK, ROWS, A, B, FactoredLearner
from fedse.adapters.files import read_adapter
from fedse.adapters.plan import part
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.models.table import TENSOR
from fedse.types import Adapter, Lesson


class Careless(FactoredLearner):
    """Trains what it was told to leave alone."""

    def learn(self, lesson: Lesson) -> Any:
        return super().learn(
            Lesson(Adapter(lesson.start.tensors, lesson.start.config), lesson.trajectories, lesson.key)
        )


class BreaksOnce(FactoredLearner):
    """Is interrupted at the second client of the second round, the first time."""

    calls = 0

    def learn(self, lesson: Lesson) -> Any:
        BreaksOnce.calls += 1
        if BreaksOnce.calls == 4:
            raise KeyboardInterrupt
        return super().learn(lesson)


def adapters(folder: Path) -> list[Adapter]:
    return [read_adapter(path) for path in sorted(folder.glob("rounds/*/adapter"))]


def report(folder: Path, number: int) -> Any:
    return json.loads((folder / f"rounds/{number:04d}/report.json").read_text())


def sent_bytes(folder: Path) -> set[int]:
    return {entry["bytes"] for entry in report(folder, 3)["clients"].values()}


def test_with_rolora_one_factor_changes_in_each_round_and_it_alone_travels(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(factored(aggregator="rolora", rounds=4), tmp_path)
    found = adapters(result.folder)
    for number, (before, after) in enumerate(pairwise(found), start=1):
        moved = {name for name in (A, B) if before.tensors[name].tobytes() != after.tensors[name].tobytes()}
        assert moved == {B if number % 2 else A}
        sizes = {entry["bytes"] for entry in report(result.folder, number)["clients"].values()}
        assert sizes == {after.tensors[moved.pop()].nbytes}


@pytest.mark.slow
def test_a_stopped_rolora_run_goes_on_with_the_factor_whose_turn_it_is(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    whole = fedse.run(factored(aggregator="rolora"), tmp_path / "whole")
    BreaksOnce.calls = 0
    broken = factored(aggregator="rolora", learner=f"{__name__}:BreaksOnce")
    with pytest.raises(KeyboardInterrupt):
        fedse.run(broken, tmp_path / "broken")
    resumed = fedse.run(broken, tmp_path / "broken")
    assert [adapter.digest() for adapter in adapters(resumed.folder)] == [
        adapter.digest() for adapter in adapters(whole.folder)
    ]


def test_with_ffa_lora_a_never_changes_and_only_b_travels(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(factored(aggregator="ffa_lora"), tmp_path)
    found = adapters(result.folder)
    assert len({adapter.tensors[A].tobytes() for adapter in found}) == 1
    assert len({adapter.tensors[B].tobytes() for adapter in found}) == 4
    assert sent_bytes(result.folder) == {4 * ROWS * RANK}


def test_with_fedsvd_only_b_travels_and_a_comes_back_with_orthonormal_rows(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(factored(aggregator="fedsvd"), tmp_path)
    for adapter in adapters(result.folder)[1:]:
        np.testing.assert_allclose(adapter.tensors[A] @ adapter.tensors[A].T, np.eye(RANK), atol=1e-6)
    assert sent_bytes(result.folder) == {4 * ROWS * RANK}
    assert result.validation["macro"] > report(result.folder, 1)["evaluation"]["macro"] + 0.3


def test_a_learner_that_trains_what_is_frozen_is_named(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"it changed table\.lora_A\.weight, which aggregator or mix keep frozen"):
        fedse.run(factored(aggregator="ffa_lora", learner=f"{__name__}:Careless"), tmp_path)


def private(folder: Path) -> dict[str, dict[str, Any]]:
    found = {str(path.relative_to(folder)): load_file(path) for path in sorted(folder.glob("clients/*/private/*"))}
    return {path: {name: tensor.tobytes() for name, tensor in tensors.items()} for path, tensors in found.items()}


def test_with_fedsa_lora_every_client_keeps_its_own_b(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(factored(aggregator="fedsa_lora"), tmp_path)
    found = adapters(result.folder)
    assert all(not adapter.tensors[B].any() for adapter in found)
    assert len({adapter.tensors[A].tobytes() for adapter in found}) == 4
    assert sent_bytes(result.folder) == {4 * RANK * 4}
    kept = private(result.folder)
    assert len(kept) == 6 and {tuple(tensors) for tensors in kept.values()} == {(B,)}
    assert kept["clients/east/private/0003.safetensors"] != kept["clients/west/private/0003.safetensors"]
    # The shared adapter alone is the untrained model; the clients' own factors play far better.
    assert result.validation["macro"] > report(result.folder, 1)["evaluation"]["macro"] + 0.2


@pytest.mark.slow
@pytest.mark.parametrize("setting", [{"aggregator": "fedsa_lora"}, {"mix": {"name": "personal", "rank": 2}}])
def test_private_tensors_survive_an_interruption_in_the_middle_of_a_round(
    factored: Callable[..., Experiment], tmp_path: Path, setting: dict[str, Any]
) -> None:
    straight = fedse.run(factored(**setting), tmp_path / "straight")
    BreaksOnce.calls = 0
    stopped = factored(**setting, learner=f"{__name__}:BreaksOnce")
    with pytest.raises(KeyboardInterrupt):
        fedse.run(stopped, tmp_path / "stopped")
    # The first client has already learned in the round that will be repeated.
    assert (tmp_path / "stopped/table/clients/east/private/0002.safetensors").exists()
    assert not (tmp_path / "stopped/table/clients/west/private/0002.safetensors").exists()
    resumed = fedse.run(stopped, tmp_path / "stopped")
    assert resumed.adapter.digest() == straight.adapter.digest()
    assert private(resumed.folder) == private(straight.folder)


def test_an_earlier_round_is_evaluated_with_the_private_part_of_that_round(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    from fedse.experiments.running import open_run

    result = fedse.run(factored(aggregator="fedsa_lora"), tmp_path)
    server = open_run(result.folder).server
    for number in (0, 1, 2):
        then, now = report(result.folder, number + 1)["evaluation"], server.evaluate(number, "validation")
        for key in ("successes", "steps", "tokens"):
            assert [row[key] for row in now["worlds"]] == [row[key] for row in then["worlds"]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shared"), [("fedex_lora", True), ("flora", False)])
def test_an_exact_aggregator_broadcasts_what_the_mean_loses(
    factored: Callable[..., Experiment], tmp_path: Path, name: str, shared: bool
) -> None:
    result = fedse.run(factored(aggregator=name), tmp_path)
    last = adapters(result.folder)[-1]
    assert {part(tensor) for tensor in last.tensors} == {"", "residual"}
    assert last.tensors[B].any() == shared
    assert sent_bytes(result.folder) == {4 * RANK * (ROWS + 4)}
    assert report(result.folder, 3)["diagnostics"]["residual_rank"] <= 4
    assert result.validation["macro"] > report(result.folder, 1)["evaluation"]["macro"] + 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ffa_lora", ROWS * RANK),
        ("fedsa_lora", RANK * 4),
        ("fedex_lora", RANK * (ROWS + 4)),
        ("flora", RANK * (ROWS + 4)),
    ],
)
def test_rounding_counts_the_change_from_the_part_that_is_sent(
    factored: Callable[..., Experiment], tmp_path: Path, name: str, values: int
) -> None:
    result = fedse.run(
        factored(aggregator=name, mix={"name": "personal", "rank": 1}, sending={"precision": "float16"}), tmp_path
    )
    assert sent_bytes(result.folder) == {2 * values}
    for number in (1, 2, 3):
        found = report(result.folder, number)
        assert found["diagnostics"]["contributed"] == ["east", "west"]
        assert all(0 < entry["metrics"]["rounding"] < 1e-3 for entry in found["clients"].values())
        assert found["broadcast_bytes"] == 4 * adapters(result.folder)[number - 1].size


@pytest.mark.slow
def test_a_personal_adapter_stays_at_its_client_and_is_played_with(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    alone = fedse.run(factored(), tmp_path / "alone")
    result = fedse.run(factored(mix={"name": "personal", "rank": 2}), tmp_path / "personal")
    assert {part(name) for adapter in adapters(result.folder) for name in adapter.tensors} == {""}
    assert sent_bytes(result.folder) == sent_bytes(alone.folder)
    kept = private(result.folder)
    assert len(kept) == 6
    assert {part(name) for tensors in kept.values() for name in tensors} == {"personal"}
    assert result.adapter.digest() != alone.adapter.digest()
    assert result.validation["macro"] > report(result.folder, 1)["evaluation"]["macro"] + 0.2


def test_a_personal_adapter_needs_a_model_with_lora(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=r"mix .personal.: the model 'table' has no LoRA adapter"):
        fedse.run(table_experiment(mix={"name": "personal", "rank": 2}), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_client_exports_the_adapter_it_plays_with(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fedse.cli import app

    result = fedse.run(factored(aggregator="fedsa_lora", rounds=2), tmp_path)

    def export(target: str, *options: str) -> Any:
        return CliRunner().invoke(app, ["export", str(result.folder), str(tmp_path / target), *options])

    assert export("east", "--client", "east", "--round", "1").exit_code == 0
    kept = load_file(result.folder / "clients/east/private/0001.safetensors")
    east = read_adapter(tmp_path / "east")
    assert np.array_equal(east.tensors[B], kept[B])
    assert np.array_equal(east.tensors[A], adapters(result.folder)[1].tensors[A])
    assert "did you mean 'east'?" in export("other", "--client", "eats").output
    plain = fedse.run(factored(rounds=1, name="plain"), tmp_path)
    done = CliRunner().invoke(app, ["export", str(plain.folder), str(tmp_path / "none"), "--client", "east"])
    assert done.exit_code == 2 and "keeps nothing private" in done.output
    assert TENSOR not in east.tensors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "keeps"),
    [
        pytest.param({"aggregator": "fedsa_lora"}, True, marks=pytest.mark.torture),
        pytest.param({"aggregator": "flora"}, False, marks=pytest.mark.torture),
        ({"mix": {"name": "personal", "rank": 2}}, True),
    ],
)
def test_a_language_model_goes_on_after_a_stop_as_if_there_were_none(
    tiny_experiment: Experiment, tmp_path: Path, setting: dict[str, Any], keeps: bool
) -> None:
    content = {**json.loads(tiny_experiment.model_dump_json()), **setting}
    straight = fedse.run(Experiment(**content), tmp_path / "straight")
    fedse.run(Experiment(**{**content, "rounds": 1}), tmp_path / "stopped")
    resumed = fedse.run(Experiment(**content), tmp_path / "stopped")
    assert resumed.adapter.digest() == straight.adapter.digest()
    assert private(resumed.folder) == private(straight.folder)
    assert bool(private(straight.folder)) == keeps
