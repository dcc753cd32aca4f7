"""Finished adapters merged once, against the same merges written out densely and measurements made another way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedse
from fedse.adapters.files import CONFIG, TENSORS, read_adapter, write_adapter
from fedse.adapters.plan import RESIDUAL, in_part
from fedse.aggregators.mean import Mean
from fedse.errors import BadAggregate, BadInput
from fedse.experiments.assembling import Federation
from fedse.experiments.options import load_experiment
from fedse.experiments.running import open_run
from fedse.merging.candidates import RULES, SCALES, candidates
from fedse.merging.fewer_ranks import with_ranks
from fedse.merging.measuring import Measuring
from fedse.merging.merge import check_rank, merge_all
from fedse.merging.sources import Gathered, gather
from fedse.types import Adapter, Episode, Trajectory

Dense = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, tiny_text: str) -> Path:
    """A finished run of two sites that share nothing."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "tiny.yaml").write_text(tiny_text)
    return fedse.run(load_experiment(folder / "tiny.yaml", ["method=local_se"]), folder).folder


@pytest.fixture(scope="module")
def gathered(alone: Path) -> Gathered:
    return gather([alone])


@pytest.fixture
def federation(alone: Path) -> Iterator[Federation]:
    with open_run(alone) as opened:
        yield opened


def own_tensors(alone: Path) -> list[dict[str, Dense]]:
    """What the sites' files hold, read without fedse."""
    return [load_file(alone / f"clients/{name}/adapters/0002" / TENSORS) for name in ("maze", "wordle")]


def modules(tensors: dict[str, Dense]) -> list[str]:
    return sorted(name.removesuffix("lora_A.weight") for name in tensors if name.endswith("lora_A.weight"))


def product(tensors: Any, module: str) -> Dense:
    return np.asarray(tensors[f"{module}lora_B.weight"], np.float64) @ tensors[f"{module}lora_A.weight"]


def as_peft_applies_it(adapter: Adapter, folder: Path) -> dict[str, Dense]:
    """What each module gains, from the files and by PEFT's formula."""
    folder.mkdir()
    write_adapter(adapter, folder)
    tensors, config = load_file(folder / TENSORS), json.loads((folder / CONFIG).read_text())
    return {module: config["lora_alpha"] / config["r"] * product(tensors, module) for module in modules(tensors)}


@pytest.mark.slow
def test_the_sources_are_the_last_adapters_of_the_sites(gathered: Gathered, alone: Path) -> None:
    assert [source.client for source in gathered.sources] == ["maze", "wordle"]
    for source, tensors in zip(gathered.sources, own_tensors(alone), strict=True):
        assert all(np.array_equal(source.adapter.tensors[name], tensor) for name, tensor in tensors.items())
    assert all(not tensor.any() for name, tensor in gathered.initial.tensors.items() if "lora_B" in name)


def test_task_arithmetic_with_scale_1_is_the_dense_sum_of_the_products(
    gathered: Gathered, alone: Path, tmp_path: Path
) -> None:
    (one,) = candidates(["task_arithmetic"], [1.0])
    found = as_peft_applies_it(one.merge(gathered), tmp_path / "sum")
    scale = gathered.initial.config["lora_alpha"] / gathered.initial.config["r"]
    for module, gain in found.items():
        wanted = scale * sum(product(tensors, module) for tensors in own_tensors(alone))
        np.testing.assert_allclose(gain, wanted, atol=1e-6, err_msg=module)
        assert np.abs(wanted).max() > 1e-4


def test_the_mean_is_that_of_the_factors(gathered: Gathered, alone: Path) -> None:
    (one,) = candidates(["mean"], SCALES)
    merged, theirs = one.merge(gathered), own_tensors(alone)
    assert one.scale is None
    for name, tensor in merged.tensors.items():
        np.testing.assert_allclose(tensor, np.mean([tensors[name] for tensors in theirs], axis=0), rtol=1e-6, atol=1e-9)


def test_every_rule_goes_further_with_a_larger_scale(gathered: Gathered, tmp_path: Path) -> None:
    found = candidates(RULES, [0.5, 1.0])
    assert [(item.rule, item.scale) for item in found[:3]] == [
        ("mean", None),
        ("task_arithmetic", 0.5),
        ("task_arithmetic", 1.0),
    ]
    assert len(found) == 2 * len(RULES) - 1
    for rule in ("task_arithmetic", "ties_merge", "tsv_merge", "iso_merge", "compress_then_merge"):
        near, far = (
            as_peft_applies_it(item.merge(gathered), tmp_path / f"{rule}-{item.scale}")
            for item in found
            if item.rule == rule
        )
        for module, gain in near.items():
            np.testing.assert_allclose(far[module], 2 * gain, atol=1e-5, err_msg=f"{rule} {module}")


