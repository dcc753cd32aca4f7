"""Noise on a secure sum that no single site or hub could take off again: each site adds its part and cuts its change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from many_sites import many_sites
from scipy import stats

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import fedse
from fedse.adapters.packing import pack
from fedse.aggregators.dp_sum import DpSum
from fedse.errors import BadInput, SumRefused
from fedse.privacy.accountant import epsilon
from fedse.privacy.door import Door, SendingOptions
from fedse.privacy.fixed_point import FixedPoint
from fedse.privacy.names import Names
from fedse.privacy.noise import NoiseKey
from fedse.privacy.noise_share import NoiseShare
from fedse.privacy.secure_sum import SecureSumOptions, SumMember
from fedse.types import ClientUpdate, RoundTask, Vector

SIZE = 4000
NAMES = tuple(f"site{number}" for number in range(5))
LAYOUT = (("a", (SIZE,)),)
BROADCAST = np.linspace(-1, 1, SIZE, dtype=np.float32)
TASK = RoundTask(1, "train", BROADCAST, LAYOUT, {}, participants=NAMES)
SUMMING = {"sending": {"secure_sum": {}}}


def share(**options: Any) -> NoiseShare:
    return DpSum(**options).share(NoiseKey.passing())


def update(seed: int, length: float) -> Vector:
    change = np.random.default_rng(seed).standard_normal(SIZE)
    return (BROADCAST + length * change / np.linalg.norm(change)).astype(np.float32)


def normal(values: Any, spread: float) -> bool:
    """Once in hundreds of thousands of times it is not, by chance: the noise has no seed."""
    as_long = abs(float(np.std(values)) / spread - 1) < 5 / np.sqrt(2 * values.size)
    return bool(as_long and stats.kstest(values / spread, "norm").pvalue > 1e-6)


def doors(folder: Path, **options: Any) -> dict[str, Door]:
    keys = {name: X25519PrivateKey.generate() for name in NAMES}
    summing = SecureSumOptions()
    return {
        name: Door(
            folder / name / "ledger.jsonl",
            SendingOptions(secure_sum=summing),
            Names(worlds={}),
            SumMember(
                name,
                "run",
                summing,
                keys[name],
                {other: key.public_key() for other, key in keys.items() if other != name},
                folder / name / "answered.safetensors",
            ),
            share=share(**options),
        )
        for name in NAMES
    }


def opened(released: list[ClientUpdate]) -> tuple[int, Any]:
    """How many counted, and the change that their sum holds."""
    arrays = [one.encoded.array for one in released if one.encoded is not None]
    total = sum(arrays[1:], arrays[0].copy())
    form = FixedPoint(32, 8.0, len(NAMES))
    return form.added(total), (form.mean(total, BROADCAST).astype(np.float64) - BROADCAST) * len(NAMES)


def released(doors: dict[str, Door], vectors: list[Vector | None]) -> list[ClientUpdate]:
    return [
        door.release(ClientUpdate(name, 1, vector, LAYOUT, {}, {}), BROADCAST, TASK)
        for (name, door), vector in zip(doors.items(), vectors, strict=True)
    ]


def test_the_sum_holds_the_cut_changes_and_noise_of_which_one_site_less_is_still_enough(tmp_path: Path) -> None:
    lengths = (0.1, 0.5, 3.0, 40.0, None)
    vectors = [None if length is None else update(seed, length) for seed, length in enumerate(lengths)]
    counted, total = opened(released(doors(tmp_path, clip=0.5, noise_multiplier=2.0), vectors))
    assert counted == 5, "nobody can tell from the sum that one learned nothing"
    changes = [vector - BROADCAST.astype(np.float64) for vector in vectors if vector is not None]
    cut = sum(change * min(1.0, 0.5 / float(np.linalg.norm(change))) for change in changes)
    assert normal(total - cut, 2.0 * 0.5 * np.sqrt(5 / 4)), "five parts, of which any four are all of it"
    assert not normal(total - cut, 2.0 * 0.5)


def test_cuts_alone_are_exact(tmp_path: Path) -> None:
    vectors: list[Vector | None] = [update(seed, 0.2 * (seed + 1)) for seed in range(5)]
    _, total = opened(released(doors(tmp_path, clip=0.5, noise_multiplier=1e-9), vectors))
    changes = [vector - BROADCAST.astype(np.float64) for vector in vectors if vector is not None]
    cut = sum(change * min(1.0, 0.5 / float(np.linalg.norm(change))) for change in changes)
    np.testing.assert_allclose(total, cut, atol=1e-6)


def test_what_is_told_beside_the_sum_does_not_know_the_change_without_noise(tmp_path: Path) -> None:
    """Rounding as a share of a change would tell how long it is, also of one with a part of the noise on it."""
    told = released(doors(tmp_path, clip=1.0), [update(0, 1.0)] * 5)
    assert all(not one.metrics and one.vector is None for one in told)


def test_no_broadcast_rounds_the_noise_away(tmp_path: Path) -> None:
    """The hub chooses it, and a site takes values up to a million: in float32 a step there is a sixteenth."""
    broadcast = np.full(SIZE, 999_424, dtype=np.float32)
    task = RoundTask(1, "train", broadcast, LAYOUT, {}, participants=NAMES)
    made = [
        door.release(ClientUpdate(name, 1, None, LAYOUT, {}, {}), broadcast, task)
        for name, door in doors(tmp_path, clip=0.01).items()
    ]
    arrays = [one.encoded.array for one in made if one.encoded is not None]
    total = sum(arrays[1:], arrays[0].copy())[:-1].view(np.int32) / FixedPoint(32, 8.0, len(NAMES)).scale
    assert normal(total, 0.01 * np.sqrt(5 / 4))


@pytest.mark.parametrize("colluding", [0, 1, 3])
def test_noise_of_those_who_do_not_collude_is_as_long_as_it_says(colluding: int) -> None:
    honest = len(NAMES) - colluding
    total = sum(share(colluding=colluding).hidden(None, BROADCAST, TASK) - BROADCAST for _ in range(honest))
    # Rounded to float32, which is nothing beside it.
    assert normal(np.asarray(total, dtype=np.float64), 1.0)


def test_noise_is_the_same_for_the_same_and_other_for_anything_else() -> None:
    own, vector = share(clip=9.0), update(0, 1.0)
    first = own.hidden(vector, BROADCAST, TASK)
    assert np.array_equal(first, own.hidden(vector, BROADCAST, TASK))
    moved = own.hidden(update(0, 1.001), BROADCAST, TASK).astype(np.float64) - first
    assert normal(moved, np.sqrt(2) * own.spread(5)), "the same noise twice would tell the difference"
    later = RoundTask(2, "train", BROADCAST, LAYOUT, {}, participants=NAMES)
    assert normal(own.hidden(vector, BROADCAST, later).astype(np.float64) - first, np.sqrt(2) * own.spread(5))
    broken = vector.copy()
    broken[7] = np.nan
    assert np.isfinite(own.hidden(broken, BROADCAST, TASK)).all()


def test_a_site_refuses_sums_that_would_tell_more_than_was_agreed() -> None:
    budget = epsilon(2.0, 1.0, 3, 1e-5) + 0.01
    own = share(noise_multiplier=2.0, epsilon=budget)
    own.check(RoundTask(3, "train", BROADCAST, LAYOUT, {}, participants=NAMES))
    with pytest.raises(SumRefused, match=r"more than aggregator\.epsilon would be told"):
        own.check(RoundTask(4, "train", BROADCAST, LAYOUT, {}, participants=NAMES))
    with pytest.raises(SumRefused, match="nobody's noise would be left"):
        share(colluding=5).check(TASK)


def sites(make: Any, number: int, **changes: Any) -> Any:
    noisy = {"name": "dp_sum", "clip": 0.5, "simulation": True}
    return many_sites(make, number, **{"rounds": 2, "aggregator": noisy, **SUMMING, **changes})


@pytest.mark.slow
def test_a_run_tells_epsilon_has_no_key_at_the_server_and_resumes_to_the_same_bits(
    table_experiment: Any, tmp_path: Path
) -> None:
    experiment = sites(table_experiment, 4)
    first = fedse.run(experiment.model_copy(update={"rounds": 1}), tmp_path / "runs")
    shutil.copytree(tmp_path / "runs", tmp_path / "again")
    whole, again = (fedse.run(experiment, tmp_path / name) for name in ("runs", "again"))
    assert whole.adapter.digest() == again.adapter.digest()
    assert not (whole.folder / "noise.key").exists()
    keys = sorted(whole.folder.glob("clients/*/noise.key"))
    assert len({key.read_bytes() for key in keys}) == 4 and not any(key.stat().st_mode & 0o077 for key in keys)
    report = json.loads((whole.folder / "rounds/0002/report.json").read_text())
    assert report["diagnostics"]["epsilon"] == pytest.approx(epsilon(1.0, 1.0, 2, 1e-5))
    assert report["diagnostics"]["secure_sum"]["added"] == 4
    other = fedse.run(experiment.model_copy(update={"rounds": 1}), tmp_path / "other")
    assert other.adapter.digest() != first.adapter.digest(), "the seed is everybody's"


@pytest.mark.slow
def test_twelve_sites_learn_what_they_would_without_noise_and_noise_of_the_stated_size(
    table_experiment: Any, tmp_path: Path
) -> None:
    noisy = {"name": "dp_sum", "clip": 50.0, "noise_multiplier": 0.2, "colluding": 2, "simulation": True}
    wide = {"sending": {"secure_sum": {"largest": 500.0, "bits": 64}}}
    plain = fedse.run(
        sites(table_experiment, 12, rounds=1, aggregator="mean", checks={"max_ratio": None}), tmp_path / "plain"
    )
    result = fedse.run(sites(table_experiment, 12, rounds=1, aggregator=noisy, **wide), tmp_path / "noisy")
    noise = pack(result.adapter).astype(np.float64) - pack(plain.adapter)
    assert normal(noise, 0.2 * 50.0 * np.sqrt(12 / 10) / 12)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sending": {}}, r"hides its update in a sum alone: add `sending: \{secure_sum: \{\}\}`"),
        ({"aggregator": {"name": "dp_sum", "colluding": 3}}, "have more in a sum, or allow fewer"),
        ({"aggregator": {"name": "dp_sum", "clip": 5.0}}, "a value may change by 36.8, its noise included"),
        ({"evaluation": {"tasks": 1, "after_learning": 1}}, "they tell what a single site learned"),
        ({"probes": [{"name": "drift", "learned": True}]}, "they tell what a single site learned"),
        ({"promotion": {"drop": 0.1}, "evaluation": {"tasks": 1}}, "chooses among them by scores without noise"),
        ({"aggregator": {"name": "dp_sum", "clip": 0.5, "epsilon": 1}}, "2 rounds spend epsilon = "),
    ],
)
def test_what_epsilon_would_not_cover_is_refused(changes: Any, sentence: str, table_experiment: Any) -> None:
    with pytest.raises(BadInput, match=sentence):
        sites(table_experiment, 20, **changes)


def test_too_few_sites_are_refused_with_the_numbers(table_experiment: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="have 17 sites or more"):
        fedse.run(sites(table_experiment, 5, aggregator={"name": "dp_sum", "clip": 0.5}), tmp_path)
    assert DpSum().drowned(17, 256) == "" != DpSum().drowned(16, 256)
