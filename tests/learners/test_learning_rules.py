"""Learning rules: each says of every token what autograd says of the written-out loss, and finds the lever that pays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bandit_world import bandit, explored
from torch.nn import functional

import fedse
from fedse.fitting.loop import Fitting
from fedse.learners.dpo import Dpo
from fedse.learners.group_policy_gradient import GroupPolicyGradient
from fedse.learners.kto import Kto
from fedse.networks.swap import load_adapter, train_only
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.padded_network import PaddedNetwork
from fedse.networks.training.passes import PackedPass, PaddedPass, Pass, pass_for
from fedse.networks.training.token_packing import Example
from fedse.networks.training.wanted import alone
from fedse.objectives.cases import Case, CreditedExample, examples_of
from fedse.objectives.clipped_ratio import ClippedRatio
from fedse.objectives.covariance import Covariance
from fedse.objectives.dpo_loss import DpoLoss
from fedse.objectives.familiarity import FamiliarReplay
from fedse.objectives.groups import advantages, groups_of, uniform_share, win_shares
from fedse.objectives.kto_loss import KtoLoss
from fedse.objectives.likelihood_replay import LikelihoodReplay
from fedse.objectives.objective import Objective, Scored, Weighed
from fedse.objectives.replay import WithReplay
from fedse.objectives.sppo_loss import SppoLoss
from fedse.objectives.weighted_likelihood import WeightedLikelihood
from fedse.policies.transformer import TransformerPolicy
from fedse.rollouts.player import Player
from fedse.runs.reading import RunView
from fedse.types import Adapter, Episode, Lesson, Outcome, Purpose, Sampling, Step, Trajectory
from fedse.worlds.maze import Maze
from padded_reference import TARGETS, adapted, conversations
from small_llamas import NETWORKS

Written = Callable[[list[torch.Tensor], list[torch.Tensor], list[float]], torch.Tensor]
"""The loss of log-probabilities now, of those before, and of credits, as a paper has it."""
LENGTHS = (5, 9, 3, 7)
CREDITS = [1.2, -0.7, 0.4, -0.9]
RULES = ["group_policy_gradient", "kto", "dpo", "sppo", "self_imitation"]


def make_maze() -> Maze:
    return Maze(rules="brief", observation_length="brief", turn_limit=4)


def attempts(tiny: Any, start: Adapter, number: int, temperature: float = 1.0, adapter: str = "") -> list[Trajectory]:
    """At one task, by `start`; `adapter` is the digest that they are said to be from."""
    policy, task = TransformerPolicy(tiny, slots=number, reply_tokens=8), make_maze().tasks("train")[0]
    policy.load(start)
    episodes = [
        Episode("c", "maze", make_maze, task, Purpose.EXPLORE, 1, each, Sampling(each, temperature))
        for each in range(number)
    ]
    played = Player(policy, tiny.chat, tiny.context).play(episodes, adapter or start.digest())
    return [replace(item, rewards={"world": item.attempt % 2}) for item in played]


def scored(credits: Sequence[float], replayed: Sequence[bool] = (), spread: float = 0.3) -> list[Scored]:
    random = np.random.default_rng(3)
    found = []
    for number, (length, credit) in enumerate(zip(LENGTHS, credits, strict=True)):
        example = CreditedExample(
            np.arange(length + 1), np.ones(length + 1, bool), credit, any(replayed[number : number + 1])
        )
        before = -random.exponential(1.0, length)
        # Whole examples move too, or the mean ratio of none would leave the bounds.
        now = before + spread * (random.standard_normal(length) + (1.0, -1.5, -0.5, 0.5)[number])
        found.append(Scored(example, now, before))
    return found


def assert_autograd_agrees(objective: Objective, batch: Sequence[Scored], written: Written) -> Weighed:
    now = [torch.tensor(item.now, requires_grad=True) for item in batch]
    loss = written(now, [torch.tensor(item.before) for item in batch], [item.example.credit for item in batch])
    wanted = torch.autograd.grad(loss, now)
    weighed = objective.weigh(batch)
    assert weighed.loss == pytest.approx(loss.item(), rel=1e-10)
    for own, gradient in zip(weighed.weights, wanted, strict=True):
        assert np.allclose(own, -gradient.numpy(), rtol=1e-9, atol=1e-12)
    return weighed


def grpo_as_in_trl(
    loss_type: str, level: str, low: float, high: float, beta: float, longest: int, items: float
) -> Written:
    """Padded, with masks, in the order of TRL's `GRPOTrainer._compute_loss`."""

    def loss(now: list[torch.Tensor], before: list[torch.Tensor], credits: list[float]) -> torch.Tensor:
        logps, old = (torch.nn.utils.rnn.pad_sequence(values, batch_first=True) for values in (now, before))
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(item) for item in before], batch_first=True)
        gains = torch.tensor(credits, dtype=torch.float64)[:, None]
        log_ratio = logps - old
        if level == "sequence":
            log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1))[:, None]
        first = torch.exp(log_ratio)
        if loss_type == "cispo":
            per_token = -torch.clamp(first, max=high).detach() * gains * logps
        else:
            second = torch.clamp(first, 1 - low, 1 + high)
            per_token = -torch.min(first * gains, second * gains)
        per_token = per_token + beta * (torch.exp(old - logps) - (old - logps) - 1)
        summed = (per_token * mask).sum(-1)
        if loss_type == "grpo":
            return (summed / mask.sum(-1)).mean()
        if loss_type == "bnpo":
            return summed.sum() / mask.sum()
        if loss_type == "dr_grpo":
            return summed.sum() / (len(now) * longest)
        return summed.sum() / items

    return loss


