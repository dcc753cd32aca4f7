"""Invariant 4: local engine = Flower engine, same adapters for the same seed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import fedse
from fedse.experience.buffer import read_file
from fedse.experiments.options import Experiment
from short_maze import SHORT_MAZE

pytest.importorskip("flwr")
pytestmark = pytest.mark.usefixtures("ray_is_not_nice")


THIRD = "{worlds: [{name: maze, rules: brief, observation_length: brief, turn_limit: 5}]}"


def attempts(buffer: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(buffer)) as file:
        return file.execute("SELECT * FROM attempts").fetchall()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cpus", "settings"),
    [
        pytest.param(1, [], id="plain", marks=pytest.mark.torture),
        pytest.param(1, ["sending.secure_sum.min_sites=2"], id="secure sum", marks=pytest.mark.torture),
        pytest.param(
            1, ["sending.secure_sum.min_sites=2", "aggregator=fedexp"], id="sum with squares", marks=pytest.mark.torture
        ),
        pytest.param(
            1,
            ["sending.secure_sum.min_sites=3", "mix=fedalt", f"clients.third={THIRD}"],
            id="sum without one's own",
            marks=pytest.mark.torture,
        ),
        # On two cores both clients are in one worker process: each process imports a language model.
        pytest.param(
            2,
            [
                "aggregator=fedex_lora",
                "mix.name=personal",
                "mix.rank=2",
                "sending.precision=int8",
                "curriculum=federated_sec",
                "evaluation.after_learning=2",
            ],
            id="with all that crosses",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_simulation_reaches_the_adapter_of_the_local_engine_with_a_language_model(
    tiny_file: Path, tmp_path: Path, cpus: int, settings: list[str]
) -> None:
    here = fedse.run(fedse.load_experiment(tiny_file, settings), tmp_path / "here")
    flower = ["engine.name=flower", f"engine.cpus_per_client={cpus}"]
    there = fedse.run(fedse.load_experiment(tiny_file, [*settings, *flower]), tmp_path / "there")
    assert there.adapter.digest() == here.adapter.digest()
    assert there.test["worlds"] == here.test["worlds"]
    for client in ("maze", "wordle"):
        buffer = f"clients/{client}/buffer.sqlite"
        assert read_file(there.folder / buffer) == read_file(here.folder / buffer)
        assert attempts(there.folder / buffer) == attempts(here.folder / buffer) != []
    for report in sorted(path.relative_to(here.folder) for path in here.folder.glob("rounds/*/report.json")):
        one, two = (json.loads((run.folder / report).read_text())["clients"] for run in (here, there))
        assert one == two
        probed = "evaluation.after_learning=2" in settings
        assert all(bool(client.get("probes")) == probed for client in one.values())


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_sampling_and_rounding_lead_to_the_same_adapter_too_and_failing_clients_to_their_class(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    worlds = [SHORT_MAZE]
    clients = {f"c{number:02d}": {"worlds": worlds} for number in range(12)}
    changes = {
        "clients": clients,
        "participation": {"fraction": 0.25},
        "sending": {"precision": "int8"},
        "rounds": 3,
        "evaluation": {"tasks": 1, "test_tasks": 0},
    }
    here = fedse.run(table_experiment(**changes), tmp_path / "here")
    there = fedse.run(table_experiment(**changes, engine="flower"), tmp_path / "there")
    assert there.adapter.digest() == here.adapter.digest()
    for number in (1, 2, 3):
        reports = [json.loads((run.folder / f"rounds/{number:04d}/report.json").read_text()) for run in (here, there)]
        assert reports[0]["clients"] == reports[1]["clients"] and len(reports[0]["clients"]) == 3
    capped = table_experiment(**{**changes, "name": "capped", "sending": {"max_megabytes": 1e-6}}, engine="flower")
    with pytest.raises(fedse.errors.TooFewClients, match=r"0 of 3 clients answered train-0001 \(c\d\d: TooMuchLeaves;"):
        fedse.run(capped, tmp_path / "there")


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_a_pooled_client_and_one_that_only_measures_reach_the_same_adapter_too(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    maze = SHORT_MAZE
    clients = {"east": {"worlds": [maze]}, "guest": {"worlds": [maze], "learns": False}, "west": {"worlds": [maze]}}
    here = fedse.run(table_experiment(method="centralized_se", clients=clients), tmp_path / "here")
    there = fedse.run(table_experiment(method="centralized_se", clients=clients, engine="flower"), tmp_path / "there")
    assert there.adapter.digest() == here.adapter.digest() and there.test["worlds"] == here.test["worlds"]
    assert {path.name for path in (there.folder / "clients").iterdir()} == {"guest", "pooled"}


def test_flower_tells_nobody_by_the_time_it_is_imported() -> None:
    program = """
from fedse.engines.flower.settings import prepare
prepare("this test")
from flwr.supercore import telemetry
from flwr.supercore.update_check import FLWR_DISABLE_UPDATE_CHECK
import os
assert telemetry.FLWR_TELEMETRY_ENABLED == "0"
assert os.environ[FLWR_DISABLE_UPDATE_CHECK] == "1" and os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.slow
def test_without_flower_the_extra_is_named(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["flwr"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "flwr" else found(name, *rest)
sys.argv = ["fedse", "run", {str(tmp_path / "e.yaml")!r}]
from fedse.cli import main
main()
"""
    (tmp_path / "e.yaml").write_text(table_experiment(engine="flower").to_yaml())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2
    assert (
        "engine: flower needs the library flwr, which is not installed: run `pip install -e '.[flower]'` in the clone"
        in done.stderr
    )
