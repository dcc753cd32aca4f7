"""Noise on the mean of many sites: one site's part is bounded, the noise is the server's secret, epsilon is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from many_sites import many_sites
from scipy import stats

import fedse
from fedse.adapters.held_update import HeldUpdate
from fedse.adapters.packing import pack
from fedse.aggregators.dp_fedavg import DpFedAvg
from fedse.cli.show import show
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.privacy.accountant import epsilon
from fedse.types import Adapter, ServerState, Vector

SIZE = 400
STATE = ServerState(0, Adapter({"t": np.linspace(0, 1, SIZE, dtype=np.float32)}))
BROADCAST = pack(STATE.adapter).astype(np.float64)
MANY = {"name": "dp_fedavg", "clip": 50.0}


def sent(lengths: Any, seed: int = 0) -> list[HeldUpdate]:
    """Changes of these lengths in random directions."""
    found = []
    for number, length in enumerate(lengths):
        change = np.random.default_rng((seed, number)).standard_normal(SIZE)
        vector = (BROADCAST + length * change / np.linalg.norm(change)).astype(np.float32)
        found.append(HeldUpdate(f"site{number:03d}", STATE.adapter.layout, vector))
    return found


def change(updates: list[HeldUpdate], **options: Any) -> Any:
    following, _ = DpFedAvg(**options).aggregate(STATE, updates)
    return pack(following.adapter).astype(np.float64) - BROADCAST


def test_one_site_adds_no_more_than_its_share_of_the_clip_and_the_noise_is_as_long_as_it_says() -> None:
    updates = sent(np.linspace(0.1, 3.0, 300))
    cut = [(step := update.read() - BROADCAST) * min(1.0, 1.0 / float(np.linalg.norm(step))) for update in updates]
    quiet = change(updates, noise_multiplier=1e-9)
    np.testing.assert_allclose(quiet, np.mean(cut, axis=0), atol=1e-6)
    aggregator = DpFedAvg(noise_multiplier=1e-9)
    aggregator.sites = 300  # A number of the experiment: one site less does not make the others longer.
    without, told = aggregator.aggregate(STATE, updates[:-1])
    np.testing.assert_allclose(quiet - (pack(without.adapter) - BROADCAST), cut[-1] / 300, atol=1e-6)
    assert told["shortened"] == sum(np.linalg.norm(update.read() - BROADCAST) > 1.0 for update in updates[:-1])
    noise = (change(updates, clip=0.5, noise_multiplier=8.0) - change(updates, clip=0.5, noise_multiplier=1e-9)) * 300
    assert stats.kstest(noise / (8.0 * 0.5), "norm").pvalue > 0.001


def test_the_servers_rate_lengthens_mean_and_noise_alike_and_costs_nothing() -> None:
    updates = sent(np.linspace(0.1, 3.0, 30))
    np.testing.assert_allclose(change(updates, learning_rate=5.0), 5 * change(updates), rtol=1e-4, atol=1e-6)
    assert DpFedAvg(learning_rate=5.0).spent(7) == DpFedAvg().spent(7)


def test_sites_count_with_their_chance_whatever_they_send_and_others_leave_no_trace() -> None:
    counted = []
    for seed in range(20):
        updates = sent([1.0] * 100, seed)
        quiet = change(updates, noise_multiplier=1e-9, sampling_rate=0.3) * 30
        parts = np.stack([update.read() - BROADCAST for update in updates])
        weights = np.linalg.lstsq(parts.T, quiet, rcond=None)[0]
        assert np.all(np.minimum(np.abs(weights), np.abs(weights - 1)) < 1e-2), "each is in the sum whole or not at all"
        counted.append(int(np.rint(weights.sum())))
    assert stats.binomtest(sum(counted), 2000, 0.3).pvalue > 0.001 and len(set(counted)) > 3


def test_noise_follows_from_the_key_and_from_every_update() -> None:
    updates = sent([1.0] * 5)
    assert np.array_equal(change(updates), change(updates[::-1]))
    moved = [*updates[:-1], HeldUpdate("site004", STATE.adapter.layout, updates[-1].read() + np.float32(1e-3))]
    apart = (change(moved, clip=9.0) - change(updates, clip=9.0)) * 5 / 9.0
    assert stats.kstest(apart / np.sqrt(2), "norm").pvalue > 0.001, "the same noise twice would tell the difference"


def test_epsilon_is_the_accountants_over_all_rounds() -> None:
    aggregator = DpFedAvg(noise_multiplier=4.0, sampling_rate=0.1, delta=1e-4)
    _, told = aggregator.aggregate(ServerState(2, STATE.adapter), sent([1.0] * 3))
    assert told["epsilon"] == epsilon(4.0, 0.1, 3, 1e-4) < DpFedAvg(noise_multiplier=4.0, delta=1e-4).spent(3)


def sites(make: Callable[..., Experiment], number: int, **changes: Any) -> Experiment:
    return many_sites(make, number, **{"rounds": 1, "checks": {"max_ratio": None}, **changes})


@pytest.mark.slow
def test_a_hundred_sites_learn_under_noise(
    table_experiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without cuts what comes out of a run is the plain mean of what sites sent, and noise of the stated size."""
    received: list[Vector] = []

    def seen(self: DpFedAvg, state: ServerState, updates: Any) -> Any:
        received.extend(update.read().astype(np.float64) for update in updates)
        return combine(self, state, updates)

    combine = DpFedAvg.combine
    monkeypatch.setattr(DpFedAvg, "combine", seen)
    experiment = sites(table_experiment, 100, aggregator={**MANY, "noise_multiplier": 0.5})
    result = fedse.run(experiment, tmp_path)
    assert len(received) == 100 and max(map(np.linalg.norm, received)) < 50.0
    mean = np.mean(received, axis=0)
    assert stats.kstest((pack(result.adapter) - mean) / (0.5 * 50.0 / 100), "norm").pvalue > 0.001
    report = json.loads((result.folder / "rounds/0001/report.json").read_text())
    assert report["diagnostics"]["epsilon"] == pytest.approx(epsilon(0.5, 1.0, 1, 1e-5))


