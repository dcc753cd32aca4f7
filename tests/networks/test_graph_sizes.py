"""Sizes of CUDA graphs: what fits into them, and how few are recorded for a whole run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedse.networks.training.graph_sizes import Sizes, chosen_sizes, fitting
from fedse.networks.training.token_packing import micro_batches, pack
from fedse.objectives.cases import group
from padded_reference import conversations


def test_what_a_part_needs_is_what_its_pack_needs() -> None:
    examples = conversations(150, 60, 233)
    for opening in (0, 9):
        assert Sizes.of_part(examples, opening) == Sizes.of_pack(pack(examples, opening))


def test_sizes_hold_what_fits_into_them() -> None:
    need = Sizes.of_pack(pack(conversations(*[200] * 6), 9))
    sizes = need.rounded_up()
    assert need.holds(need) and sizes.holds(need) and sizes != need
    for change in (
        {"tokens": need.tokens - 1},
        {"opening": 8},
        {"longest": 190},
        {"segments": 6},
        {"copies": 53},
        {"predicting": need.predicting - 1},
    ):
        assert not replace(sizes, **change).holds(need), change
    # Room for the tokens is not enough: what is empty is divided into segments, too.
    tight = replace(sizes, segments=need.segments)
    assert tight.tokens > need.tokens and not tight.holds(need)


def test_sizes_that_cover_hold_each() -> None:
    needs = [Sizes.of_pack(pack(conversations(*lengths), 9)) for lengths in ((40, 50), (700, 30, 30, 30), (300,) * 5)]
    cover = needs[0].covering(*needs[1:])
    assert all(cover.holds(need) and cover.rounded_up().holds(need) for need in needs)


def lesson(random: np.random.Generator, count: int, middle: float) -> list[Sizes]:
    lengths = np.clip(middle * np.exp(0.4 * random.standard_normal(count)), 40, 1500).astype(int)
    examples = conversations(*lengths.tolist(), seed=int(random.integers(99)))
    return [
        Sizes.of_part(part, 9)
        for _ in range(2)
        for batch in group(examples, 8, random)
        for part in micro_batches(batch, 9, 3276)
    ]


@pytest.mark.parametrize("middle", [300, 600])
def test_a_growing_buffer_soon_needs_no_new_sizes_and_little_padding(middle: float) -> None:
    random = np.random.default_rng(0)
    present: list[Sizes] = []
    recorded, padded = [], []
    for number in range(12):
        needs = lesson(random, 200 + 20 * number, middle)
        planned = chosen_sizes(needs, present)
        used = [fitting(need, [*present, *planned]) for need in needs]
        assert None not in used
        new = {sizes for sizes in used if sizes is not None} - set(present)
        present += new
        recorded.append(len(new))
        padded.append(sum(sizes.work for sizes in used if sizes) / sum(need.work for need in needs))
    assert recorded[0] <= 5
    assert sum(recorded[2:]) <= 6
    assert max(padded) < 1.35 and padded[-1] < 1.2


def test_a_rare_pack_takes_what_is_there_and_many_get_sizes_of_their_own() -> None:
    present = [Sizes(4096, 9, 16, 512, 1024, 135)]
    small = Sizes(400, 9, 5, 100, 90, 36)
    assert chosen_sizes([small], present) == []
    [made] = chosen_sizes([small] * 40, present)
    assert made.holds(small) and made.tokens < 600


def test_what_fits_nowhere_gets_sizes_at_once() -> None:
    present = [Sizes(1024, 9, 16, 512, 512, 135)]
    large = Sizes(1500, 9, 6, 400, 300, 45)
    [made] = chosen_sizes([large], present)
    assert made.holds(large)
    assert fitting(large, present) is None