class OnlyTheState(Mean):
    def aggregate(self, state: Any, updates: Any) -> Any:
        return super().aggregate(state, updates)[0]


class Transposes(Mean):
    def aggregate(self, state: Any, updates: Any) -> Any:
        following, numbers = super().aggregate(state, updates)
        turned = {name: tensor.T for name, tensor in following.adapter.tensors.items()}
        return replace(following, adapter=replace(following.adapter, tensors=turned)), numbers


class Diverges(Mean):
    def aggregate(self, state: Any, updates: Any) -> Any:
        following, numbers = super().aggregate(state, updates)
        wild = {name: tensor * np.float32("inf") for name, tensor in following.adapter.tensors.items()}
        return replace(following, adapter=replace(following.adapter, tensors=wild)), numbers


@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply")
@pytest.mark.parametrize(
    ("aggregator", "said"),
    [
        (OnlyTheState, r"it has to return `\(state, numbers\)`, the latter by name, not something of the type Server"),
        (Transposes, "its tensors have other names or shapes than the broadcast adapter"),
        (Diverges, "\\d+ values of .* are not finite"),
    ],
)
def test_what_an_aggregator_makes_is_checked_as_in_a_round(gathered: Gathered, aggregator: Any, said: str) -> None:
    name = aggregator.__name__
    (one,) = candidates([f"{__name__}:{name}"], [1.0])
    with pytest.raises(BadAggregate, match=rf"^the aggregator {name} made an adapter that cannot be used \({said}"):
        one.merge(gathered)


@pytest.mark.parametrize("most", [8, 11])
def test_fewer_ranks_are_the_best_ones_and_the_loss_is_told(gathered: Gathered, tmp_path: Path, most: int) -> None:
    (one,) = candidates(["task_arithmetic"], [1.0])
    full = one.merge(gathered)
    cut, lost = with_ranks(full, most)
    whole, kept = as_peft_applies_it(full, tmp_path / "full"), as_peft_applies_it(cut, tmp_path / "cut")
    squares = np.zeros(2)
    for module, dense in whole.items():
        lefts, values, rights = np.linalg.svd(dense, full_matrices=False)
        np.testing.assert_allclose(kept[module], (lefts[:, :most] * values[:most]) @ rights[:most], atol=1e-6)
        squares += np.sum(values[most:] ** 2), np.sum(values**2)
    assert lost == pytest.approx(np.sqrt(squares[0] / squares[1]), rel=1e-3) and lost > 1e-3
    assert (cut.layout == gathered.initial.layout) == (most == 8)
    assert with_ranks(full, 16) == (full, 0.0)


def test_fewer_ranks_also_where_the_shared_pair_holds_nothing(gathered: Gathered) -> None:
    """FLoRA leaves everything to the frozen ranks."""
    (one,) = candidates(["flora"], [1.0])
    full = one.merge(gathered)
    cut, _ = with_ranks(full, 8)
    for module in modules(dict(cut.tensors)):
        inner = in_part(f"{module}lora_A.weight", RESIDUAL), in_part(f"{module}lora_B.weight", RESIDUAL)
        dense = np.asarray(full.tensors[inner[1]], np.float64) @ full.tensors[inner[0]]
        values = np.linalg.svd(dense, compute_uv=False)
        np.testing.assert_allclose(
            np.linalg.svd(product(cut.tensors, module), compute_uv=False)[:8], values[:8], atol=1e-6
        )


def test_each_at_home_is_what_the_run_measured_itself(gathered: Gathered, alone: Path, federation: Federation) -> None:
    measuring = Measuring(federation.engine, federation.clients, 2)
    stored = json.loads((alone / "evaluations/validation-0002.json").read_text())
    at_home = json.loads(json.dumps(measuring.at_home(gathered.sources)))
    assert at_home["worlds"] == stored["worlds"] and at_home["macro"] == stored["macro"]
    assert measuring.at_home([source for source in gathered.sources if source.client == "nobody"]) is None