def test_a_run_resumes_to_the_same_bits_and_no_other_run_has_its_noise(
    table_experiment: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = sites(table_experiment, 4, aggregator={**MANY, "simulation": True}, rounds=2)
    first = fedse.run(experiment.model_copy(update={"rounds": 1}), tmp_path / "runs")
    assert (first.folder / "noise.key").stat().st_mode & 0o077 == 0
    shutil.copytree(tmp_path / "runs", tmp_path / "again")
    whole, again = (fedse.run(experiment, tmp_path / name) for name in ("runs", "again"))
    assert whole.adapter.digest() == again.adapter.digest()
    show(whole.folder)
    assert f"Epsilon {epsilon(1.0, 1.0, 2, 1e-5):.2f} after round 2" in capsys.readouterr().out
    other = fedse.run(experiment.model_copy(update={"rounds": 1}), tmp_path / "other")
    assert other.adapter.digest() != first.adapter.digest(), "the seed is everybody's"
    (again.folder / "noise.key").unlink()
    with pytest.raises(BadInput, match=r"noise\.key is missing or damaged"):
        fedse.run(experiment.model_copy(update={"rounds": 3}), tmp_path / "again")


def test_too_few_sites_are_refused_with_the_numbers_before_anything_is_written(
    table_experiment: Any, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as refused:
        fedse.run(sites(table_experiment, 5, aggregator={"name": "dp_fedavg", "clip": 2.0}), tmp_path)
    for told in (
        "5 sites that count in a round, a clip of 2",
        "noise of 0.4 on each of 256 values",
        "a length of 6.4; ",
        "2 at most, and of about 0.894 where sites do not agree: have 16 sites or more",
        "`aggregator.simulation: true`",
    ):
        assert told in str(refused.value)
    assert not (tmp_path / "table").exists()
    assert DpFedAvg(clip=2.0).drowned(16, 256) == "" != DpFedAvg(clip=2.0).drowned(15, 256)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"checks": {}}, "a site must not decide whether another counts"),
        ({"checks": {"max_ratio": None, "governance": {}}}, "leave `checks.governance` out"),
        ({"promotion": {"drop": 0.1}, "evaluation": {"tasks": 1}}, "chooses among them by scores without noise"),
        ({"sending": {"secure_sum": {}}}, "looks at single updates"),
        ({"mix": "defer_to_best"}, "`mix: defer_to_best`, the curriculum or a probe sends sites what others told"),
        (
            {"aggregator": {**MANY, "epsilon": 1}, "rounds": 2},
            r"2 rounds spend epsilon = 6\.\d\d, and 1 may be spent: raise `noise_multiplier` to \d",
        ),
    ],
)
def test_what_epsilon_would_not_cover_is_refused(changes: Any, sentence: str, table_experiment: Any) -> None:
    with pytest.raises(BadInput, match=sentence):
        sites(table_experiment, 20, **{"aggregator": MANY, **changes})