@pytest.mark.parametrize("beta", [0.0, 0.05])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "cispo"])
def test_group_policy_gradients_are_those_of_trls_losses(loss_type: Any, level: str, beta: float) -> None:
    low, high, longest, items = 0.2, 1.3 if loss_type == "cispo" else 0.28, 11, 17.5
    rule = ClippedRatio(loss_type, level == "sequence", low, high, beta, 0.0, longest, items)
    batch = scored(CREDITS, spread=0.6)
    weighed = assert_autograd_agrees(rule, batch, grpo_as_in_trl(loss_type, level, low, high, beta, longest, items))
    assert weighed.told["clipped_share"] > 0, "or the bounds were not tried"
    assert weighed.told["kl"] > 0


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_ratio_is_to_what_was_drawn_and_the_divergence_to_the_reference(level: str) -> None:
    batch = scored(CREDITS, spread=0.6)
    random = np.random.default_rng(5)
    drawn = [item.before + 0.2 * random.standard_normal(len(item.now)) for item in batch]
    known = [replace(item, example=replace(item.example, drawn=own)) for item, own in zip(batch, drawn, strict=True)]
    rule = ClippedRatio("grpo", level == "sequence", 0.2, 0.28, 0.05, 0.0, 11, 17.5)
    ratio = grpo_as_in_trl("grpo", level, 0.2, 0.28, 0.0, 11, 17.5)

    def written(now: list[torch.Tensor], before: list[torch.Tensor], credits: list[float]) -> torch.Tensor:
        away = [old - item for old, item in zip(before, now, strict=True)]
        divergence = torch.stack([(own.exp() - own - 1).mean() for own in away]).mean()
        return ratio(now, [torch.tensor(own) for own in drawn], credits) + 0.05 * divergence

    mine, to_start = assert_autograd_agrees(rule, known, written), rule.weigh(batch)
    assert mine.told["kl"] == to_start.told["kl"] and mine.loss != pytest.approx(to_start.loss, rel=1e-3)


def test_what_is_replayed_beside_groups_is_imitated() -> None:
    batch = scored(CREDITS, replayed=[False, True, False, True])
    rule = ClippedRatio("bnpo", False, 0.2, 0.2, 0.0, 0.5, 1, 1.0)
    alone = grpo_as_in_trl("bnpo", "token", 0.2, 0.2, 0.0, 1, 1.0)

    def written(now: list[torch.Tensor], before: list[torch.Tensor], credits: list[float]) -> torch.Tensor:
        return alone(now[::2], before[::2], credits[::2]) - 0.5 * torch.cat(now[1::2]).mean()

    assert_autograd_agrees(rule, batch, written)


