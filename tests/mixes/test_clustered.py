"""Clients that find those of their own kind: distances and groups by hand, and whole rounds on a table in two factors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import fedse
from fedse.adapters.files import read_adapter
from fedse.aggregators.subspaces import subspace_distances
from fedse.cli import app
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.mixes.clustered import Clustered
from fedse.mixes.clusters import clusters, silhouette
from fedse.types import Adapter, Sent
from short_maze import SHORT_MAZE

MAZES = [SHORT_MAZE, {**SHORT_MAZE, "turn_limit": 12}]
FOUR = {name: {"worlds": [MAZES[number % 2]]} for number, name in enumerate(("east", "north", "south", "west"))}


def ups(kinds: list[int], modules: int = 3, strength: float = 1.0, outputs: int = 40) -> list[list[Any]]:
    """B of each client: directions of its kind, and noise of its own."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(modules):
        common = {kind: random.standard_normal((outputs, 4)) for kind in sorted(set(kinds))}
        turn = [random.standard_normal((4, 4)) for _ in kinds]
        found.append(
            [strength * common[k] @ t + random.standard_normal((outputs, 4)) for k, t in zip(kinds, turn, strict=True)]
        )
    return found


def test_the_distance_is_that_of_the_projectors() -> None:
    modules = ups([0, 1, 0])
    found = subspace_distances(modules)
    wanted = np.zeros((3, 3))
    for module in modules:
        projectors = [up @ np.linalg.pinv(up) for up in module]
        wanted += [[np.sum((p - q) ** 2) / (2 * 4) for q in projectors] for p in projectors]
    np.testing.assert_allclose(found, wanted / 3, atol=1e-12)
    assert subspace_distances([]) is None


