from __future__ import annotations

import numpy as np
import pytest

from fedse.models.chat import ByteChat
from fedse.models.table import TENSOR, Table
from fedse.policies.scripted import ScriptedPolicy
from fedse.policies.table import TablePolicy
from fedse.types import Adapter, Sampling


def ask(policy: ScriptedPolicy, turn: str, sampling: Sampling) -> str:
    slot = policy.open(policy.chat.opening("rules"), sampling)
    policy.extend(slot, policy.chat.turn(turn))
    [reply] = policy.ready()
    policy.close(slot)
    return policy.chat.text(reply.ids)


def test_a_script_sees_the_turn_and_a_draw_that_depends_on_its_stream() -> None:
    policy = ScriptedPolicy(ByteChat(), lambda turn, draw: f"{turn} {draw:.6f}")
    first, again, other = (ask(policy, "hello", Sampling(key, 1.0)) for key in (1, 1, 2))
    assert first.startswith("hello 0.")
    assert first == again != other


def test_a_table_answers_by_the_scores_of_the_observations_row() -> None:
    model = Table(actions=["move up", "move down"], rows=64)
    policy = TablePolicy(model)
    table = np.zeros((64, 2), dtype=np.float32)
    table[model.row("seen")] = [0, 3]
    policy.load(Adapter({TENSOR: table}))
    assert ask(policy, "seen", Sampling(0, 0.0)).endswith("Action: move down")
    drawn = [ask(policy, "seen", Sampling(key, 1.0)).endswith("down") for key in range(400)]
    assert np.mean(drawn) == pytest.approx(1 / (1 + np.exp(-3)), abs=0.04)
