from __future__ import annotations

import numpy as np
import pytest

from fedse.networks.training.graph_sizes import Sizes
from fedse.networks.training.pass_graphs import filled
from fedse.networks.training.token_packing import Example, micro_batches, opening_of, pack
from padded_reference import conversations


def test_the_opening_ends_where_examples_differ_or_a_reply_is_predicted() -> None:
    examples = conversations(30, 40, 20, opening=9)
    assert opening_of(examples) == 9
    assert opening_of(examples[:1]) == 0
    early = Example(examples[0].ids, np.arange(30) >= 6)
    assert opening_of([early, *examples]) == 5
    other = Example(np.append(examples[0].ids[:3], examples[1].ids[3:] + 1), examples[1].train)
    assert opening_of([*examples, other]) == 3
    same = Example(examples[0].ids, np.arange(30) == 29)
    assert opening_of([same, same]) == 28


def test_parts_hold_everything_in_order_within_the_bound() -> None:
    examples = conversations(30, 40, 20, 90, 25, 25, opening=9)
    parts = list(micro_batches(examples, 9, 60))
    assert [example for part in parts for example in part] == examples
    assert [[len(example) for example in part] for part in parts] == [[30], [40, 20], [90], [25, 25]]
    assert len(list(micro_batches(examples, 9, 1))) == 6
    assert len(list(micro_batches(examples, 9, 1000))) == 1


@pytest.mark.parametrize("opening", [0, 9])
def test_a_pack_holds_each_conversation_and_predicts_each_reply(opening: int) -> None:
    examples = conversations(30, 40, 20, opening=9)
    packed = pack(examples, opening)
    assert sum(packed.lengths) == len(packed.ids) == 90 - 2 * opening
    starts = np.cumsum((0, *packed.lengths))[1 if opening else 0 :]
    for example, start in zip(examples, starts[:-1], strict=True):
        rest = len(example) - opening
        ids = np.append(packed.ids[:opening], packed.ids[start : start + rest])
        positions = np.append(packed.positions[:opening], packed.positions[start : start + rest])
        assert (ids == example.ids).all()
        assert (positions == np.arange(len(example))).all()
    wanted = np.concatenate([example.ids[1:][example.train[1:]] for example in examples])
    assert (packed.targets == wanted).all()
    assert (packed.ids[packed.predicting + 1] == packed.targets).all()


@pytest.mark.parametrize("opening", [0, 9])
def test_padding_to_fixed_sizes_keeps_the_pack_and_adds_segments_of_its_own(opening: int) -> None:
    packed = pack(conversations(30, 40, 20, 33, 700, opening=9), opening)
    sizes = Sizes.of_pack(packed).rounded_up()
    numbers = filled(packed, sizes)
    segments = sizes.segments
    rooms = (sizes.tokens, sizes.tokens, sizes.predicting, sizes.predicting, segments + 1, segments, segments)
    ids, positions, predicting, targets, edges, seen, group, begins = np.split(numbers, np.cumsum(rooms))
    count, learned = len(packed.ids), len(packed.targets)
    assert (ids[:count] == packed.ids).all() and (positions[:count] == packed.positions).all()
    assert (predicting[:learned] == packed.predicting).all() and (targets[:learned] == packed.targets).all()
    lengths = np.diff(edges)
    assert tuple(lengths[: len(packed.lengths)]) == packed.lengths
    assert edges[0] == 0 and edges[-1] == sizes.tokens and lengths.min() >= 0 and lengths.max() <= sizes.longest
    assert tuple(seen) == (0, *[opening] * 5, *[0] * (segments - 6)), (
        "an opening looks at none, and neither does padding"
    )
    assert not group.any() and begins == [0]
    assert count <= sizes.tokens <= max(count * 1.13, count + 8)