def test_turning_the_factors_changes_no_distance_and_who_writes_nothing_is_far_from_who_does() -> None:
    first, second = np.eye(6)[:, :2], np.eye(6)[:, 1:3]
    turned = first @ np.array([[3.0, 1.0], [-2.0, 5.0]])
    found = subspace_distances([[first, turned, second, np.zeros((6, 2)), np.zeros((6, 2))]])
    wanted = [[0, 0, 0.5, 1, 1], [0, 0, 0.5, 1, 1], [0.5, 0.5, 0, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("kinds", [[0, 0, 1, 1], [0, 1, 0, 1, 2, 2], [0, 0, 0, 1, 1, 2], [3, 1, 1, 1, 1]])
def test_clients_of_one_kind_are_found(kinds: list[int]) -> None:
    distances = subspace_distances(ups(kinds))
    assert distances is not None
    wanted = sorted([number for number, kind in enumerate(kinds) if kind == one] for one in set(kinds))
    assert clusters(distances, min_silhouette=0.01) == wanted


def test_where_nobody_is_closer_than_the_others_there_is_one_group() -> None:
    unrelated = subspace_distances(ups([0, 1, 2, 3, 4], 20, outputs=200))
    alike = subspace_distances(ups([0] * 5, 20, 4.0, outputs=200))
    assert unrelated is not None and alike is not None
    for distances in (unrelated, np.ones((5, 5)) - np.eye(5), np.zeros((5, 5))):
        assert clusters(distances, min_silhouette=0.01) == [[0, 1, 2, 3, 4]]
    assert alike.max() < 0.8 * unrelated[0, 1] and clusters(alike, min_silhouette=0.05) == [[0, 1, 2, 3, 4]]
    for few in (1, 2):
        assert clusters(np.ones((few, few)) - np.eye(few), min_silhouette=0.0) == [list(range(few))]


def test_the_silhouette_by_hand() -> None:
    distances = np.array([[0, 2, 6, 8], [2, 0, 4, 8], [6, 4, 0, 8], [8, 8, 8, 0]], dtype=float)
    assert silhouette(distances, [[0, 1], [2], [3]]) == pytest.approx(((6 - 2) / 6 + (4 - 2) / 4) / 4)
    three = (4 / 8 + 5 / 8 + 3 / 8) / 4
    assert silhouette(distances, [[0, 1, 2], [3]]) == pytest.approx(three)
    assert clusters(distances, three) == [[0, 1, 2], [3]] and clusters(distances, three + 0.01) == [[0, 1, 2, 3]]


A, B = "m.lora_A.weight", "m.lora_B.weight"


def test_a_client_begins_with_the_mean_of_its_own_group() -> None:
    (module,) = ups([0, 1, 0, 1], 1, 5.0)
    random = np.random.default_rng(1)
    library = {
        name: {A: random.standard_normal((4, 7)).astype(np.float32), B: up.astype(np.float32)}
        for name, up in zip(("a", "b", "c", "d"), module, strict=True)
    }
    sent = Sent(Adapter({A: np.zeros((4, 7), np.float32), B: np.zeros((40, 4), np.float32)}), 3, (), library)
    for client, others in (("a", "c"), ("c", "a"), ("b", "d")):
        mix = Clustered(client, 0)
        assert mix.members(sent) == sorted((client, others))
        for name in (A, B):
            wanted = (library[client][name].astype(float) + library[others][name]) / 2
            np.testing.assert_allclose(mix.compose(sent, {}).tensors[name], wanted, atol=1e-6)
    for client, given in (("new", library), ("a", {}), ("a", {"a": library["a"]})):
        assert Clustered(client, 0).compose(sent._replace(library=given), {}).digest() == sent.adapter.digest()
    assert Clustered("a", 0, min_silhouette=1.0).compose(sent, {}).digest() == sent.adapter.digest()


@pytest.mark.slow
def test_a_stopped_run_goes_on_as_if_it_had_not_been(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    setting = {"mix": {"name": "clustered", "min_silhouette": 0.0}, "clients": FOUR}
    straight = fedse.run(factored(**setting), tmp_path / "straight")
    fedse.run(factored(**setting, rounds=1), tmp_path / "stopped")
    resumed = fedse.run(factored(**setting), tmp_path / "stopped")
    plain = fedse.run(factored(clients=FOUR), tmp_path / "plain")
    assert resumed.adapter.digest() == straight.adapter.digest() != plain.adapter.digest()
    assert resumed.validation["worlds"] == straight.validation["worlds"]
    memory = "rounds/0003/server/memory.safetensors"
    assert (resumed.folder / memory).read_bytes() == (straight.folder / memory).read_bytes()
    assert not (plain.folder / memory).exists()
    for number in (0, 1, 2):
        then = json.loads((straight.folder / f"rounds/{number + 1:04d}/report.json").read_text())["evaluation"]
        with open_run(straight.folder) as federation:
            now = federation.server.evaluate(number, "validation")
        assert [row["successes"] for row in now["worlds"]] == [row["successes"] for row in then["worlds"]]


def test_a_client_exports_the_mean_of_its_group(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(factored(mix={"name": "clustered", "min_silhouette": 0.0}, clients=FOUR, rounds=2), tmp_path)
    done = CliRunner().invoke(app, ["export", str(result.folder), str(tmp_path / "east"), "--client", "east"])
    assert done.exit_code == 0, done.output
    held = load_file(result.folder / "rounds/0002/server/memory.safetensors")
    layout = result.adapter.layout
    up = {name: vector[-np.prod(layout[1][1]) :].reshape(layout[1][1]) for name, vector in held.items()}
    distances = subspace_distances([[up[name].astype(float) for name in sorted(up)]])
    assert distances is not None
    (own,) = [group for group in clusters(distances, 0.0) if 0 in group]
    names = sorted(up)
    wanted = np.mean([up[names[number]] for number in own], axis=0)
    assert 1 < len(own) < 4
    np.testing.assert_allclose(read_adapter(tmp_path / "east").tensors[layout[1][0]], wanted, atol=1e-6)
    done = CliRunner().invoke(app, ["transfer", str(result.folder)])
    assert done.exit_code == 2 and "transfer needs `mix: broadcast`" in " ".join(done.output.split())