def sums(now: list[torch.Tensor], before: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([(one - other).sum() for one, other in zip(now, before, strict=True)])


def means(now: list[torch.Tensor], before: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([(one - other).mean() for one, other in zip(now, before, strict=True)])


@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_kto_is_the_papers_loss_with_the_batch_mean_as_reference_point(spread: float) -> None:
    def written(now: list[torch.Tensor], before: list[torch.Tensor], credits: list[float]) -> torch.Tensor:
        ratios = sums(now, before)
        point = ratios.detach().mean().clamp(min=0)
        good = 1.5 * (1 - torch.sigmoid(0.2 * (ratios - point)))
        bad = 0.8 * (1 - torch.sigmoid(0.2 * (point - ratios)))
        return torch.where(torch.tensor(credits, dtype=torch.float64) > 0, good, bad).mean()

    assert_autograd_agrees(KtoLoss(0.2, 1.5, 0.8), scored([1.0, -1.0, 1.0, -1.0], spread=spread), written)


def test_a_batch_without_failures_says_nothing_about_them() -> None:
    assert KtoLoss(0.2, 1.0, 1.0).weigh(scored([1.0] * 4)).told.keys() == {"success_log_ratio"}
    assert SppoLoss(1.0, length_normalized=False).weigh(scored([-0.5] * 4)).told.keys() == {"loser_log_ratio"}


@pytest.mark.parametrize(("normalized", "over"), [(False, sums), (True, means)])
def test_dpo_is_the_papers_loss_of_pairs(normalized: bool, over: Any) -> None:
    def written(now: list[torch.Tensor], before: list[torch.Tensor], _: list[float]) -> torch.Tensor:
        ratios = over(now, before)
        return -functional.logsigmoid(0.3 * (ratios[::2] - ratios[1::2])).mean()

    assert_autograd_agrees(DpoLoss(0.3, normalized), scored([1.0, -1.0, 1.0, -1.0]), written)


@pytest.mark.parametrize(("normalized", "over"), [(False, sums), (True, means)])
def test_sppo_is_half_the_square_of_what_is_missing(normalized: bool, over: Any) -> None:
    def written(now: list[torch.Tensor], before: list[torch.Tensor], credits: list[float]) -> torch.Tensor:
        return ((over(now, before) - 20 * torch.tensor(credits, dtype=torch.float64)) ** 2).mean() / 2

    assert_autograd_agrees(SppoLoss(20.0, normalized), scored([0.5, -0.5, 0.1, -0.2]), written)


def test_self_imitation_is_a_weighted_likelihood() -> None:
    def written(now: list[torch.Tensor], before: list[torch.Tensor], credits: list[float]) -> torch.Tensor:
        return -sum(credit * item.sum() for credit, item in zip(credits, now, strict=True)) / sum(LENGTHS)

    assert_autograd_agrees(WeightedLikelihood(), scored([1.0, 0.5, 2.0, 0.25]), written)


def in_the_open(network: Any, examples: Sequence[Example]) -> torch.Tensor:
    """Log-probabilities of the agent's tokens by the network's own forward pass, one example at a time."""
    found = []
    for example in examples:
        ids = torch.from_numpy(example.ids)
        logits = network(input_ids=ids[None], use_cache=False).logits[0, :-1].float()
        chosen = torch.log_softmax(logits, -1).gather(1, ids[1:, None]).squeeze(1)
        found.append(chosen[torch.from_numpy(example.train[1:])])
    return torch.cat(found)


def padded_pass(network: Any) -> Pass:
    vector = LoraVector(network)
    return PaddedPass(vector, PaddedNetwork(network, vector))


@pytest.mark.parametrize(("make", "opening"), [(lambda network: pass_for(network, False), 9), (padded_pass, 0)])
def test_a_pass_scores_tokens_and_weighs_each_of_them(make: Any, opening: int) -> None:
    network = adapted(NETWORKS["qwen2"](), TARGETS["all"])
    examples = conversations(40, 25, 60, 12)
    through = make(network)
    assert type(through) is (PackedPass if opening else PaddedPass)
    wanted = in_the_open(network, examples)
    weights = np.random.default_rng(5).standard_normal(len(wanted)).astype(np.float32)
    loss = -(wanted * torch.from_numpy(weights)).sum()
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradient = torch.cat([item.flatten() for item in torch.autograd.grad(loss, parameters)])
    assert np.allclose(through.log_probabilities(examples, opening), wanted.detach().numpy(), atol=2e-5)
    through.vector.gradient.zero_()
    found, _ = through.add_gradient(examples, opening, weights)
    assert found.item() == pytest.approx(loss.item(), rel=1e-5)
    assert (through.vector.gradient - gradient).norm() < 1e-5 * gradient.norm()


def attempt(task: str, reward: float, number: int = 0, world: str = "bandit") -> Trajectory:
    outcome = Outcome.SUCCESS if reward == 1 else Outcome.FAILURE
    return Trajectory(
        client="c", world=world, task=task, purpose=Purpose.EXPLORE, round=1, attempt=number, adapter="a",
        steps=(Step("o", "r", "", "a", True),), closing="", outcome=outcome, score=reward, token_ids=(1, 2, 3),
        train_mask=(False, True, True), rewards={"world": reward},
    )  # fmt: skip


def test_advantages_are_taken_within_a_task_and_equal_attempts_count_each() -> None:
    told = [
        attempt("x", 1.0),
        attempt("y", 0.0),
        attempt("x", 0.0),
        attempt("x", 0.0),
        attempt("y", 0.0),
        attempt("x", 1.0),
    ]
    groups = groups_of(told)
    assert [len(group) for group in groups] == [4, 2] and uniform_share(groups) == 0.5
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0])
    for scale, divisor in {
        "group": rewards.std().item() + 1e-4,
        "batch": torch.tensor([item.reward for item in told]).std().item() + 1e-4,
        "mean": 0.5 + 1e-4,
        "none": 1.0,
    }.items():
        found = advantages(groups, scale)  # type: ignore[arg-type]
        assert [item.task for item, _ in found] == ["x"] * 4
        assert [value for _, value in found] == pytest.approx(((rewards - 0.5) / divisor).tolist())
    assert len(groups_of([attempt("x", 1.0), attempt("x", 0.0, world="other")])) == 2
    assert win_shares([attempt("x", 1.0), attempt("x", 0.0), attempt("x", 0.0)]) == pytest.approx([1.0, 0.25, 0.25])


