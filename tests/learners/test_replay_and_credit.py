"""Truncated attempts, credit of single replies, replay of what is remembered, lessons that begin anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bandit_world import bandit, explored

import fedse
from fedse.errors import BadInput
from fedse.experience.records import from_record, to_record
from fedse.learners.group_policy_gradient import GroupPolicyGradient
from fedse.learners.imitation import Imitation
from fedse.learners.spear import Spear
from fedse.objectives.cases import Case, CreditedExample, units_of
from fedse.objectives.clipped_ratio import ClippedRatio
from fedse.objectives.groups import groups_of
from fedse.objectives.likelihood_replay import LikelihoodReplay
from fedse.objectives.objective import Objective, Scored
from fedse.objectives.replay import WithReplay, rescored
from fedse.objectives.step_credit import step_cases
from fedse.policies.scripted import ScriptedPolicy
from fedse.rollouts.player import Player
from fedse.runs.reading import RunView
from fedse.starts.curated import Curated, chosen
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Adapter, Attempt, Episode, Lesson, Outcome, Purpose, Sampling, Step, Trajectory
from fedse.worlds.maze import Maze


def attempt(
    reward: float, valid: str = "y", task: str = "x", round: int = 1, number: int = 0, truncated: bool = False
) -> Trajectory:
    """One reply of two tokens for each letter, valid or not."""
    steps = tuple(Step("o", "r", "", "a", letter == "y") for letter in valid)
    return Trajectory(
        client="c", world="w", task=task, purpose=Purpose.EXPLORE, round=round, attempt=number, adapter="a", steps=steps,
        closing="", outcome=Outcome.SUCCESS if reward == 1 else Outcome.FAILURE, score=reward,
        token_ids=tuple(range(3 * len(steps) + 1)), train_mask=(False, *(False, True, True) * len(steps)),
        rewards={"world": reward}, truncated=truncated,
    )  # fmt: skip


def tried(item: Trajectory) -> Attempt:
    return Attempt(item.round, item.world, item.task, "", item.attempt, item.outcome, item.score, item.reward, 1)


def make_maze() -> Maze:
    return Maze(rules="brief", observation_length="brief", turn_limit=6)


def test_the_player_tells_what_a_limit_ended_and_nothing_of_it_is_stored(tiny: Any) -> None:
    policy = ScriptedPolicy(tiny.chat, lambda turn, draw: "Thought: on.\nAction: look")
    task = make_maze().tasks("train")[0]
    episode = Episode("c", "maze", make_maze, task, Purpose.EXPLORE, 1, 0, Sampling(1, 1.0))
    (limited,) = Player(policy, tiny.chat, tiny.context).play([episode], "a")
    assert limited.truncated and len(limited.steps) == 6
    (cramped,) = Player(policy, tiny.chat, len(limited.token_ids) - 40).play([episode], "a")
    assert cramped.truncated and 0 < len(cramped.steps) < 6
    shown = Demonstrations(1).trajectories("c", "maze", make_maze(), tiny.chat, 0)[0]
    steps = iter(shown.steps)
    solving = ScriptedPolicy(tiny.chat, lambda turn, draw: next(steps).reply)
    task = next(item for item in make_maze().tasks("train") if item.id == shown.task)
    (solved,) = Player(solving, tiny.chat, tiny.context).play([replace(episode, task=task)], "a")
    assert solved.outcome is Outcome.SUCCESS and not solved.truncated
    assert "truncated" not in to_record(limited) and from_record(to_record(limited)) == limited


def test_what_was_truncated_is_left_out_of_the_loss_and_stays_in_the_baseline(tiny: Any) -> None:
    fresh = [attempt(1.0), attempt(0.0, number=1, truncated=True), attempt(0.0, number=2)]
    lesson = Lesson(Adapter({}), [], 0, fresh)
    usual = GroupPolicyGradient(tiny, scale_rewards="none").cases(lesson)
    masked = GroupPolicyGradient(tiny, scale_rewards="none", mask_truncated_completions=True)
    assert (
        [case.credits for case in masked.cases(lesson)]
        == [usual[0].credits, usual[2].credits]
        == [
            (pytest.approx(2 / 3),),
            (pytest.approx(-1 / 3),),
        ]
    )
    assert masked.told_of(lesson)["masked"] == pytest.approx(1 / 3)
    assert "masked" not in GroupPolicyGradient(tiny).told_of(lesson)


def test_credit_of_replies_is_the_papers_standardised_suffix_sum() -> None:
    group = [attempt(1.0, "yny"), attempt(0.0, "nn", number=1), attempt(0.0, "y", number=2)]
    labels = [torch.tensor([0.2, -0.2, 0.2]), torch.tensor([-0.2, -0.2]), torch.tensor([0.2])]
    middle = torch.stack([item.mean() for item in labels]).mean()
    spread = (torch.stack([((item - middle) ** 2).mean() for item in labels]).mean() + 1e-8).sqrt()
    rewards = torch.tensor([1.0, 0.0, 0.0])
    outcomes = (rewards - rewards.mean()) / rewards.std(unbiased=False)
    found = step_cases(groups_of(group), 0.3)
    for case, own, outcome in zip(found, labels, outcomes, strict=True):
        steps = 0.3 * (own - middle) / spread
        steps[-1] += outcome
        wanted = [float(steps[number:].sum()) for number in range(len(steps))]
        assert case.by_step == pytest.approx(wanted, abs=1e-5)
    (unit,) = units_of(found[:1], 100)
    by_token = unit.examples[0].by_token
    assert by_token is not None and by_token.tolist() == pytest.approx(np.repeat(found[0].by_step, 2).tolist())
    (cut,) = units_of(found[:1], 6)
    assert cut.examples[0].by_token is not None and len(cut.examples[0].by_token) == cut.examples[0].agent_tokens == 3
    assert step_cases(groups_of([attempt(0.0), attempt(0.0, number=1)]), 0.3) == []
    assert len(step_cases(groups_of([attempt(0.0), attempt(0.0, "n", number=1)]), 0.3)) == 2, "labels differ"


def scored(lengths: tuple[int, ...], replayed: tuple[bool, ...], by_token: bool = False) -> list[Scored]:
    random = np.random.default_rng(3)
    found = []
    for number, (length, again) in enumerate(zip(lengths, replayed, strict=True)):
        before = -random.exponential(1.0, length)
        drawn = before + 0.2 * random.standard_normal(length)
        example = CreditedExample(
            np.arange(length + 1), np.ones(length + 1, bool), (1.2, -0.7, 0.4, 0.9)[number], again, drawn,
            by_token=random.standard_normal(length) if by_token else None,
        )  # fmt: skip
        found.append(Scored(example, before + 0.5 * random.standard_normal(length), before))
    return found


def assert_autograd_agrees(objective: Objective, batch: list[Scored], written: Any) -> None:
    now = [torch.tensor(item.now, requires_grad=True) for item in batch]
    loss = written(now)
    weighed = objective.weigh(batch)
    assert weighed.loss == pytest.approx(loss.item(), rel=1e-10)
    for own, gradient in zip(weighed.weights, torch.autograd.grad(loss, now), strict=True):
        assert np.allclose(own, -gradient.numpy(), rtol=1e-9, atol=1e-12)


def clipped(now: Any, item: Scored, credit: Any, low: float = 0.2, high: float = 0.28) -> Any:
    """Summed over the tokens of an example."""
    ratio = torch.exp(now - torch.tensor(item.example.drawn))
    credit = torch.as_tensor(credit, dtype=torch.float64)
    return -torch.min(ratio * credit, torch.clamp(ratio, 1 - low, 1 + high) * credit).sum()


def test_each_token_may_have_an_advantage_of_its_own() -> None:
    batch = scored((5, 9, 3, 7), (False,) * 4, by_token=True)
    rule = ClippedRatio("bnpo", False, 0.2, 0.28, 0.0, 0.0, 9, 1.0)

    def written(now: list[torch.Tensor]) -> torch.Tensor:
        return sum(clipped(own, item, item.example.by_token) for own, item in zip(now, batch, strict=True)) / 24

    assert_autograd_agrees(rule, batch, written)


def test_what_is_replayed_has_the_groups_loss_by_itself_times_its_weight() -> None:
    batch = scored((5, 9, 3, 7), (False, True, False, True))
    fresh, again = (ClippedRatio("dapo", False, 0.2, 0.28, 0.0, 0.0, 9, tokens) for tokens in (6.0, 11.0))

    def written(now: list[torch.Tensor]) -> torch.Tensor:
        each = [clipped(own, item, item.example.credit) for own, item in zip(now, batch, strict=True)]
        return (each[0] + each[2]) / 6 + 0.4 * (each[1] + each[3]) / 11

    assert_autograd_agrees(WithReplay(fresh, again, 0.4), batch, written)
    assert WithReplay(fresh, again, 0.4).weigh(batch).told["replayed_share"] == 0.5


def test_advantages_of_what_is_remembered_are_taken_anew_and_grow_old() -> None:
    tries = [
        *(attempt(reward, task="x", round=2, number=number) for number, reward in enumerate((1.0, 0.0))),
        *(attempt(1.0, task="y", round=2, number=number) for number in range(2)),
        *(attempt(reward, task="x", round=9, number=number) for number, reward in enumerate((0.6, 0.0))),
        *(attempt(reward, task="z", round=9, number=number) for number, reward in enumerate((1.0, 0.9))),
    ]
    attempts = [tried(item) for item in tries]
    shown = replace(attempt(1.0), purpose=Purpose.DEMONSTRATE, round=0)
    remembered = [shown, *(item for item in tries if item.reward > 0)]
    # Groups have means of 0.5, 1.0, 0.3 and 0.95, with a median of 0.725: `y` was no better than its group, 0.6 is less.
    found = rescored(remembered, attempts, round=10, age=10)
    assert [(item.task, item.round, value) for item, value in found] == [
        ("x", 2, pytest.approx(0.275)),
        ("z", 9, pytest.approx(0.275)),
    ]
    # With what is recent alone the median is that of 0.3 and 0.95.
    young = rescored(remembered, attempts, round=10, age=3)
    assert [(item.task, value) for item, value in young] == [("z", pytest.approx(0.375))]
    assert rescored(remembered, attempts, round=2, age=10) == [], "this round's are in its groups"


def test_spear_replays_more_and_more_beside_the_groups(tiny: Any) -> None:
    before = [attempt(1.0), attempt(0.0, number=1)]
    fresh = [attempt(1.0, round=4), attempt(0.0, round=4, number=1)]
    attempts = [tried(item) for item in (*before, *fresh)]
    lesson = Lesson(Adapter({}), [before[0], fresh[0]], 0, fresh, attempts=attempts)
    learner = Spear(tiny, replay={"from": 0.0, "to": 1.0, "over": 7, "curve": "cosine"})
    learner.enter(1)
    assert [case.replayed for case in learner.cases(lesson)] == [False, False]
    learner.enter(4)
    cases = learner.cases(lesson)
    assert [(case.trajectories[0].round, case.credits, case.replayed) for case in cases[2:]] == [(1, (0.5,), True)]
    assert learner.objective(cases).weight == pytest.approx(0.5)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="imitation"):
        Spear(tiny, imitation=1.0)


def test_what_the_policy_has_left_behind_counts_less() -> None:
    batch = scored((5, 9, 3, 7), (False,) * 4)
    shown = replace(batch[0], example=replace(batch[0].example, drawn=None))
    left = replace(batch[1], before=batch[1].example.drawn - 1.5)
    sure = replace(batch[2], before=batch[2].example.drawn + 1.5)
    given = [shown, left, sure, batch[3]]
    rule = LikelihoodReplay(2.0)
    factors = [1.0, np.exp(-1.5), 2.0, np.exp((batch[3].before - batch[3].example.drawn).mean())]
    assert [rule.factor(item) for item in given] == pytest.approx(factors)

    def written(now: list[torch.Tensor]) -> torch.Tensor:
        return -sum(factor * own.sum() for factor, own in zip(factors, now, strict=True)) / 24

    assert_autograd_agrees(rule, given, written)


@pytest.fixture(scope="module")
def shown(tiny: Any) -> list[Trajectory]:
    return Demonstrations(12).trajectories("c", "maze", make_maze(), tiny.chat, 0)


def test_a_lesson_that_begins_anew_does_not_depend_on_what_came_before(tiny: Any, shown: list[Trajectory]) -> None:
    base = tiny.initial_adapter(0)
    options = {"epochs": 1, "learning_rate": 1e-3, "batch_size": 4}
    went_on, _ = Imitation(tiny, **options).learn(Lesson(base, shown[:2], 1))  # type: ignore[misc]
    from_base, _ = Imitation(tiny, **options).learn(Lesson(base, shown[4:6], 2))  # type: ignore[misc]
    lesson = Lesson(replace(went_on, tensors={**went_on.tensors, **_downs(base)}), shown[4:6], 2)
    again, _ = Imitation(tiny, restart=True, **options).learn(lesson)  # type: ignore[misc]
    further, _ = Imitation(tiny, **options).learn(lesson)  # type: ignore[misc]
    assert again.digest() == from_base.digest() != further.digest()
    frozen = replace(base, frozen=frozenset(list(base.tensors)[:1]))
    with pytest.raises(BadInput, match="cannot begin anew"):
        Imitation(tiny, restart=True).learn(Lesson(frozen, shown[:2], 1))


def _downs(adapter: Adapter) -> dict[str, Any]:
    return {name: tensor for name, tensor in adapter.tensors.items() if "lora_A" in name}


def test_few_demonstrations_show_more_than_as_many_tokens_drawn_at_random(tiny: Any, shown: list[Trajectory]) -> None:
    budget = sum(item.agent_tokens for item in shown) // 3
    actions = {}
    for by in ("coverage", "shortest", "random"):
        found = chosen(shown, budget, by)  # type: ignore[arg-type]
        assert 0 < sum(item.agent_tokens for item in found) <= budget
        actions[by] = {step.action for item in found for step in item.steps}
    assert actions["coverage"] >= actions["random"] and len(actions["coverage"]) >= len(actions["shortest"])
    assert chosen(shown, budget, "random")[0] == shown[0]
    lengths = [item.agent_tokens for item in chosen(shown, budget, "shortest")]
    assert lengths == sorted(item.agent_tokens for item in shown)[: len(lengths)]
    assert len(chosen(shown, 1, "coverage")) == 1
    start = Curated(tasks=12, agent_tokens=budget, by="random")
    assert start.trajectories("c", "maze", make_maze(), tiny.chat, 0) == chosen(shown, budget, "random")


def test_greedy_coverage_prefers_what_was_not_shown() -> None:
    def doing(*actions: str) -> Trajectory:
        item = attempt(1.0, "y" * len(actions))
        return replace(item, steps=tuple(Step("o", "r", "", action, True) for action in actions))

    once, same, other = doing("up"), doing("up"), doing("down")
    assert chosen([once, same, other], 4, "coverage") == [once, other]
    assert chosen([once, same, other], 4, "random") == [once, same]
    assert Case((once,)).by_step == ()


@pytest.mark.torture
@pytest.mark.parametrize(
    "learner",
    [
        {"name": "spear"},
        {"name": "group_policy_gradient", "advantage": "steps"},
        {"name": "group_policy_gradient", "mask_truncated_completions": True},
        {"name": "likelihood_replay"},
        {"name": "soft_labels", "share": 0.2},
        {"name": "distillation"},
        {"name": "imitation", "restart": True, "epochs": 6},
    ],
    ids=lambda learner: "-".join(map(str, learner.values())),
)
def test_the_lever_that_pays_is_found_by_these_too(learner: dict[str, Any], tmp_path: Path) -> None:
    given = {"learning_rate": 5e-3, "epochs": 2, "batch_size": 8, **learner}
    shares = explored(fedse.run(fedse.Experiment(**bandit("lever", learner=given)), tmp_path).folder)
    assert shares[0] < 0.8 and shares[-1] > max(0.85, shares[0]), shares


@pytest.mark.torture
@pytest.mark.parametrize("rule", ["spear", "distillation", "soft_labels"])
def test_a_stopped_run_of_these_ends_the_same(rule: str, tmp_path: Path) -> None:
    small = {"exploration": {"tasks": 3, "attempts": 4}}
    whole = fedse.run(fedse.Experiment(**bandit(rule, rounds=3, **small)), tmp_path / "whole")
    fedse.run(fedse.Experiment(**bandit(rule, rounds=2, **small)), tmp_path / "stopped")
    resumed = fedse.run(fedse.Experiment(**bandit(rule, rounds=3, **small)), tmp_path / "stopped")
    assert RunView.existing(whole.folder).digest_of(0) != resumed.adapter.digest() == whole.adapter.digest()
