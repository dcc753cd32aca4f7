"""A secure sum is the sum, a part of it is noise, and a site takes part once in a round and with sites that it knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedse.errors import BadInput, OutOfRange, RunConflict, SumRefused
from fedse.privacy import masks
from fedse.privacy.fixed_point import FixedPoint
from fedse.privacy.secure_sum import SecureSumOptions, SumMember, asked_for
from fedse.privacy.sum_keys import make_key, public_text, read_key, read_public
from fedse.types import RoundTask, Vector

NAMES = ("east", "north", "west")
SIZE = 1000
LAYOUT = (("a", (SIZE,)),)
BROADCAST = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)


def task(**changes: Any) -> RoundTask:
    return replace(RoundTask(1, "train", BROADCAST, LAYOUT, {}, participants=NAMES), **changes)


def members(folder: Path, names: tuple[str, ...] = NAMES, **options: Any) -> dict[str, SumMember]:
    """Sites with keys on disk, each of which has got the public keys of the others."""
    for name in names:
        make_key(folder / name / "sum.key")
    keys = {name: read_key(folder / name / "sum.key") for name in names}
    told = {name: public_text(key) for name, key in keys.items()}
    return {
        name: SumMember(
            name,
            "run",
            SecureSumOptions(**options),
            keys[name],
            {other: read_public(text, other) for other, text in told.items() if other != name},
            folder / name / "answered.safetensors",
        )
        for name in names
    }


def update(seed: int, spread: float = 0.01) -> Vector:
    change = spread * np.random.default_rng(seed).normal(size=SIZE)
    return (BROADCAST + change).astype(np.float32)


@pytest.mark.parametrize(("bits", "dtype"), [(32, np.uint32), (64, np.uint64)])
def test_the_sum_of_all_is_the_mean_and_rounds_no_further_than_it_says(bits: Any, dtype: Any, tmp_path: Path) -> None:
    sites = members(tmp_path, bits=bits)
    updates = {name: update(seed) for seed, name in enumerate(sites)}
    sent = [site.masked(updates[name], BROADCAST, task()) for name, site in sites.items()]
    total = sum(sent[1:], sent[0].copy())
    assert total.dtype == dtype
    form = SecureSumOptions(bits=bits).fixed_point(len(sites))
    assert form.added(total) == 3
    exact = np.mean([vector.astype(np.float64) for vector in updates.values()], axis=0)
    # Half a step of the fixed point, and half a step of the float32 that comes out.
    bound = 0.5 / form.scale + np.abs(exact) * 2**-24
    assert (np.abs(form.mean(total, BROADCAST) - exact) <= bound).all()
    assert form.scale >= (2**25 if bits == 32 else 2**57)


def test_who_learned_nothing_adds_zeros_and_does_not_count(tmp_path: Path) -> None:
    sites = members(tmp_path)
    updates = {"east": update(1), "north": None, "west": update(2)}
    sent = [site.masked(updates[name], BROADCAST, task()) for name, site in sites.items()]
    form = SecureSumOptions().fixed_point(3)
    total = sum(sent[1:], sent[0].copy())
    assert form.added(total) == 2
    exact = (update(1).astype(np.float64) + update(2)) / 2
    assert np.abs(form.mean(total, BROADCAST) - exact).max() < 1e-6


def test_a_part_of_the_sum_looks_like_chance(tmp_path: Path) -> None:
    """Bits of one site's answer, and of two sites' together, are as likely set as not and do not follow the update."""
    sites = members(tmp_path)
    vector = update(1)
    alone = sites["east"].masked(vector, BROADCAST, task())
    both = alone + sites["north"].masked(update(2), BROADCAST, task())
    clear = SecureSumOptions().fixed_point(3).summand(vector, BROADCAST)
    for seen in (alone, both):
        share = np.unpackbits(seen.view(np.uint8)).mean()
        assert abs(share - 0.5) < 0.012, "4 standard deviations of 32,032 fair coins"
        follows = np.corrcoef(seen.view(np.int32).astype(float), clear.view(np.int32).astype(float))[0, 1]
        assert abs(follows) < 0.13
        assert not (seen == clear).any()


def test_masks_cancel_in_pairs_and_are_streams_of_chacha20(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the cipher itself, in one piece; the code goes in pieces."""
    east, west = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    zeros = np.zeros(100, dtype=np.uint32)
    about = {"run": "run", "round": 1}
    added = masks.masked(zeros, "east", east, {"west": west.public_key()}, about)
    monkeypatch.setattr(masks, "PIECE", 64)
    taken = masks.masked(zeros, "west", west, {"east": east.public_key()}, about)
    assert (added + taken == 0).all() and len(set(added.tolist())) == 100
    derived: list[bytes] = []
    monkeypatch.setattr(masks, "_add_stream", lambda values, key, takes_away: derived.append(key))
    masks.masked(zeros, "east", east, {"west": west.public_key()}, about)
    stream = Cipher(ChaCha20(derived[0], bytes(16)), mode=None).encryptor().update(bytes(400))
    assert added.tobytes() == stream


