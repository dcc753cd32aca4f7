"""Replay by familiarity: which replies count is what the network itself says of them, and the rest is imitation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedse.errors import BadInput
from fedse.learners.familiar import FamiliarImitation
from fedse.learners.imitation import Imitation
from fedse.networks.swap import load_adapter
from fedse.objectives.cases import CreditedExample, examples_of
from fedse.objectives.familiarity import FamiliarReplay, familiarity, replies
from fedse.objectives.objective import Scored
from fedse.plugins import Choice, build
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Adapter, Lesson, Trajectory
from fedse.worlds.maze import Maze

OPTIONS: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-3, "batch_size": 2}


def conversation(*spoken: str, replayed: bool = True) -> CreditedExample:
    """Of marks, a token each: `a` is the agent's, anything else is not."""
    train = np.array([mark == "a" for mark in "".join(spoken)])
    return CreditedExample(np.arange(len(train)), train, 1.0, replayed)


def test_familiarity_is_the_geometric_mean_of_a_replys_probabilities() -> None:
    example = conversation("--aa", "--a", "-aaa", "-")
    chances = np.array([0.9, 0.4, 0.7, 1.0, 0.5, 0.2])
    assert replies(example).tolist() == [0, 0, 1, 2, 2, 2]
    found = familiarity(example, np.log(chances))
    first, second, third = (0.9 * 0.4) ** (1 / 2), 0.7, (0.5 * 0.2) ** (1 / 3)
    assert found == pytest.approx([first, first, second, third, third, third])


def test_weights_are_those_of_autograd_on_the_mean_over_what_counts() -> None:
    random = np.random.default_rng(0)
    batch = []
    for number, spoken in enumerate(["-aa-aaa-", "--a-aa", "-aaaa"]):
        example = conversation(spoken, replayed=number < 2)
        before = -random.exponential(0.8, example.agent_tokens)
        batch.append(Scored(example, before + 0.1, before))
    # Familiar: 0.5 < exp(mean) <= 0.95. What is new counts whatever it is.
    counted = [
        torch.tensor(
            [
                not item.example.replayed or 0.5 < np.exp(item.before[replies(item.example) == reply].mean()) <= 0.95
                for reply in replies(item.example)
            ]
        )
        for item in batch
    ]
    assert {bool(mark) for own in counted[:2] for mark in own} == {True, False}
    now = [torch.tensor(item.now, requires_grad=True) for item in batch]
    loss = -torch.cat([own[mark] for own, mark in zip(now, counted, strict=True)]).mean()
    wanted = torch.autograd.grad(loss, now)
    weighed = FamiliarReplay(0.5, 0.95).weigh(batch)
    assert weighed.loss == pytest.approx(loss.item())
    for own, gradient in zip(weighed.weights, wanted, strict=True):
        assert np.allclose(own, -gradient.numpy())


def test_the_band_is_open_below_and_closed_above_and_may_leave_nothing() -> None:
    batch = [Scored(conversation("-a", "-a", "-a"), np.zeros(3), np.log([0.5, 0.95, 0.951]))]
    weighed = FamiliarReplay(0.5, 0.95 + 1e-12).weigh(batch)
    assert weighed.weights[0].tolist() == [0, 1, 0] and weighed.told == {"familiar_share": pytest.approx(1 / 3)}
    assert FamiliarReplay(0.1, 0.2).weigh(batch).weights[0].tolist() == [0, 0, 0]


@pytest.fixture(scope="module")
def shown(tiny: Any) -> list[Trajectory]:
    made = Demonstrations(4).trajectories(
        "c", "maze", Maze(rules="bare", observation_length="brief", turn_limit=4), tiny.chat, 0
    )
    return [replace(item, round=1 + number % 2) for number, item in enumerate(made)]


def by_the_network(model: Any, adapter: Adapter, shown: Sequence[Trajectory]) -> list[float]:
    """Familiarity of each reply, by the network's own forward pass."""
    load_adapter(model.network, adapter)
    found = []
    for example in examples_of(shown, model.context):
        with torch.no_grad():
            logits = model.network(input_ids=torch.from_numpy(example.ids)[None]).logits[0, :-1].float()
        chosen = torch.log_softmax(logits, -1).gather(1, torch.from_numpy(example.ids[1:])[:, None])[:, 0]
        said = chosen[torch.from_numpy(example.train[1:])].numpy()
        found += [float(np.exp(said[replies(example) == reply].mean())) for reply in sorted(set(replies(example)))]
    return found


def test_old_replies_within_the_band_are_learned_and_their_share_is_told(tiny: Any, shown: list[Trajectory]) -> None:
    start = tiny.initial_adapter(0)
    known = by_the_network(tiny, start, [item for item in shown if item.round == 1])
    middle = float(np.median(known))
    learner = FamiliarImitation(tiny, min_familiarity=middle, max_familiarity=1.0, **{**OPTIONS, "batch_size": 8})
    learner.enter(2)
    learned = learner.learn(Lesson(start, shown, 7))
    assert learned is not None
    assert learned[1]["familiar_share"] == pytest.approx(np.mean([value > middle for value in known]), abs=1e-6)
    learner.enter(1)
    told = learner.learn(Lesson(start, [replace(item, round=0) for item in shown], 7))
    assert told is not None and "familiar_share" not in told[1], "to the first round everything is new"
    learner.enter(11)
    told = learner.learn(Lesson(start, [replace(item, round=0) for item in shown], 7))
    assert told is not None and "familiar_share" not in told[1], "to a site that joins late it is new, too"


def test_where_everything_is_familiar_it_is_imitation(tiny: Any, shown: list[Trajectory]) -> None:
    start = tiny.initial_adapter(0)
    plain, all_of_it = (
        Imitation(tiny, **OPTIONS),
        FamiliarImitation(tiny, min_familiarity=0.0, max_familiarity=1.0, **OPTIONS),
    )
    for learner in (plain, all_of_it):
        learner.enter(3)
    ours, theirs = (learner.learn(Lesson(start, shown, 7)) for learner in (all_of_it, plain))
    assert ours is not None and theirs is not None
    for name, tensor in theirs[0].tensors.items():
        assert np.allclose(ours[0].tensors[name], tensor, atol=1e-5), name
    strict = FamiliarImitation(tiny, min_familiarity=0.999, max_familiarity=1.0, **OPTIONS)
    strict.enter(3)
    nothing = strict.learn(Lesson(start, shown, 7))
    assert nothing is not None and nothing[0].digest() == start.digest(), "nothing counts, and nothing moves"


def test_an_empty_band_is_refused(tiny: Any) -> None:
    with pytest.raises((BadInput, ValueError), match="must be below `max_familiarity`"):
        build(
            "learner",
            Choice(kind="learner", name="familiar", options={"min_familiarity": 0.9, "max_familiarity": 0.5}),
            tiny,
        )
