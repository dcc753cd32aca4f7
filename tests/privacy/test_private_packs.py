"""Learning under noise in packs is learning one trajectory at a time, cut by cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedse.fitting import private_loop
from fedse.fitting.private_loop import PrivateFitting
from fedse.learners.dp_imitation import DpImitation
from fedse.learners.imitation import Imitation
from fedse.models.nano import Nano
from fedse.networks.swap import load_adapter, train_only
from fedse.networks.training.passes import pass_for
from fedse.networks.training.token_packing import Example
from fedse.networks.training.wanted import Asking, alone
from fedse.objectives.cases import Case, CreditedExample, Unit
from fedse.starts.demonstrations import demonstrate
from fedse.stopwatch import during
from fedse.types import Adapter, Trajectory
from fedse.worlds.maze import Maze


class OneByOne(PrivateFitting):
    """A pass for each trajectory, whose gradient is cut before the next one's comes."""

    def _parts(self, chosen: Sequence[Unit], tokens_at_once: int) -> list[list[CreditedExample]]:
        del tokens_at_once
        return [list(unit.examples) for unit in chosen]

    def _add_gradient(self, parts: Sequence[Sequence[CreditedExample]]) -> Asking[None]:
        gradient = self._vector.gradient
        total = torch.zeros_like(gradient)
        for part in parts:
            gradient.zero_()
            yield from self._pass(part, 1.0 / sum(example.agent_tokens for example in part))
            gradient.nan_to_num_(0.0, 0.0, 0.0)
            total.add_(gradient * (self._max_norm / gradient.norm()).clamp(max=1.0))
        with during("noise"):
            drawn = self._random.normal(gradient.numel()) * (self._noise * self._max_norm)
            total.add_(torch.from_numpy(drawn).to(gradient))
        gradient.copy_(total.div_(self._divisor))


def shown_to(model: Any, count: int) -> list[Trajectory]:
    maze = Maze(mode="clean", rules="bare", observation_length="brief", shortest=2, longest=6)
    return [demonstrate("c", "maze", maze, task, model.chat) for task in maze.tasks("train")[:count]]


def stirred(start: Adapter) -> Adapter:
    random = np.random.default_rng(0)
    return replace(
        start,
        tensors={name: (t + random.normal(0, 0.05, t.shape)).astype(np.float32) for name, t in start.tensors.items()},
    )


def fitted(kind: type[PrivateFitting], model: Any, cases: Sequence[Case], **changed: Any) -> PrivateFitting:
    start = stirred(model.initial_adapter(0))
    load_adapter(model.network, start)
    train_only(model.network, start)
    through = pass_for(model.network, False)
    through.begin(start)
    learner = DpImitation(model, max_grad_norm=changed.pop("bound", 0.5), batch_size=2, learning_rate=1e-3)
    settings: dict[str, Any] = {"noise_multiplier": 0.0, "sampling_rate": 1.0, "steps": 1, "tokens_at_once": 600}
    return kind(through, cases, model.context, secret=bytes(32), **settings | changed, **learner._settings())


def stepped(fitting: PrivateFitting) -> torch.Tensor:
    alone(fitting.step())
    return fitting._vector.gradient.detach().clone()


def norms(fitting: PrivateFitting, cases: Sequence[Case]) -> torch.Tensor:
    """By a pass for each, in the order of the cases."""
    found = []
    for case in cases:
        own = [Example(np.array(item.token_ids), np.array(item.train_mask)) for item in case.trajectories]
        fitting._vector.gradient.zero_()
        alone(fitting._pass(own, 1.0 / sum(example.agent_tokens for example in own)))
        found.append(fitting._vector.gradient.norm())
    return torch.stack(found)


def assert_near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert (found - wanted).norm() < 1e-5 * wanted.norm()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "nano"])
def test_the_cut_sum_is_that_of_one_pass_for_each(name: str, tiny: Any) -> None:
    model = tiny if name == "tiny" else Nano(device="cpu", threads=1)
    shown = shown_to(model, 5)
    # The last is of two trajectories, which are cut as one.
    cases = [*(Case((item,)) for item in shown[:3]), Case(tuple(shown[3:]), credits=(1.0, 1.0))]
    lengths = norms(fitted(PrivateFitting, model, cases), cases)
    bound = float(lengths.median() + lengths.max()) / 2
    assert (lengths > bound).any() and (lengths < bound).any()
    room = 3 * max(len(item.token_ids) for item in shown[:3])
    packed = fitted(PrivateFitting, model, cases, bound=bound, tokens_at_once=room)
    assert [len(part) for part in packed._batches[0]] == [3, 2]
    assert_near(stepped(packed), stepped(fitted(OneByOne, model, cases, bound=bound)))


@pytest.mark.slow
def test_steps_have_the_same_draws_and_the_same_noise(tiny: Any) -> None:
    cases = [Case((item,)) for item in shown_to(tiny, 6)]
    ways = [
        fitted(kind, tiny, cases, noise_multiplier=1.0, sampling_rate=0.2, steps=6)
        for kind in (PrivateFitting, OneByOne)
    ]
    drawn = [[sorted(len(example) for part in step for example in part) for step in way._batches] for way in ways]
    assert drawn[0] == drawn[1] and [] in drawn[0] and max(map(len, drawn[0])) > 1
    for _ in range(6):
        assert_near(*(stepped(way) for way in ways))


@pytest.mark.slow
def test_a_trajectory_that_is_not_finite_counts_nothing(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_to(tiny, 4)
    others = [Case((item,)) for item in (*shown[:2], shown[3])]
    wanted = stepped(fitted(PrivateFitting, tiny, others))
    bad = fitted(PrivateFitting, tiny, [Case((item,)) for item in shown], tokens_at_once=10_000)
    ((part,),) = bad._batches
    place = next(number for number, example in enumerate(part) if tuple(example.ids) == shown[2].token_ids)
    found = type(bad._through).unit_gradients

    def broken(through: Any, units: Sequence[Sequence[Example]]) -> torch.Tensor:
        gradients = found(through, units)
        gradients[place, ::3], gradients[place, 1::3] = torch.nan, -torch.inf
        gradients[place, 2::3] = 0.0
        return gradients

    monkeypatch.setattr(type(bad._through), "unit_gradients", broken)
    assert_near(stepped(bad), wanted)


def test_a_pack_holds_like_lengths_and_no_more_than_there_is_room_for(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [Case((item,)) for item in shown_to(tiny, 6)]
    longest = max(len(case.trajectories[0].token_ids) for case in cases)
    for room in (1, longest, 3 * longest, 100 * longest):
        fitting = fitted(PrivateFitting, tiny, cases, tokens_at_once=room)
        (parts,) = fitting._batches
        lengths = [len(example) for part in parts for example in part]
        assert len(lengths) == 6 and lengths == sorted(lengths)
        assert all(len(part) == 1 or len(part) * len(part[-1]) <= room for part in parts)
    assert len(parts) == 1
    monkeypatch.setattr(private_loop, "_MOST_NUMBERS", 2 * fitting._vector.values.numel() + 1)
    (parts,) = fitted(PrivateFitting, tiny, cases, tokens_at_once=room)._batches
    assert [len(part) for part in parts] == [2, 2, 2]


def test_its_adapters_learn_one_after_another(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Imitation, "_on_gpu", True)
    assert Imitation(tiny).at_once == 5
    assert DpImitation(tiny).at_once == 1
    assert DpImitation(tiny, adapters_at_once=3).at_once == 1