def test_dpo_pairs_a_failure_with_a_success_at_the_same_task_and_kto_needs_no_pair(tiny: Any) -> None:
    won, lost = attempt("x", 1.0), attempt("x", 0.0, 1)
    earlier, other = attempt("y", 1.0), attempt("y", 0.0, 1)
    alone = attempt("z", 0.0)
    lesson = Lesson(Adapter({}), [earlier], 0, [won, lost, other, alone])
    assert [case.trajectories for case in Dpo(tiny).cases(lesson)] == [(won, lost), (earlier, other)]
    many = Lesson(Adapter({}), [], 0, [won, *(attempt("x", 0.0, number) for number in range(9))])
    assert len(Dpo(tiny, max_pairs_per_task=3).cases(many)) == 3
    assert [case.credits for case in Kto(tiny).cases(lesson)] == [(1.0,), (-1.0,), (-1.0,), (-1.0,)]


def test_attempts_that_do_not_differ_teach_nothing_and_the_learner_abstains(tiny: Any) -> None:
    learner = GroupPolicyGradient(tiny)
    start = tiny.initial_adapter(0)
    same = Lesson(start, [], 0, [attempt("x", 0.0), attempt("x", 0.0, 1)])
    assert learner.learn(same) is None
    assert learner.learn_together([same, same]) == [None, None]


