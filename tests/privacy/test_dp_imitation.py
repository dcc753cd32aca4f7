"""Learning under noise: a trajectory's part in a step is bounded, the noise is the site's secret, and epsilon is right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats

import fedse
from fedse.cli.show import show
from fedse.errors import AnsweredAlready, BadInput, RunConflict
from fedse.fitting.private_loop import PrivateFitting
from fedse.learners.dp_imitation import DpImitation
from fedse.models.tiny import Tiny
from fedse.networks.swap import load_adapter, train_only
from fedse.networks.training.passes import pass_for
from fedse.networks.training.wanted import alone
from fedse.privacy.accountant import enough_noise, epsilon
from fedse.privacy.answered import AnsweredOnce
from fedse.privacy.noise import NoiseKey, SecretRandom
from fedse.starts.demonstrations import demonstrate
from fedse.types import Adapter, Lesson, RoundTask, Trajectory
from fedse.worlds.maze import Maze

NOISY = ["learner.name=dp_imitation", "learner.noise_multiplier=0.8", "learner.sampling_rate=0.5", "learner.epochs=1"]
DELTA = 1e-5


def solved(delta_of: Callable[[float], float]) -> float:
    return float(optimize.brentq(lambda value: delta_of(value) - DELTA, 1e-6, 200.0))


@pytest.mark.parametrize(("sigma", "steps"), [(2.0, 10), (1.0, 1), (5.0, 400)])
def test_epsilon_of_unsampled_noise_is_the_exact_one(sigma: float, steps: int) -> None:
    """All steps together are one Gaussian mechanism, whose curve is known (Balle and Wang)."""
    far = np.sqrt(steps) / sigma

    def delta(value: float) -> float:
        normal = stats.norm.cdf
        return float(normal(far / 2 - value / far) - np.exp(value) * normal(-far / 2 - value / far))

    assert epsilon(sigma, 1.0, steps, DELTA) == pytest.approx(solved(delta), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.1)])
def test_epsilon_of_one_sampled_step_is_that_of_its_two_densities(sigma: float, rate: float) -> None:
    normal = stats.norm.pdf

    def delta(value: float) -> float:
        def beyond(x: float, added: bool) -> float:
            mixture = (1 - rate) * normal(x, 0, sigma) + rate * normal(x, 1, sigma)
            one, other = (mixture, normal(x, 0, sigma)) if added else (normal(x, 0, sigma), mixture)
            return float(max(one - np.exp(value) * other, 0.0))

        return max(
            integrate.quad(beyond, -12 * sigma, 1 + 12 * sigma, args=(added,), limit=400)[0] for added in (True, False)
        )

    assert epsilon(sigma, rate, 1, DELTA) == pytest.approx(solved(delta), rel=0.01)


@pytest.mark.slow
def test_little_noise_is_told_to_protect_nobody_and_quickly() -> None:
    found = [epsilon(noise, 0.1, 60, DELTA) for noise in (0.001, 0.1, 0.29)]
    assert np.isfinite(found).all() and found[0] > 1e6 > found[1] > found[2] > epsilon(0.8, 0.1, 60, DELTA)


@pytest.mark.slow
def test_enough_noise_keeps_within_the_budget_and_is_not_twice_too_much() -> None:
    found = enough_noise(0.2, 50, DELTA, 4.0)
    assert epsilon(found, 0.2, 50, DELTA) <= 4.0 < epsilon(found * 0.8, 0.2, 50, DELTA)


def test_secret_numbers_are_normal_and_follow_from_the_key_alone(tmp_path: Path) -> None:
    drawn = SecretRandom(bytes(32)).normal(20_001)
    assert len(drawn) == 20_001 and stats.kstest(drawn, "norm").pvalue > 0.01
    assert abs(np.corrcoef(drawn[:10_000], drawn[10_000:20_000])[0, 1]) < 0.04
    assert stats.kstest(SecretRandom(bytes(32)).uniform(10_000), "uniform").pvalue > 0.01
    key = NoiseKey(tmp_path / "noise.key", True)
    assert (tmp_path / "noise.key").stat().st_mode & 0o777 == 0o600
    assert key.secret(1, 1, "a") == NoiseKey(tmp_path / "noise.key", False).secret(1, 1, "a") != key.secret(2, 1, "a")
    assert key.secret(1, 1, "a") != NoiseKey(tmp_path / "other.key", True).secret(1, 1, "a")
    (tmp_path / "noise.key").write_bytes(b"short")
    for name in ("noise.key", "third.key"):
        with pytest.raises(BadInput, match="missing or damaged, with the secret behind the noise"):
            NoiseKey(tmp_path / name, False)


def test_what_else_is_learned_gets_other_noise(tmp_path: Path, shown: list[Trajectory]) -> None:
    key = NoiseKey(tmp_path / "noise.key", True)
    assert key.secret(1, 1, "a", *shown) == key.secret(1, 1, "a", *shown)
    assert len({key.secret(1, 1, "a", *shown[:number]) for number in range(5)}) == 5


@pytest.fixture(scope="module")
def shown(tiny: Any) -> list[Trajectory]:
    maze = Maze(mode="original", rules="brief", observation_length="brief")
    return [demonstrate("c", "maze", maze, task, tiny.chat) for task in maze.tasks("train")[:4]]


def stepped(tiny: Any, start: Adapter, shown: list[Trajectory], noise: float, bound: float) -> torch.Tensor:
    """The gradient of a step in which every trajectory is drawn."""
    load_adapter(tiny.network, start)
    train_only(tiny.network, start)
    through = pass_for(tiny.network, False)
    through.begin(start)
    learner = DpImitation(tiny, max_grad_norm=bound, sampling_rate=1.0, epochs=1, batch_size=2)
    fitting = PrivateFitting(
        through,
        learner.cases(Lesson(start, shown, 0)),
        tiny.context,
        secret=bytes(32),
        noise_multiplier=noise,
        sampling_rate=1.0,
        steps=1,
        tokens_at_once=2048,
        **learner._settings(),
    )
    alone(fitting.step())
    return through.vector.gradient.detach().clone()


def stirred(start: Adapter) -> Adapter:
    random = np.random.default_rng(0)
    return replace(
        start,
        tensors={name: (t + random.normal(0, 0.05, t.shape)).astype(np.float32) for name, t in start.tensors.items()},
    )


@pytest.mark.slow
def test_a_step_is_the_sum_of_cut_gradients_and_noise(tiny: Any, shown: list[Trajectory]) -> None:
    start = stirred(tiny.initial_adapter(0))
    load_adapter(tiny.network, start)
    train_only(tiny.network, start)
    vector = pass_for(tiny.network, False).vector
    plain = []
    for item in shown:
        ids, mask = torch.tensor([item.token_ids]), torch.tensor([item.train_mask])
        logits = tiny.network(input_ids=ids, use_cache=False).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits[mask[0, 1:]], ids[0, 1:][mask[0, 1:]])
        parts = torch.autograd.grad(loss, vector.parameters)
        plain.append(torch.cat([part.flatten() for part in parts]))
    norms = sorted(float(gradient.norm()) for gradient in plain)
    bound = (norms[1] + norms[2]) / 2
    wanted = sum(gradient * min(1.0, bound / float(gradient.norm())) for gradient in plain) / 2
    quiet = stepped(tiny, start, shown, 0.0, bound)
    torch.testing.assert_close(quiet.flatten(), wanted, rtol=1e-3, atol=1e-5)
    # Somebody with a large gradient changes a step by no more than the bound.
    for left_out in range(len(shown)):
        others = [item for number, item in enumerate(shown) if number != left_out]
        assert float((quiet - stepped(tiny, start, others, 0.0, bound)).norm()) <= bound / 2 * 1.001
    noise = (stepped(tiny, start, shown, 3.0, bound) - quiet).flatten().double().numpy() / (3.0 * bound / 2)
    assert stats.kstest(noise, "norm").pvalue > 0.001


@pytest.mark.gpu
def test_a_step_on_a_gpu_in_bfloat16_is_that_of_a_cpu(shown: list[Trajectory]) -> None:
    """Trajectories of one pass are cut one by one, and the noise is the same."""
    found = {}
    for device, dtype in (("cpu", "float32"), ("cuda", "bfloat16")):
        model = Tiny(width=64, layers=2, device=device, dtype=dtype, lora={"rank": 1, "targets": ["q_proj", "v_proj"]})
        start = stirred(model.initial_adapter(0))
        quiet, loud = (stepped(model, start, shown, noise, 0.01).cpu() for noise in (0.0, 1.0))
        found[device] = quiet, loud - quiet
    for on_cpu, on_gpu in zip(found["cpu"], found["cuda"], strict=True):
        assert float((on_gpu - on_cpu).norm() / on_cpu.norm()) < 0.05


def task(round: int, value: float) -> RoundTask:
    vector = np.full(4, value, dtype=np.float32)
    return RoundTask(round, "train", vector, (("a", (4,)),), {})


def test_a_round_is_answered_once(tmp_path: Path) -> None:
    once, sent = AnsweredOnce(tmp_path / "answered.safetensors"), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(once.first(sent, task(1, 0.0)), sent)
    # Another computation of the same, such as a GPU's, does not leave.
    np.testing.assert_array_equal(once.first(sent + 1e-6, task(1, 0.0)), sent)
    with pytest.raises(AnsweredAlready, match="noise is accounted for once in a round, so nothing was done"):
        once.check(task(1, 0.5))
    once.first(sent + 1, task(2, 0.0))
    with pytest.raises(AnsweredAlready, match="train-0001 is asked for, and round 2 has been answered already"):
        AnsweredOnce(tmp_path / "answered.safetensors").check(task(1, 0.0))
    (tmp_path / "answered.safetensors").write_bytes(b"broken")
    with pytest.raises(RunConflict, match="damaged, with what this client has sent under noise"):
        once.check(task(3, 0.0))


def report(folder: Path, number: int) -> Any:
    return json.loads((folder / f"rounds/{number:04d}/report.json").read_text())["clients"]


@pytest.mark.slow
def test_a_run_tells_epsilon_and_resumes_to_the_same_bits(
    tiny_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["evaluation.tasks=1", "evaluation.test_tasks=0", "exploration.tasks=1", "start.tasks=3"]
    experiment = fedse.load_experiment(tiny_file, [*NOISY, *short])
    first = fedse.run(experiment.model_copy(update={"rounds": 1}), tmp_path / "runs")
    shutil.copytree(tmp_path / "runs", tmp_path / "again")
    whole, again = (fedse.run(experiment, tmp_path / name) for name in ("runs", "again"))
    assert whole.adapter.digest() == again.adapter.digest(), "the key is the same, and so is the noise"
    for number in (1, 2):
        for client in report(whole.folder, number).values():
            told = client["metrics"]
            assert told.keys() == {"epsilon", "steps"}, "a loss has no noise"
            assert told["epsilon"] == pytest.approx(epsilon(0.8, 0.5, 2 * number, DELTA))
    show(whole.folder)
    listed = ", ".join(f"{name} {epsilon(0.8, 0.5, 4, DELTA):.2f}" for name in sorted(experiment.clients))
    assert f"Epsilon after round 2: {listed}." in capsys.readouterr().out
    other = fedse.run(experiment.model_copy(update={"rounds": 1}), tmp_path / "other")
    assert other.adapter.digest() != first.adapter.digest(), (
        "the seed is everybody's, and the noise is not drawn from it"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["curriculum=sec"], "chooses tasks by what happened to others, without noise: use `curriculum: uniform`"),
        (["rescue=hindsight"], "an episode must be one trajectory, and `rescue: hindsight` makes a second one of it"),
        (["filter=best_of_task"], "needs a filter that looks at each trajectory by itself"),
        (["buffer.max_per_task=1"], "a trajectory must not decide whether another is learned from"),
        (["start.name=curated"], "as `start: curated` lets it: begin with `demonstrations`, `recorded` or `none`"),
        (["mix=feddpa"], "accounts for one lesson per round"),
        (["aggregator=size_weighted"], r"weighs them by counts without noise \(learned_from\)"),
        (["aggregator=fedsa_lora"], "keeps a part at the site that a repeated round would change"),
        (["evaluation.after_learning=1"], "leave `evaluation.learned_by_world`, `evaluation.after_learning` and"),
        (["probes=[{name: drift, learned: true}]"], "and `learned` of probes out: they tell counts of what is learned"),
        (
            ["learner.epsilon=1"],
            r"2 rounds spend epsilon = \d+\.\d\d, and 1 may be spent: raise `noise_multiplier` to \d",
        ),
    ],
)
def test_what_epsilon_would_not_cover_is_refused(settings: list[str], sentence: str, tiny_file: Path) -> None:
    with pytest.raises(BadInput, match=sentence):
        fedse.load_experiment(tiny_file, [*NOISY, *settings])


def test_a_variant_does_not_inherit_that_it_looks_at_nothing_else() -> None:
    from fedse.curricula.uniform import Uniform
    from fedse.filters.success import Success

    class Variant(Uniform):
        pass

    assert Uniform.ignores_the_past and not Variant.ignores_the_past

    class Choosy(Success):
        pass

    assert Success.one_by_one and not Choosy.one_by_one


@pytest.mark.slow
def test_a_spent_budget_ends_learning(tiny: Any, shown: list[Trajectory]) -> None:
    """As where a hub goes on after the rounds that a site agreed to."""
    settings = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "epochs": 1}
    learner = DpImitation(tiny, **settings, epsilon=1.001 * epsilon(1.0, 0.5, 4, DELTA))
    lesson = Lesson(tiny.initial_adapter(0), shown, 0, secret=bytes(32))
    learner.enter(2)
    assert learner.learn(lesson) is not None
    learner.enter(3)
    assert learner.learn(lesson) is None