@pytest.mark.parametrize(
    "other",
    [
        {"round": 2},
        {"participants": ("east", "north")},
        {"vector": np.nextafter(BROADCAST, np.float32(9))},
        {"contributed": ("east",)},
        {"shared": {"bandit": {"counts": np.ones(2, np.float32)}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_masks_belong_to_everything_that_a_task_says(other: dict[str, Any], tmp_path: Path) -> None:
    """A hub that tells one site something else gets a sum that cannot be opened."""
    sites = members(tmp_path, min_sites=2)
    sent = [
        site.masked(update(1), BROADCAST, task(**other) if name == "east" else task()) for name, site in sites.items()
    ]
    total = sum(sent[1:], sent[0].copy())
    assert SecureSumOptions().fixed_point(3).added(total) > 3


def test_runs_do_not_share_masks(tmp_path: Path) -> None:
    east = members(tmp_path)["east"]
    other = replace(east, run="another", answered=tmp_path / "another")
    sent = [site.masked(None, BROADCAST, task()) for site in (east, other)]
    assert not (sent[0] == sent[1]).any()


def test_a_round_is_answered_once_with_the_same_bytes_also_after_a_restart(tmp_path: Path) -> None:
    east = members(tmp_path)["east"]
    first = east.masked(update(1), BROADCAST, task())
    again = members(tmp_path)["east"]
    # Another update to the same task, as a GPU's other roundings might make: the masks are used once.
    assert again.masked(update(2), BROADCAST, task(seconds=3.0)).tobytes() == first.tobytes()
    for other in ({"participants": ("east", "north", "south", "west")}, {"vector": BROADCAST + 1}, {"round": 0}):
        with pytest.raises(SumRefused):
            again.masked(update(1), BROADCAST, task(**other))
    with pytest.raises(SumRefused, match=r"has answered round 1 of it, to another task"):
        again.check(task(contributed=("west",)))
    following = again.masked(update(1), BROADCAST, task(round=2))
    assert following.tobytes() != first.tobytes()
    with pytest.raises(SumRefused, match="has answered round 2 of it"):
        again.check(task())


@pytest.mark.parametrize(
    ("participants", "why"),
    [
        (("east", "north"), "a sum of 2 sites in train-0001"),
        ((), "a sum of 0 sites"),
        (("a", "b", "c"), "no sum of its own"),
        (("east", "east", "north", "west"), "no sum of its own"),
        (("west", "north", "east"), "no sum of its own"),
        (("east", "north", "west", "zoo"), "with 1 sites whose public keys this site does not have, such as 'zoo'"),
    ],
)
def test_a_site_takes_part_in_sums_of_enough_sites_that_it_knows(
    participants: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    east = members(tmp_path)["east"]
    with pytest.raises(SumRefused, match=why):
        east.check(task(participants=participants))
    assert not east.answered.exists()


def test_an_update_beyond_the_fixed_point_is_refused_and_never_wraps_around(tmp_path: Path) -> None:
    form = FixedPoint(32, 8.0, 5)
    zeros = np.zeros(SIZE, np.float32)
    furthest = np.where(np.arange(SIZE) % 2, np.float32(8), np.float32(-8))
    total = sum((form.summand(furthest, zeros) for _ in range(4)), form.summand(furthest, zeros))
    assert (form.mean(total, zeros) == furthest).all(), "five sites at the bound still fit"
    with pytest.raises(OutOfRange, match=r"changes by 8\.5, and sending.secure_sum.largest = 8"):
        form.summand(BROADCAST + np.float32(8.5), BROADCAST)
    with pytest.raises(OutOfRange):
        form.summand(np.full_like(BROADCAST, np.nan), BROADCAST)
    with pytest.raises(OutOfRange):
        members(tmp_path)["east"].masked(np.full_like(BROADCAST, np.inf), BROADCAST, task())


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("spread", [1e-6, 0.01, 1.5])
def test_squared_lengths_are_summed_beside_the_changes(bits: Any, spread: float, tmp_path: Path) -> None:
    sites = {name: replace(site, squares=True) for name, site in members(tmp_path, bits=bits).items()}
    updates = {"east": update(1, spread), "north": None, "west": update(2, spread)}
    sent = [site.masked(updates[name], BROADCAST, task()) for name, site in sites.items()]
    form = SecureSumOptions(bits=bits).fixed_point(3, squares=True)
    total = sum(sent[1:], sent[0].copy())
    assert form.added(total) == 2
    squares = [float(np.sum((update(seed, spread).astype(np.float64) - BROADCAST) ** 2)) for seed in (1, 2)]
    assert form.mean_square(total, BROADCAST) == pytest.approx(np.mean(squares), abs=0.5 / form.scale**2, rel=1e-12)
    exact = (update(1, spread).astype(np.float64) + update(2, spread)) / 2
    assert (np.abs(form.mean(total, BROADCAST) - exact) <= 0.5 / form.scale + np.abs(exact) * 2**-24).all()
    # By itself a site's square is as hidden as its values.
    clear = form.summand(updates["east"], BROADCAST)
    assert not (sent[0][SIZE:] == clear[SIZE:]).any()


def test_squared_lengths_never_wrap_around() -> None:
    zeros, sites = np.zeros(SIZE, np.float32), 2**16
    form = FixedPoint(32, 8.0, sites, squares=True)
    furthest = form.summand(np.full(SIZE, 8.0, np.float32), zeros)
    total = (furthest.astype(np.uint64) * sites % 2**32).astype(np.uint32)
    assert form.added(total) == sites and (form.mean(total, zeros) == 8).all()
    assert form.mean_square(total, zeros) == SIZE * 64, "as many sites as fit, each at the bound"
    # Every digit as large as it can be: the sum of as many still fits into its place.
    assert (2**16 - 1) * sites < 2**32 and furthest.size == SIZE + 7
    with pytest.raises(OutOfRange, match=r"the squared lengths of 65,537 sites do not fit into a sum of 32 bits"):
        FixedPoint(32, 8.0, sites + 1, squares=True)
    with pytest.raises(OutOfRange, match=r"the squared length of the update, 1e\+20, is more than the sum can hold"):
        FixedPoint(32, 8.0, 3, squares=True)._digits(1e20)


def streams_of(told: dict[str, tuple[str, ...]], folder: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Which streams stand in which site's answer: a row for each stream, +1 where it is added and -1 where it is taken away,
    if each site is told of a set of participants of its own."""
    sites = members(folder, tuple(told), min_sites=2)
    found: dict[bytes, dict[str, int]] = {}
    for name, site in sites.items():
        with monkeypatch.context() as patched:
            patched.setattr(
                masks,
                "_add_stream",
                lambda _, key, takes_away, name=name: found.setdefault(key, {}).update({name: -1 if takes_away else 1}),
            )
            site.masked(None, BROADCAST, task(participants=told[name]))
    return np.array([[row.get(name, 0) for name in told] for row in found.values()])


FOUR = ("east", "north", "south", "west")


@pytest.mark.parametrize(
    "told",
    [
        {"west": ("east", "north", "west")},
        {"west": ("north", "west")},
        {"west": ("east", "north", "west"), "south": ("east", "north", "south")},
        {"west": ("south", "west"), "south": ("south", "west"), "east": ("east", "north", "south")},
    ],
    ids=["one site hears of fewer", "of one other only", "two hear of others", "in a ring"],
)
def test_a_hub_that_tells_sites_of_different_sets_can_open_no_sum_that_they_did_not_all_hear_of(
    told: dict[str, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever multiples of the answers a hub adds up: only where each stream cancels can it read anything. The sets that
    all their members heard of are the only such combinations, so nobody's update is told apart."""
    heard = {**dict.fromkeys(FOUR, FOUR), **told}
    streams = streams_of(heard, tmp_path, monkeypatch)
    whole = {members for members in heard.values() if all(heard[name] == members for name in members)}
    assert np.linalg.matrix_rank(streams) == len(FOUR) - len(whole)
    for members_ in whole:
        assert not (streams @ np.isin(FOUR, members_)).any()
    honest = streams_of(dict.fromkeys(FOUR, FOUR), tmp_path / "honest", monkeypatch)
    assert np.linalg.matrix_rank(honest) == 3 and not (honest @ np.ones(4)).any(), "told alike, the one sum opens"


def test_keys_are_secret_stay_and_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "site/sum.key"
    make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    make_key(path)
    assert path.read_bytes() == before
    assert read_public(public_text(read_key(path)), "east") == read_key(path).public_key()
    (tmp_path / "other").write_text("nothing")
    for wrong in (tmp_path / "other", tmp_path / "missing"):
        with pytest.raises(BadInput, match="is no key for secure sums: make one with `fedse site key`"):
            read_key(wrong)
    for text in ("", "abc", "AAAA", "no key at all"):
        with pytest.raises(BadInput, match="what stands for site 'east' is no public key"):
            read_public(text, "east")


def test_a_damaged_record_of_the_last_answer_stops_the_site(tmp_path: Path) -> None:
    east = members(tmp_path)["east"]
    east.masked(None, BROADCAST, task())
    east.answered.write_bytes(b"damaged")
    with pytest.raises(RunConflict, match="is damaged, with what this site added to its last secure sum"):
        east.check(task())


def test_a_digest_of_a_task_is_of_all_that_an_update_depends_on_and_not_of_the_time_left() -> None:
    assert asked_for(task()) == asked_for(task(seconds=1.0))
    others = [
        task(round=2),
        task(layout=(("b", (SIZE,)),)),
        task(library={"west": BROADCAST}),
        task(vector=BROADCAST + 1),
    ]
    assert len({asked_for(item) for item in [task(), *others]}) == 5
