"""Bad sites of `benchmarks/bad_sites.py` against the checks that are on by default and against the aggregators."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.experiments.building import build_components
from fedse.experiments.options import Experiment

ROOT = Path(__file__).parents[2]
HONEST = ("east", "north", "south", "west")


@pytest.fixture(scope="module")
def bad_sites() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bad_sites", ROOT / "benchmarks/bad_sites.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def five(table_experiment: Callable[..., Experiment]) -> Callable[..., Experiment]:
    limits = dict(zip((*HONEST, "guest"), (20, 18, 15, 13, 12), strict=True))
    clients = {
        name: {"worlds": [{"name": "maze", "mode": "original", "turn_limit": limit}]} for name, limit in limits.items()
    }
    quick = {"exploration": {"tasks": 4}, "evaluation": {"tasks": 1, "test_tasks": 0}}
    return lambda **changes: table_experiment(**{"clients": clients, **quick, **changes})


def run(bad_sites: ModuleType, experiment: Experiment, attack: str, folder: Path) -> tuple[np.ndarray, list[Any]]:
    """The last adapter, and the reports."""
    made = bad_sites.federation(experiment, build_components(experiment), bad_sites.ATTACKS[attack], folder / attack)
    with made as federation:
        state = federation.server.federate(experiment.rounds, federation.initial_adapter)
        path = federation.run.path
    numbers = range(1, experiment.rounds + 1)
    reports = [json.loads((path / f"rounds/{number:04d}/report.json").read_text()) for number in numbers]
    return pack(state.adapter), reports


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("nan", "1 of its values are not finite"),
        ("wrong_shape", "it holds 2047 values, the adapter has 2048"),
        ("far_scaled", "more than checks.max_ratio = 100 times what is usual"),
    ],
)
def test_what_cannot_be_right_is_refused_by_default_and_the_others_go_on(
    bad_sites: ModuleType, five: Callable[..., Experiment], attack: str, why: str, tmp_path: Path
) -> None:
    _, reports = run(bad_sites, five(), attack, tmp_path)
    for report in reports:
        assert list(report["refused"]) == ["guest"] and why in report["refused"]["guest"]
        assert report["diagnostics"]["contributed"] == list(HONEST)


def test_a_site_that_goes_too_far_moves_the_mean_and_hardly_a_bounded_one(
    bad_sites: ModuleType, five: Callable[..., Experiment], tmp_path: Path
) -> None:
    moved = {}
    for name in ("mean", "norm_bounded"):
        honest, _ = run(bad_sites, five(aggregator=name, rounds=1), "none", tmp_path / name)
        found, (report,) = run(bad_sites, five(aggregator=name, rounds=1), "sign_flipped", tmp_path / name)
        assert "guest" not in report["refused"], "within the limits that are on by default"
        moved[name] = np.linalg.norm(found - honest) / np.linalg.norm(honest)
    assert moved["mean"] > 1 > moved["norm_bounded"] and moved["mean"] > 2 * moved["norm_bounded"]


def test_old_updates_are_what_was_learned_in_earlier_rounds(bad_sites: ModuleType) -> None:
    past = [np.full(3, number, np.float32) for number in (1, 2, 3)]
    own = bad_sites.Own(np.zeros(3, np.float32), past[-1], past)
    assert bad_sites.ATTACKS["stale"](own)[0] == 1 and bad_sites.ATTACKS["replayed"](own)[0] == 2
    assert (bad_sites.ATTACKS["sign_flipped"](own) == -30).all() and (bad_sites.ATTACKS["scaled"](own) == 30).all()
    ride = bad_sites.ATTACKS["free_rider"](own)
    assert 0 < np.abs(ride).max() < 1e-3
    assert np.linalg.norm(bad_sites.ATTACKS["noisy"](own) - past[-1]) == pytest.approx(
        10 * np.linalg.norm(past[-1]), rel=1e-3
    )


def test_no_experiment_file_can_ask_for_a_bad_site() -> None:
    """The harness is no part of the package that is installed."""
    assert not any("bad_site" in path.name or "BadSite" in path.read_text() for path in (ROOT / "src").rglob("*.py"))
