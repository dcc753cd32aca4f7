"""ProjRes: a plain gradient lies in the span of what went into a layer, and members are found by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedse.audits.layer_inputs import reading
from fedse.audits.plain_step import plain_step
from fedse.audits.projection import caught, directions
from fedse.models.tiny import Tiny
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Adapter, Trajectory
from fedse.worlds.maze import Maze


@pytest.fixture(scope="module")
def model() -> Any:
    return Tiny(width=64, layers=1, context=1024, lora={"rank": 4}, threads=1)


@pytest.fixture(scope="module")
def shown(model: Any) -> list[Trajectory]:
    world = Maze(rules="bare", observation_length="brief")
    found = Demonstrations(20).trajectories("c", "maze", world, model.chat, 0)
    # Few tokens of the agent, so that they do not span the whole width.
    return [replace(item, train_mask=(*(False,) * (len(item.token_ids) - 9), *(True,) * 9)) for item in found]


@pytest.fixture(scope="module")
def learned(model: Any) -> Adapter:
    """With a B that is not zero."""
    first = model.initial_adapter(0)
    random = np.random.default_rng(0)
    tensors = {
        name: tensor + random.normal(0, 0.1, tensor.shape).astype(np.float32) for name, tensor in first.tensors.items()
    }
    return Adapter(tensors, first.config)


def test_a_plain_step_of_one_trajectory_lies_in_the_span_of_its_inputs(
    model: Any, shown: list[Trajectory], learned: Adapter
) -> None:
    after = plain_step(model, learned, shown[:1])
    with reading(model, learned) as inputs:
        own, other = inputs(shown[0]), inputs(shown[1])
    checked = 0
    for name, tensor in learned.tensors.items():
        # Keys and values matter at every token; what follows them in the last layer, only where the agent speaks.
        if "lora_A" in name and not any(part in name for part in ("k_proj", "v_proj")):
            change = after.tensors[name].astype(np.float64) - tensor
            outside = [change - change @ np.linalg.pinv(rows) @ rows for rows in (own[name], other[name])]
            assert np.linalg.norm(outside[0]) < 1e-3 * np.linalg.norm(change)
            assert np.linalg.norm(outside[1]) > 0.05 * np.linalg.norm(change)
            checked += 1
    assert checked >= 4


@pytest.mark.parametrize(("size", "least"), [(1, 0.95), (4, 0.6)])
def test_members_of_an_update_are_caught_in_it(
    model: Any, shown: list[Trajectory], learned: Adapter, size: int, least: float
) -> None:
    bases = directions(learned, plain_step(model, learned, shown[:size]))
    with reading(model, learned) as inputs:
        scores = [caught(inputs(item), bases) for item in shown]
    wins = np.mean([[inside > outside for outside in scores[size:]] for inside in scores[:size]])
    assert wins >= least


def test_the_score_is_the_share_of_the_inputs_in_the_rows() -> None:
    before = Adapter({"x.lora_A.weight": np.zeros((2, 4), dtype=np.float32)})
    change = np.array([[3, 0, 0, 0], [1, 2, 0, 0]], dtype=np.float32)
    bases = directions(before, Adapter({"x.lora_A.weight": change}))
    inputs = {"x.lora_A.weight": np.array([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 2.0]])}
    assert caught(inputs, bases) == pytest.approx(2 / 8)
    assert directions(before, before) == {}


def test_hooks_are_gone_afterwards(model: Any, learned: Adapter, shown: list[Trajectory]) -> None:
    with reading(model, learned) as inputs:
        assert set(inputs(shown[0])) == {name for name in learned.tensors if "lora_A" in name}
    assert not any(module._forward_pre_hooks for module in model.network.modules())
