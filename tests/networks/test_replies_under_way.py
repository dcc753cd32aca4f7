"""Which replies the steps of a launch go on with, and what the host is told of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedse.networks.decoding.decoder import Due
from fedse.networks.decoding.replies_under_way import RepliesUnderWay
from fedse.types import Sampling

END = 3


def due(slot: int, most: int) -> Due:
    return Due(slot, 0, [1], Sampling(1, 1.0), 0, most)


def begun(*asked: tuple[int, int], launch: int = 1) -> RepliesUnderWay:
    replies = RepliesUnderWay(4, [END])
    replies.begin([due(slot, most) for slot, most in asked], launch)
    return replies


def hear(replies: RepliesUnderWay, launch: int, *steps: Mapping[int, int]) -> None:
    """Each step's tokens by slot."""
    tokens = np.array([[step.get(slot, -1) for slot in range(4)] for step in steps])
    replies.read(launch, replies.of_launch(launch), tokens, (-tokens / 8).astype(np.float32))


def test_a_reply_is_told_once_as_a_whole() -> None:
    replies = begun((0, 9), (2, 3))
    hear(replies, 1, {0: 10, 2: 20}, {0: 11, 2: 21})
    assert replies.tell(5) == {} and replies.untold == [0, 2]
    hear(replies, 2, {0: END, 2: 22}, {})
    assert replies.tell(5) == {0: ([10, 11, END], [-1.25, -1.375, -0.375]), 2: ([20, 21, 22], [-2.5, -2.625, -2.75])}
    assert replies.tell(5) == {} and replies.untold == [] and not replies.speaking


def test_no_more_are_told_than_asked_for_and_none_is_lost() -> None:
    replies = begun((3, 1), (0, 1), (1, 1))
    hear(replies, 1, {0: 10, 1: 11, 3: 13})
    assert not replies.speaking
    assert list(replies.tell(2)) == [0, 1] and replies.untold == [3]
    replies.begin([due(0, 1)], 2)
    hear(replies, 2, {0: 14})
    assert replies.tell(2) == {3: ([13], [-1.625]), 0: ([14], [-1.75])}


def test_a_reply_takes_part_from_the_launch_that_it_was_begun_for() -> None:
    replies = begun((0, 4))
    replies.begin([due(1, 2)], 3)
    assert [replies.of_launch(launch).tolist() for launch in (1, 2, 3)] == [[0], [0], [0, 1]]
    assert replies.next_launch == 1
    hear(replies, 1, {0: END})
    assert replies.next_launch == 3, "nobody speaks before"


def test_what_is_said_after_the_end_is_not_heard() -> None:
    replies = begun((0, 2))
    hear(replies, 1, {0: 10}, {0: 11}, {0: 12})
    assert replies.tell(1) == {0: ([10, 11], [-1.25, -1.375])}


def test_a_reply_that_is_given_up_is_not_told_and_leaves_nothing_to_the_next() -> None:
    replies = begun((0, 8), (1, 1))
    hear(replies, 1, {0: 10, 1: 11})
    launched = replies.of_launch(2)
    assert replies.give_up(0) and not replies.give_up(1)
    assert replies.untold == [] and not replies.speaking
    replies.begin([due(0, 2)], 3)
    replies.read(2, launched, np.array([[12, -1, -1, -1]]), np.zeros((1, 4), np.float32))
    hear(replies, 3, {0: 13}, {0: 14})
    assert replies.tell(4) == {0: ([13, 14], [-1.625, -1.75])}


def test_longer_replies_than_before_have_room() -> None:
    replies = begun((0, 1))
    hear(replies, 1, {0: 10})
    replies.begin([due(1, 40)], 2)
    hear(replies, 2, *({1: 11} for _ in range(40)))
    assert replies.tell(4) == {0: ([10], [-1.25]), 1: ([11] * 40, [-1.375] * 40)}