@pytest.mark.slow
def test_the_gap_between_sampler_and_learner_is_told_where_the_adapter_and_the_distribution_are_the_same(
    tiny: Any,
) -> None:
    start = tiny.initial_adapter(3)

    def lesson(temperature: float, adapter: str) -> Lesson:
        return Lesson(start, [], 0, attempts(tiny, start, 6, temperature, adapter))

    def gap(given: Lesson) -> float | None:
        _, metrics = GroupPolicyGradient(tiny, epochs=1).learn(given)  # type: ignore[misc]
        return metrics.get("sampler_gap")

    told = lesson(1.0, start.digest())
    assert all(len(item.log_probs) == item.agent_tokens for item in told.fresh)
    found = gap(told)
    assert found is not None and found < 1e-5
    apart = [replace(item, log_probs=tuple(value - 0.25 for value in item.log_probs)) for item in told.fresh]
    assert gap(told._replace(fresh=apart)) == pytest.approx(0.25, abs=1e-4)
    assert gap(lesson(1.0, "another adapter")) is None
    assert gap(lesson(0.5, start.digest())) is None


@pytest.mark.slow
def test_only_what_a_rule_compares_with_its_beginning_is_scored_beforehand(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tiny.initial_adapter(3)
    played = attempts(tiny, start, 6)
    seen: list[str] = []
    score, learn = PackedPass.log_probabilities, PackedPass.add_gradient

    def scoring(self: PackedPass, part: Sequence[Example], opening: int) -> Any:
        seen.extend(["scored"] * len(part))
        return score(self, part, opening)

    def learning(self: PackedPass, *given: Any, **more: Any) -> Any:
        seen.append("learned")
        return learn(self, *given, **more)

    monkeypatch.setattr(PackedPass, "log_probabilities", scoring)
    monkeypatch.setattr(PackedPass, "add_gradient", learning)

    def change(adapter: Adapter) -> Any:
        return np.concatenate([(adapter.tensors[name] - start.tensors[name]).ravel() for name in start.tensors])

    def cosine(one: Any, other: Any) -> float:
        return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))

    def told(fresh: list[Trajectory], **options: Any) -> tuple[int, dict[str, float], Adapter]:
        """Examples that were scored before the first of three steps."""
        seen.clear()
        learner = GroupPolicyGradient(tiny, epochs=1, batch_size=2, learning_rate=5e-3, **options)
        adapter, metrics = learner.learn(Lesson(start, [], 0, fresh))  # type: ignore[misc]
        return seen.index("learned"), metrics, adapter

    of_the_step, known, learned = told(played)
    assert of_the_step == 2 and known["sampler_gap"] < 1e-5
    for one, options in ((played, {"beta": 1e-9}), ([replace(item, log_probs=()) for item in played], {})):
        beforehand, metrics, other = told(one, **options)
        assert beforehand == 6 and ("sampler_gap" in metrics) == bool(one[0].log_probs)
        assert metrics["entropy"] == pytest.approx(known["entropy"], rel=1e-4)
        assert metrics["kl"] == pytest.approx(known["kl"], rel=1e-2, abs=1e-6)
        assert cosine(change(other), change(learned)) > 0.999
    others, _, _ = told([replace(item, adapter="another") for item in played])
    assert others == 6  # What another adapter drew with says nothing of the beginning.
    with_demonstrations, _, _ = told(played, imitation=0.5)
    assert with_demonstrations == 2  # What is imitated is compared with nothing.


