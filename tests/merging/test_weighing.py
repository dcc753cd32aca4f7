"""Two weights for each site: the adapter against products written out, the choice, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedse
from factored_table import FactoredTable, table
from fedse.adapters.files import read_adapter
from fedse.adapters.first import further_ranks, rank_of
from fedse.cli import app
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.merging.weighing import OWN, SHARED, Weighed, Weights, combined, grid
from fedse.types import Adapter

Make = Callable[..., Experiment]


def drawn(seed: int) -> Adapter:
    start, random = FactoredTable().initial_adapter(0), np.random.default_rng(seed)
    return Adapter(
        {name: random.standard_normal(tensor.shape).astype(np.float32) for name, tensor in start.tensors.items()},
        start.config,
    )


def called(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["weigh", *map(str, arguments)], env={"COLUMNS": "200"})
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize("weights", [(1, 0), (0, 1), (0.5, 0), (0, 2), (0.25, 0.75), (1, 1)])
def test_the_product_is_the_weighed_sum_of_both_products(weights: tuple[float, float]) -> None:
    own, shared = drawn(1), drawn(2)
    found = combined(own, shared, Weights(*weights))
    np.testing.assert_allclose(table(found), weights[0] * table(own) + weights[1] * table(shared), atol=1e-5)
    assert further_ranks(found) == (rank_of(own) if all(weights) else 0)


def test_each_adapter_by_itself_is_what_it_was_bit_for_bit() -> None:
    assert combined(drawn(1), drawn(2), OWN).digest() == drawn(1).digest()
    assert combined(drawn(1), drawn(2), SHARED).digest() == drawn(2).digest()


def test_tensors_that_are_no_factors_are_weighed_too() -> None:
    one, two = (Adapter({"scores": np.full(3, value, dtype=np.float32)}) for value in (2.0, 10.0))
    assert combined(one, two, Weights(0.5, 0.25)).tensors["scores"].tolist() == [3.5, 3.5, 3.5]


def test_the_grid_has_both_alone_and_never_nothing() -> None:
    assert set(grid([0.5])) == {OWN, SHARED, (0.5, 0.5)}
    assert len(grid([0.0, 0.5, 1.0])) == 8 and (0.0, 0.0) not in grid([0.0, 0.5, 1.0])


def test_of_equals_the_smaller_weights_win_and_then_more_of_the_own() -> None:
    def worth(own: float, shared: float, macro: float | None) -> Any:
        return Weighed(Weights(own, shared), 8, 0.0, {"macro": macro}).worth

    assert worth(1, 1, 0.5) > worth(1, 0, 0.4)
    assert worth(0.5, 0, 0.5) > worth(1, 0, 0.5) > worth(0, 1, 0.5) > worth(1, 1, 0.5)
    assert worth(0, 1, 0.0) > worth(1, 0, None)


@pytest.mark.slow
def test_every_site_gets_the_best_of_its_grid(factored: Make, tmp_path: Path) -> None:
    evaluation = {"tasks": 8, "test_tasks": 4}
    alone = fedse.run(factored(name="alone", method="local_se", evaluation=evaluation), tmp_path).folder
    together = fedse.run(factored(name="together", evaluation=evaluation), tmp_path)
    target, file = tmp_path / "weighed", tmp_path / "weighed.json"
    code, told = called(alone, together.folder, "-o", target, "--weights", "0,0.5,1", "--test", "--json", file)
    assert code == 0, told
    found = json.loads(file.read_text())["clients"]
    assert sorted(found) == ["east", "west"] and "weight of own" in told
    for client, entry in found.items():
        assert len(entry["grid"]) == 8
        best = entry["best"]
        assert best["macro"] == max(row["macro"] for row in entry["grid"])
        own = read_adapter(alone / f"clients/{client}/adapters/0003")
        wanted = best["own"] * table(own) + best["shared"] * table(together.adapter)
        np.testing.assert_allclose(table(read_adapter(target / client)), wanted, atol=1e-5)
        by_weights = {(row["own"], row["shared"]): row for row in entry["grid"]}
        with open_run(alone) as federation:
            at_home = federation.server.evaluate(3, "validation")["worlds"]
        assert by_weights[1.0, 0.0]["macro"] == next(row["success"] for row in at_home if row["client"] == client)
        shares = [row["success"] for row in together.validation["worlds"] if row["client"] == client]
        assert by_weights[0.0, 1.0]["macro"] == shares[0]
        assert [entry["test"][kind]["episodes"] for kind in ("own", "shared", "weighed")] == [4, 4, 4]
    code, told = called(alone, together.folder, "-o", tmp_path / "small", "--weights", "0.5", "--rank", "3")
    assert code == 0, told
    assert all(further_ranks(read_adapter(tmp_path / "small" / client)) == 0 for client in found)


@pytest.mark.slow
def test_what_cannot_be_weighed_is_refused_and_nothing_is_written(factored: Make, tmp_path: Path) -> None:
    alone = fedse.run(factored(name="alone", method="local_se", rounds=1), tmp_path).folder
    together = fedse.run(factored(name="together", rounds=1), tmp_path).folder
    adapter = together / "rounds/0001/adapter"
    more = fedse.run(factored(name="more", method="local_se", rounds=1, start={"tasks": 4}), tmp_path).folder
    for arguments, sentence in [
        ((alone, more), "weighing needs a finished run with `sharing: none`"),
        ((together, adapter), "weighing needs a finished run with `sharing: none`"),
        ((adapter, alone), "is no run: name the run whose clients have adapters of their own first"),
        ((alone, together, "--weights", "1,-1"), "--weights 1,-1: give numbers from 0 on"),
        ((alone, together, "--weights", "0"), "--weights 0: give numbers from 0 on"),
        ((alone, together, "--rank", "1"), "--rank 1: the model's adapter has 3 ranks"),
        ((alone, together, "--test"), "asks for no test"),
        ((alone, together, "--json", together / "manifest.json"), "exists already"),
        ((alone, together, "--json", tmp_path / "weighed"), "takes this name: choose another one"),
    ]:
        code, told = called(*arguments, "-o", tmp_path / "weighed")
        assert code == 2 and sentence in told, told
    assert not (tmp_path / "weighed").exists()
