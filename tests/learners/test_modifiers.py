"""Modifiers of policy gradients: tokens that take entropy away, sets of attempts, wins, and a price on words."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedse
from fedse.errors import BadInput
from fedse.learners.group_policy_gradient import GroupPolicyGradient
from fedse.objectives.cases import CreditedExample
from fedse.objectives.clipped_ratio import ClippedRatio
from fedse.objectives.covariance import Covariance
from fedse.objectives.groups import groups_of, solved_share
from fedse.objectives.objective import Scored
from fedse.objectives.set_advantages import set_advantages
from fedse.types import Lesson, Outcome, Purpose, Step, Trajectory

CREDITS = (1.5, -0.8, 0.6, -1.1)


def batch() -> list[Scored]:
    random = np.random.default_rng(1)
    found = []
    for number, credit in enumerate(CREDITS):
        length = 12 + number
        example = CreditedExample(np.arange(length + 1) + number, np.ones(length + 1, bool), credit)
        before = -random.exponential(1.5, length)
        found.append(Scored(example, before + 0.2 * random.standard_normal(length), before))
    return found


def by_the_paper(now: torch.Tensor, before: torch.Tensor, credit: torch.Tensor, way: str, share: float) -> torch.Tensor:
    """Over all tokens in one row, in the order in which verl writes it, with the mean over tokens."""
    with torch.no_grad():
        covariance = (credit - credit.mean()) * (now - now.mean())
    number = max(1, int(share * len(now)))
    ratio = torch.exp(now - before)
    if way == "kl_cov":
        losses = -credit * ratio
        top = torch.topk(covariance, number).indices
        losses[top] = losses[top] + 0.7 * (now - before).abs()[top]
        return losses.mean()
    first, second = -credit * ratio, -credit * torch.clamp(ratio, 0.8, 1.2)
    with torch.no_grad():
        free = ((covariance > 1) & (covariance < 5) & (first >= second)).nonzero().flatten()
    assert len(free) <= number, "the test leaves out all of them, whatever chance says"
    kept = torch.ones_like(now)
    kept[free] = 0
    return (torch.maximum(first, second) * kept).mean()


@pytest.mark.parametrize(("way", "share"), [("kl_cov", 0.1), ("clip_cov", 0.5)])
def test_the_weights_are_those_of_the_papers_loss(way: Any, share: float) -> None:
    given = batch()
    tokens = sum(len(item.now) for item in given)
    rule = ClippedRatio(
        loss_type="dapo",
        by_sequence=False,
        low=0.2,
        high=0.2,
        beta=0.0,
        imitation=0.0,
        longest=16,
        tokens_per_batch=tokens,
        entropy=Covariance(way, share),
        entropy_weight=0.7,
    )
    now = torch.tensor(np.concatenate([item.now for item in given]), requires_grad=True)
    before = torch.tensor(np.concatenate([item.before for item in given]))
    credit = torch.tensor(np.concatenate([np.full(len(item.now), item.example.credit) for item in given]))
    loss = by_the_paper(now, before, credit, way, share)
    weighed = rule.weigh(given)
    (gradient,) = torch.autograd.grad(loss, now)
    np.testing.assert_allclose(np.concatenate(weighed.weights), -gradient.numpy(), rtol=1e-9, atol=1e-12)
    assert weighed.loss == pytest.approx(loss.item(), rel=1e-10)
    assert weighed.told["entropy"] == pytest.approx(-before.mean().item())
    if way == "kl_cov":
        drawn = [replace(item, example=replace(item.example, drawn=item.before + 1e-6)) for item in given]
        for own, other in zip(rule.weigh(drawn).weights, weighed.weights, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)
        still = [replace(item, now=item.before) for item in drawn]
        held = rule.entropy.chosen(still, []) if rule.entropy else []
        for own, item, mask in zip(rule.weigh(still).weights, still, held, strict=True):
            expected = np.exp(-1e-6) * item.example.credit / tokens
            np.testing.assert_allclose(own[mask], expected, rtol=1e-9), "nothing pulls before anything has moved"
    plain = ClippedRatio("dapo", False, 0.2, 0.2, 0.0, 0.0, 16, tokens).weigh(given)
    assert any((own != other).any() for own, other in zip(weighed.weights, plain.weights, strict=True))


def test_few_tokens_are_left_out_and_the_same_ones_again() -> None:
    given = batch()
    counts = [np.ones(len(item.now), dtype=np.bool_) for item in given]
    one, again = (Covariance("clip_cov", 2e-4).chosen(given, counts) for _ in range(2))
    assert sum(int(mask.sum()) for mask in one) == 1
    assert all((a == b).all() for a, b in zip(one, again, strict=True))


def attempt(task: str, reward: float, actions: str) -> Trajectory:
    steps = tuple(Step("", action, "", action, True) for action in actions)
    outcome = Outcome.SUCCESS if reward > 0.5 else Outcome.FAILURE
    ids, mask = tuple(range(9)), (False, *[True] * 8)
    own = ("c", "w", task, Purpose.EXPLORE, 1, 0, "", steps, "", outcome, reward, ids, mask)
    return Trajectory(*own, rewards={"world": reward})


def test_sets_are_worth_their_reward_times_their_variety() -> None:
    group = [attempt("a", reward, actions) for reward, actions in ((1, "xy"), (1, "xy"), (1, "z"), (0, "q"))]
    found = dict(zip(map(id, group), (value for _, value in set_advantages([group], 2)), strict=True))

    def worth(chosen: tuple[int, ...]) -> float:
        kinds = {(group[number].steps[0].action, len(group[number].steps)) for number in chosen}
        return sum(group[number].reward for number in chosen) / 2 * len(kinds) / 2

    sets = list(combinations(range(4), 2))
    everybody = np.mean([worth(chosen) for chosen in sets])
    for number, item in enumerate(group):
        own = np.mean([worth(chosen) for chosen in sets if number in chosen])
        assert found[id(item)] == pytest.approx(own - everybody)
    assert found[id(group[2])] > found[id(group[0])] == found[id(group[1])] > found[id(group[3])]
    lost = [attempt("d", -0.5, actions) for actions in ("x", "x", "y")] + [attempt("d", 0, "x")]
    values = [value for _, value in set_advantages([lost], 2)]
    assert values[0] == values[1] < values[2] < values[3], (
        "variety is worth something where rewards are below zero, too"
    )
    alike = [attempt("b", 1, "x") for _ in range(3)]
    assert set_advantages([alike, group[:1]], 2) == [], "nothing to tell them apart by, and a group that is too small"
    with pytest.raises(BadInput, match=r"40 attempts have 91,390 sets of 4, and 20,000 are the most"):
        set_advantages([[attempt("c", 0, "x")] * 40], 4)


def test_wins_are_over_the_others_and_the_rules_tell_how_many_tasks_were_solved(tiny: Any) -> None:
    fresh = [attempt("a", value, "x") for value in (0.0, 0.2, 1.0)] + [attempt("b", 0.0, "x")] * 2
    learner = GroupPolicyGradient(tiny, advantage="wins")
    lesson = Lesson(tiny.initial_adapter(0), [], 0, fresh)
    assert [case.credits[0] for case in learner.cases(lesson)] == [-0.5, 0.0, 0.5]
    assert learner.told_of(lesson) == {"uniform_groups": 0.5, "solved_groups": 0.5}
    assert solved_share(groups_of([])) == 0.0


def test_tokens_cost_and_the_score_stays_the_worlds() -> None:
    from fedse.judges.few_tokens import FewTokens

    judge: Any = FewTokens(site=None, weight=0.5, max_tokens=16)  # type: ignore[arg-type]
    assert judge.rewards(attempt("a", 1.0, "x")) == {"world": 1.0, "tokens": -0.25}
    judge.max_tokens = 4
    assert judge.rewards(attempt("a", 1.0, "x"))["tokens"] == -0.5
    assert judge.rewards(attempt("a", 0.0, "x"))["tokens"] == 0.0, "a short failure is no better than a long one"
    assert judge.rewards(attempt("a", -1.0, "x")) == {"world": -1.0, "tokens": 0.0}, "nor is a long one better"


@pytest.mark.parametrize(
    ("setting", "needed"),
    [
        ("advantage=wins scale_rewards=batch", "scale_rewards` does something with `advantage: mean` only"),
        ("set_size=3", "set_size` does something with `advantage: sets` only"),
        ("entropy_share=0.1", "entropy_share` does something with `entropy` only"),
        ("entropy=kl_cov epsilon=0.1", "epsilon` does something with `ratios that are clipped` only"),
        ("loss_type=cispo epsilon=0.1", "epsilon` does something with `ratios that are clipped` only"),
        ("entropy=clip_cov entropy_weight=2", "entropy_weight` does something with `entropy: kl_cov` only"),
    ],
)
def test_what_would_have_no_effect_is_refused(setting: str, needed: str, tiny_file: Path) -> None:
    settings = [f"learner.{item}" for item in setting.split()]
    with pytest.raises(BadInput, match=needed):
        fedse.load_experiment(tiny_file, ["learner.name=group_policy_gradient", *settings])


@pytest.mark.parametrize("setting", ["learner.loss_type=cispo", "learner.importance_sampling_level=sequence"])
def test_what_has_no_ratios_of_tokens_is_refused(setting: str, tiny_file: Path) -> None:
    settings = ["learner.name=group_policy_gradient", "learner.entropy=kl_cov", setting]
    with pytest.raises(BadInput, match="chooses tokens by their own ratios"):
        fedse.load_experiment(tiny_file, settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["learner.name=spear", "buffer.history=false"], "replays earlier rounds, and `buffer.history: false` forgets"),
        (["learner.name=familiar", "buffer.history=false"], "replays earlier rounds"),
        (["learner.name=distillation", "aggregator=flora"], "needs adapters whose tensors are alike in every round"),
        (["learner.name=distillation", "mix=personal"], "needs adapters whose tensors are alike in every round"),
        (["learner.restart=true", "aggregator=ffa_lora"], "begins anew with all of the adapter"),
        (["learner.restart=true", "aggregator=fedex_lora"], "begins anew with all of the adapter"),
        (["learner.name=soft_labels", "learner.restart=true"], "with `restart: true` that is the base model"),
    ],
)
def test_lessons_that_would_fail_later_or_teach_nothing_are_refused(
    settings: list[str], sentence: str, tiny_file: Path
) -> None:
    with pytest.raises(BadInput, match=sentence):
        fedse.load_experiment(tiny_file, settings)
    fedse.load_experiment(tiny_file, ["learner.restart=true"])
