from __future__ import annotations

import numpy as np
import pytest

from fedse.errors import BadInput
from fedse.networks.training.token_packing import Example
from fedse.objectives.cases import examples_of, group
from fedse.types import Outcome, Purpose, Trajectory


def test_batches_hold_everything_once_and_examples_of_like_length() -> None:
    random = np.random.default_rng(0)
    examples = [
        Example(np.full(length, index), np.ones(length, dtype=bool))
        for index, length in enumerate(random.integers(50, 900, 301))
    ]
    batches = list(group(examples, 8, np.random.default_rng(1)))
    assert sorted(example.ids[0] for batch in batches for example in batch) == list(range(301))
    longest = sum(len(batch) * max(map(len, batch)) for batch in batches)
    real = sum(map(len, examples))
    assert (longest - real) / longest < 0.10
    assert [example.ids[0] for example in batches[0]] != list(range(8))


def test_the_context_cuts_and_what_has_no_reply_left_is_dropped() -> None:
    def trajectory(train: list[bool]) -> Trajectory:
        ids = tuple(range(len(train)))
        return Trajectory(
            "c", "w", "t", Purpose.EXPLORE, 1, 0, "", (), "", Outcome.SUCCESS, 1.0, ids, tuple(train)
        )  # fmt: skip

    early, late = trajectory([False, True, False, False]), trajectory([False, False, False, True])
    assert [list(example.ids) for example in examples_of([early, late], 3)] == [[0, 1, 2]]
    assert len(examples_of([early, late], 4)) == 2
    with pytest.raises(BadInput, match="context of 3 tokens"):
        examples_of([late], 3)