class Watched:
    """An engine that remembers what it was asked to play."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.played: list[tuple[str, str]] = []
        self.loads = 0

    def play(self, adapter: Adapter, episodes: Sequence[Episode]) -> list[Trajectory]:
        self.loads += 1
        self.played += [(item.world, item.task.id) for item in episodes]
        return self.engine.play(adapter, episodes)  # type: ignore[no-any-return]

    def teach(self, lessons: Any) -> Any:
        raise AssertionError("a merge teaches nobody")


@pytest.mark.slow
def test_the_best_row_is_kept_and_no_test_task_is_played(
    gathered: Gathered, federation: Federation, tmp_path: Path, tiny_text: str
) -> None:
    engine = Watched(federation.engine)
    measuring = Measuring(engine, federation.clients, 2, tasks=3)  # type: ignore[arg-type]
    # A gain below that of a mean step gives the mean: equal adapters are played once.
    told: list[Any] = []
    rows, best, adapter = merge_all(
        candidates(["mean", "fedexp", "tsv_merge"], [0.01, 4.0]), gathered, measuring, 8, told.append
    )
    assert rows == told and len(rows) == 5 and engine.loads == 4
    assert best.worth == max(row.worth for row in rows) and {row.ranks for row in rows} == {8}
    assert [row.lost > 0 for row in rows] == [False, False, False, True, True]
    for client in federation.clients:
        for label, place in client.site.places.items():
            asked = {task for world, task in engine.played if world == label}
            assert len(asked) == 3 and asked <= {task.id for task in place.tasks("validation")}
            assert not asked & {task.id for task in place.tasks("test")}

    # What the table says of it is what a run that begins with it measures.
    write_adapter(adapter, tmp_path)
    (tmp_path / "tiny.yaml").write_text(tiny_text)
    settings = ["method=pretrained", f"start_adapter={tmp_path}", "evaluation.tasks=3", "evaluation.test_tasks=0"]
    begun = fedse.run(load_experiment(tmp_path / "tiny.yaml", settings), tmp_path / "runs")
    assert begun.adapter.digest() == adapter.digest()
    assert begun.validation["worlds"] == best.measured["worlds"]


def test_of_equal_rows_the_one_with_fewer_ranks_is_kept(gathered: Gathered) -> None:
    class Alike:
        def everywhere(self, adapter: Adapter) -> dict[str, Any]:
            return {"macro": 0.5}

    rows, best, adapter = merge_all(candidates(["tsv_merge", "mean"], [1.0]), gathered, Alike())  # type: ignore[arg-type]
    assert [row.ranks for row in rows] == [16, 8] and best is rows[1] and adapter.layout == gathered.initial.layout


def test_an_adapter_in_a_folder_is_a_source_and_further_ranks_are_refused(
    gathered: Gathered, alone: Path, tmp_path: Path
) -> None:
    (one,) = candidates(["tsv_merge"], [1.0])
    for name, adapter in (("wide", one.merge(gathered)), ("plain", gathered.sources[0].adapter)):
        (tmp_path / name).mkdir()
        write_adapter(adapter, tmp_path / name)
    found = gather([tmp_path / "plain", alone])
    assert [source.client for source in found.sources] == ["", "maze", "wordle"]
    assert found.run.path == alone and found.sources[0].adapter.digest() == read_adapter(tmp_path / "plain").digest()
    with pytest.raises(
        BadInput, match="wide has 8 ranks beside the 8 of the model's adapter: only adapters of the same shape"
    ):
        gather([alone, tmp_path / "wide"])
    with pytest.raises(BadInput, match="--rank 7: the model's adapter has 8 ranks"):
        check_rank(7, gathered.initial)
    with pytest.raises(BadInput, match=r"start_adapter: .*wide has 8 ranks beside the 8 that clients train"):
        asked = load_experiment(alone / "experiment.yaml", ["name=next", f"start_adapter={tmp_path / 'wide'}"])
        fedse.run(asked, tmp_path / "runs")


@pytest.mark.slow
def test_runs_with_different_seeds_have_no_common_beginning(alone: Path, tmp_path: Path) -> None:
    settings = ["seed=1", "rounds=1", "evaluation.test_tasks=0"]
    other = fedse.run(load_experiment(alone / "experiment.yaml", settings), tmp_path).folder
    with pytest.raises(BadInput, match="began with different adapters, as runs with different seeds do"):
        gather([alone, other])