def ratio(beta: float = 0.0, imitation: float = 0.0, entropy: Covariance | None = None) -> ClippedRatio:
    return ClippedRatio("dapo", False, 0.2, 0.28, beta, imitation, 64, 40.0, entropy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    [
        WithReplay(ratio(), ratio(), 0.5),
        WithReplay(ratio(beta=0.5), ratio(beta=0.5), 0.5),
        WithReplay(*(ratio(entropy=Covariance("kl_cov", 0.2)),) * 2, 0.5),
        ratio(imitation=0.5),
        ratio(imitation=0.5, entropy=Covariance("kl_cov", 0.2)),
        WeightedLikelihood(),
        FamiliarReplay(0.004, 1.0),
        LikelihoodReplay(2.0),
    ],
    ids=[
        *("replay", "replay and divergence", "replay and kl_cov", "imitation", "imitation and kl_cov", "likelihood"),
        *("familiar", "likelihood_replay"),
    ],
)
def test_what_is_not_scored_beforehand_would_not_have_changed_what_is_learned(
    tiny: Any, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tiny.initial_adapter(3)
    played = attempts(tiny, start, 8)
    older = [
        replace(item, adapter="older", log_probs=tuple(value - 1.0 for value in item.log_probs)) for item in played[4:7]
    ]
    cases = [
        *(Case((item,), (1.0 - 2 * (number % 2),)) for number, item in enumerate(played[:4])),
        *(Case((item,), replayed=True) for item in (*older, replace(played[7], log_probs=()))),
    ]
    settings = {"epochs": 2, "learning_rate": 5e-3, "schedule": "constant", "weight_decay": 0.0, "batch_size": 4}

    def learned() -> Any:
        load_adapter(tiny.network, start)
        train_only(tiny.network, start)
        through = pass_for(tiny.network, checkpointing=False)
        through.begin(start)
        begun = through.vector.values.detach().clone()
        fitting = Fitting(
            through, cases, tiny.context, 1, objective, start, **settings, tokens_at_once=4_096, max_grad_norm=1.0
        )
        while alone(fitting.step()):
            pass
        return (through.vector.values.detach() - begun).numpy()

    found = learned()
    monkeypatch.setattr(type(objective), "refers_to", lambda *_: True)
    wanted = learned()
    assert found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted) > 0.9999
    assert np.linalg.norm(found - wanted) < 0.02 * np.linalg.norm(wanted)


def test_log_probabilities_are_cut_with_their_conversation() -> None:
    told = replace(
        attempt("x", 1.0), token_ids=(1, 2, 3, 4), train_mask=(False, True, False, True), log_probs=(-1.0, -2.0)
    )
    for context, expected in ((4, [-1.0, -2.0]), (3, [-1.0])):
        (example,) = examples_of([told], context)
        assert example.drawn is not None and example.drawn.tolist() == expected
    (example,) = examples_of([replace(told, reshaped=True)], 4)
    assert example.drawn is None


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_the_lever_that_pays_is_found(rule: str, tmp_path: Path) -> None:
    shares = explored(fedse.run(fedse.Experiment(**bandit(rule)), tmp_path).folder)
    assert shares[0] < 0.8 and shares[-1] > max(0.85, shares[0]), shares


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["group_policy_gradient", "kto"])
def test_a_run_that_was_stopped_ends_the_same(rule: str, tmp_path: Path) -> None:
    small = {"exploration": {"tasks": 3, "attempts": 4}}
    whole = fedse.run(fedse.Experiment(**bandit(rule, rounds=2, **small)), tmp_path / "whole")
    fedse.run(fedse.Experiment(**bandit(rule, rounds=1, **small)), tmp_path / "stopped")
    resumed = fedse.run(fedse.Experiment(**bandit(rule, rounds=2, **small)), tmp_path / "stopped")
    first = RunView.existing(whole.folder).digest_of(0)
    assert first != resumed.adapter.digest() == whole.adapter.digest()


@pytest.mark.slow
def test_the_rule_of_ones_own_on_the_page_about_rules_finds_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs/learning.md").read_text()
    (code,) = re.findall(r'```python title="both_sides.py"\n(.*?)```', page, re.DOTALL)
    (tmp_path / "both_sides.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    shares = explored(fedse.run(fedse.Experiment(**bandit("both_sides:BothSides", name="own")), tmp_path).folder)
    assert shares[0] < 0.8 and shares[-1] > 0.85, shares


def test_failures_reach_the_learner_and_are_not_remembered(tmp_path: Path) -> None:
    found = fedse.run(fedse.Experiment(**bandit("kto", rounds=1)), tmp_path)
    report = json.loads((found.folder / "rounds" / "0001" / "report.json").read_text())["clients"]["one"]
    counts = report["counts"]
    assert "sampler_gap" not in report["metrics"], "tokens were drawn among legal ones only"
    assert counts["fresh"] == counts["explored"] == 48 and 0 < counts["successes"] < 48
    assert report["metrics"]["failure_log_ratio"] < report["metrics"]["success_log_ratio"]
    assert counts["buffer"] <= counts["successes"]
