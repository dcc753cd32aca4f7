"""A run that begins with an adapter from outside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from fedse.adapters.files import CONFIG, TENSORS, read_adapter, write_adapter
from fedse.adapters.first import first_adapter
from fedse.errors import BadInput, RunConflict
from fedse.experiments.building import build_clients
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.experiments.running import prepare
from fedse.runs.folder import RunFolder
from fedse.types import Adapter

Make = Callable[..., Experiment]


def stored(folder: Path, adapter: Adapter) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_adapter(adapter, folder)
    return folder


@pytest.fixture
def earlier(table_experiment: Make, tmp_path: Path) -> Path:
    """The adapter of another run."""
    return fedse.run(table_experiment(name="earlier"), tmp_path).folder / "rounds/0002/adapter"


def rounds(folder: Path) -> dict[str, str]:
    return RunFolder.existing(folder).manifest()["rounds"]  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_run_begins_with_the_adapter_of_another(table_experiment: Make, earlier: Path, tmp_path: Path) -> None:
    result = fedse.run(table_experiment(start_adapter=str(earlier)), tmp_path)
    assert rounds(result.folder)["0"] == read_adapter(earlier).digest() != rounds(earlier.parents[2])["0"]
    entered = RunFolder.existing(result.folder).report(1)["evaluation"]  # type: ignore[index]
    left = RunFolder.existing(earlier.parents[2]).evaluation("validation", 2)
    assert left is not None and entered["worlds"] == left["worlds"], (
        "what the other run ended with is what this one has"
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["local_se", "pretrained"])
def test_sites_that_share_nothing_begin_with_it_too(
    table_experiment: Make, earlier: Path, tmp_path: Path, method: str
) -> None:
    evaluation = {"tasks": 20, "test_tasks": 20}
    result = fedse.run(table_experiment(method=method, start_adapter=earlier, evaluation=evaluation), tmp_path)
    plain = fedse.run(table_experiment(method=method, name="plain", evaluation=evaluation), tmp_path)
    assert rounds(result.folder)["0"] == read_adapter(earlier).digest()
    if method == "pretrained":
        assert result.validation["macro"] > plain.validation["macro"]
    else:
        own, theirs = (read_adapter(run.folder / "clients/east/adapters/0001") for run in (result, plain))
        assert own.digest() != theirs.digest()


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bytes(table_experiment: Make, earlier: Path, tmp_path: Path) -> None:
    whole = fedse.run(table_experiment(start_adapter=earlier, rounds=3), tmp_path / "whole")
    fedse.run(table_experiment(start_adapter=earlier, rounds=1), tmp_path / "parts")
    again = fedse.run(table_experiment(start_adapter=earlier, rounds=3), tmp_path / "parts")
    assert rounds(again.folder) == rounds(whole.folder)
    for name in (TENSORS, CONFIG):
        first, second = (run.folder / "rounds/0003/adapter" / name for run in (whole, again))
        assert first.read_bytes() == second.read_bytes()


def test_a_run_that_began_with_another_adapter_is_refused(
    table_experiment: Make, earlier: Path, tmp_path: Path
) -> None:
    chosen = Path(shutil.copytree(earlier, tmp_path / "chosen"))
    asked = table_experiment(start_adapter=chosen, rounds=1)
    folder = fedse.run(asked, tmp_path).folder
    before = (folder / "manifest.json").read_bytes()
    shutil.copytree(earlier.parents[1] / "0001/adapter", chosen, dirs_exist_ok=True)
    with pytest.raises(RunConflict, match="begun with another adapter"):
        fedse.run(table_experiment(start_adapter=chosen, rounds=2), tmp_path)
    for other in (None, earlier):
        with pytest.raises(RunConflict, match="different: start_adapter"):
            fedse.run(table_experiment(start_adapter=other, rounds=2), tmp_path)
    assert (folder / "manifest.json").read_bytes() == before
    shutil.rmtree(chosen)
    gone = fedse.run(table_experiment(start_adapter=chosen, rounds=2), tmp_path)
    assert gone.validation["round"] == 2, "what a run began with is its own from then on"


def test_the_path_may_name_the_seed(table_experiment: Make, earlier: Path, tmp_path: Path) -> None:
    for seed, number in ((3, 1), (4, 2)):
        shutil.copytree(earlier.parents[1] / f"{number:04d}/adapter", tmp_path / f"merged-{seed}")
    path = tmp_path / "merged-{seed}"
    found = [
        fedse.run(table_experiment(start_adapter=path, seed=seed, name=f"s{seed}", rounds=0), tmp_path)
        for seed in (3, 4)
    ]
    assert [rounds(run.folder)["0"] for run in found] == [rounds(earlier.parents[2])[number] for number in ("1", "2")]
    assert (
        table_experiment(start_adapter=path).comparable()["start_adapter"]
        != table_experiment().comparable()["start_adapter"]
    )


def test_a_hub_reads_it_and_sites_do_without(table_experiment: Make, earlier: Path, tmp_path: Path) -> None:
    class NobodyHere:
        clients = ("east", "west")

    asked = table_experiment(start_adapter=earlier)
    with prepare(asked, tmp_path / "hub", make_engine=lambda sites: NobodyHere()) as federation:  # type: ignore[arg-type,return-value]
        assert federation.initial_adapter().digest() == read_adapter(earlier).digest()
    elsewhere = table_experiment(start_adapter="not/on/this/machine")
    assert build_clients(elsewhere, build_components(elsewhere), RunFolder(tmp_path / "site"), "east")[0].name == "east"
    assert elsewhere.terms == asked.terms
    with pytest.raises(BadInput, match="not/on/this/machine holds no adapter"):
        prepare(elsewhere, tmp_path / "other", make_engine=lambda sites: NobodyHere())  # type: ignore[arg-type,return-value]
    assert not (tmp_path / "other").exists()


def lora(**config: Any) -> Adapter:
    draw = np.random.default_rng(0).normal
    return Adapter(
        {
            "x.lora_A.weight": draw(size=(2, 5)).astype(np.float32),
            "x.lora_B.weight": draw(size=(4, 2)).astype(np.float32),
        },
        {"r": 2, "lora_alpha": 4, **config},
    )


def changed(**tensors: np.ndarray) -> Adapter:
    own = lora()
    return Adapter({**own.tensors, **{name.replace("__", "."): value for name, value in tensors.items()}}, own.config)


@pytest.mark.parametrize(
    ("adapter", "sentence"),
    [
        (Adapter({}, {}), "other tensors than the model's adapter (x.lora_A.weight is missing)"),
        (changed(y__lora_A__weight=np.zeros((2, 5))), "y.lora_A.weight is not in the model's adapter"),
        (changed(x__lora_A__weight=np.zeros((3, 5))), "in the shape (3, 5), and the model's adapter has it in (2, 5)"),
        (changed(x__lora_B__weight=np.full((4, 2), np.nan)), "no finite numbers"),
        (lora(lora_alpha=16), "has lora_alpha 16, and the model's adapter has 4"),
        (lora(use_rslora=True), "has use_rslora True"),
        (
            changed(x__lora_A__residual__weight=np.zeros((3, 5)), x__lora_B__residual__weight=np.zeros((4, 3))),
            "has 3 ranks beside the 2 that clients train",
        ),
    ],
)
def test_an_adapter_of_another_make_is_refused_in_a_sentence(adapter: Adapter, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        first_adapter(stored(tmp_path / "other", adapter), lora())
    assert str(refused.value).startswith("start_adapter: ") and sentence in str(refused.value)


def test_one_that_fits_has_its_own_tensors_and_the_models_configuration(tmp_path: Path) -> None:
    theirs = Adapter({name: 2 * tensor for name, tensor in lora().tensors.items()}, {**lora().config, "author": "them"})
    found = first_adapter(stored(tmp_path / "theirs", theirs), lora())
    assert found.digest() == theirs.digest() and found.config == lora().config


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "config", "other"])
def test_nothing_is_written_where_the_run_could_not_begin(
    table_experiment: Make, earlier: Path, tmp_path: Path, damage: str
) -> None:
    chosen = tmp_path / "chosen"
    if damage != "missing":
        shutil.copytree(earlier, chosen)
    if damage == "empty":
        (chosen / TENSORS).unlink()
    if damage == "cut":
        (chosen / TENSORS).write_bytes((chosen / TENSORS).read_bytes()[:-8])
    if damage == "config":
        (chosen / CONFIG).write_text(json.dumps(["no object"]))
    if damage == "other":
        stored(chosen, lora())
    with pytest.raises(BadInput, match=r"^start_adapter: .*chosen"):
        fedse.run(table_experiment(start_adapter=chosen), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_model_without_an_adapter_cannot_begin_with_one(earlier: Path) -> None:
    with pytest.raises(BadInput, match="the model has no adapter"):
        first_adapter(earlier, Adapter({}, {"peft_type": "NONE"}))
