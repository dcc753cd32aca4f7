"""`benchmarks/grpo_by_hand.py`: a whole lesson of the rule, written with autograd, ends where the rule ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedse.learners.group_policy_gradient import GroupPolicyGradient
from fedse.types import Lesson, Outcome


@pytest.mark.slow
def test_a_lesson_by_hand_ends_where_the_rule_does(tiny: Any, benchmarks: Any) -> None:
    words = tiny.network.get_base_model().config.vocab_size
    made = benchmarks("learning_work").random_trajectories(8, 120, 240, 30, words)
    fresh = [
        replace(item, task=str(number // 4), outcome=outcome, rewards={"world": float(number % 3 == 0)})
        for number, item in enumerate(made)
        for outcome in [Outcome.SUCCESS if number % 3 == 0 else Outcome.FAILURE]
    ]
    start = tiny.initial_adapter(2)
    lesson, settings = Lesson(start, [], 5, fresh), {"epochs": 2, "batch_size": 3, "learning_rate": 1e-2}
    ours, told = GroupPolicyGradient(tiny, **settings).learn(lesson)  # type: ignore[misc]
    by_hand, counted = benchmarks("grpo_by_hand").GrpoByHand(tiny, **settings).learn(lesson)
    assert counted["tokens"] == told["tokens"]
    assert told["clipped_share"] > 0, "or clipping is not compared"
    moved = max(np.abs(ours.tensors[name] - start.tensors[name]).max() for name in start.tensors)
    apart = max(np.abs(ours.tensors[name] - by_hand.tensors[name]).max() for name in start.tensors)
    # AdamW makes roundings of small gradients as large as a step.
    assert apart < 1e-2 * moved
