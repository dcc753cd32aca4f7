from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedse.errors import BadInput, FedseError, GpuFull
from fedse.fitting.loop import Fitting, pull_back
from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.models.table import Table
from fedse.networks.swap import load_adapter, read_adapter
from fedse.networks.training import parallel_passes
from fedse.networks.training.parallel_passes import ParallelPasses
from fedse.objectives.cases import Case, examples_of, group
from fedse.objectives.objective import Scored, Weighed
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Lesson, Trajectory
from fedse.worlds.maze import Maze
from padded_reference import padded_loss


@pytest.fixture(scope="module")
def demonstrations(tiny: Any) -> Any:
    world = Maze(rules="brief", observation_length="brief", size=3)
    return Demonstrations(12).trajectories("maze", "maze", world, tiny.chat, 0)


@pytest.mark.slow
def test_learning_lowers_the_loss_and_repeats_bit_for_bit(tiny: Any, demonstrations: Any) -> None:
    learner = Imitation(tiny, learning_rate=3e-3, batch_size=2)
    start = tiny.initial_adapter(0)
    first, metrics = learner.learn(Lesson(start, demonstrations, 1))
    second, again = learner.learn(Lesson(start, demonstrations, 1))
    other, _ = learner.learn(Lesson(start, demonstrations, 2))
    assert first.digest() == second.digest() != other.digest()
    assert metrics == again
    assert metrics["loss"] < metrics["first_loss"] - 0.2
    assert metrics["steps"] == 12


def lessons_of(tiny: Any, demonstrations: Any) -> list[Lesson]:
    """Of different lengths, from different adapters."""
    counts = (6, 3, 4)
    learner = Imitation(tiny, epochs=1, learning_rate=3e-3, batch_size=4)
    starts = [learner.learn(Lesson(tiny.initial_adapter(0), demonstrations[:4], key))[0] for key in range(len(counts))]
    return [Lesson(starts[number], demonstrations[:count], 10 + number) for number, count in enumerate(counts)]


@pytest.mark.parametrize("proximal", [pytest.param(0.0, marks=pytest.mark.torture), 0.1])
@pytest.mark.slow
def test_adapters_trained_at_once_are_those_trained_one_after_another(
    tiny: Any, demonstrations: Any, proximal: float
) -> None:
    lessons = lessons_of(tiny, demonstrations)
    options: dict[str, Any] = {"learning_rate": 3e-3, "batch_size": 2, "proximal_mu": proximal}
    # Some batches of two go through the model in two parts, and more would if three adapters shared the tokens.
    learner = Imitation(tiny, tokens_at_once=int(1.5 * max(len(item.token_ids) for item in demonstrations)), **options)
    at_once = learner.learn_together(lessons)
    in_turn = [learner.learn(lesson) for lesson in lessons]
    assert [adapter.digest() for adapter, _ in at_once] == [adapter.digest() for adapter, _ in in_turn]
    assert [metrics for _, metrics in at_once] == [metrics for _, metrics in in_turn]
    assert len({adapter.digest() for adapter, _ in at_once}) == len(lessons)


@pytest.mark.slow
def test_a_network_without_a_fast_path_learns_one_after_another(
    tiny: Any, demonstrations: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedse.networks.training.packed_llama.PackedLlama.suits", lambda network: False)
    lessons = lessons_of(tiny, demonstrations)[1:]
    learner = Imitation(tiny, epochs=1, learning_rate=3e-3, batch_size=2)
    at_once = learner.learn_together(lessons)
    in_turn = [learner.learn(lesson) for lesson in lessons]
    assert [adapter.digest() for adapter, _ in at_once] == [adapter.digest() for adapter, _ in in_turn]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_gpu_without_memory_is_one_sentence_that_says_what_helps(
    tiny: Any, demonstrations: Any, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    def full(fitting: Fitting) -> Any:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        finally:
            if hidden:
                raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(Fitting, "step", full)
    with pytest.raises(GpuFull, match=r"adapters at once: 1, tokens at once: 64\).* `learner.checkpointing: true`"):
        Imitation(tiny, tokens_at_once=64).learn(Lesson(tiny.initial_adapter(0), demonstrations, 1))
    with pytest.raises(GpuFull, match="the run can be resumed when other processes have left"):
        Imitation(tiny, checkpointing=True).learn(Lesson(tiny.initial_adapter(0), demonstrations, 1))


def test_other_errors_of_the_learner_keep_their_name(
    tiny: Any, demonstrations: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fitting: Fitting) -> Any:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Fitting, "step", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        Imitation(tiny).learn(Lesson(tiny.initial_adapter(0), demonstrations, 1))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.slow
def test_checkpointing_changes_no_bit_so_that_a_run_may_go_on_with_it(
    tiny: Any, demonstrations: Any, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    if not packed:
        monkeypatch.setattr("fedse.networks.training.packed_llama.PackedLlama.suits", lambda network: False)
    start = tiny.initial_adapter(0)
    learned = [
        Imitation(tiny, checkpointing=way).learn(Lesson(start, demonstrations, 1))[0].digest() for way in (False, True)
    ]
    assert learned[0] == learned[1] != start.digest()
    identities = {str(ImitationOptions(checkpointing=way).identity()) for way in (False, True)}
    assert len(identities) == 1


def test_a_learner_that_overrides_learning_is_not_passed_by(tiny: Any) -> None:
    class Other(Imitation):
        def learn(self, lesson: Lesson) -> Any:
            return lesson.start, {}

    assert Imitation(tiny, adapters_at_once=3).at_once == 3
    assert Other(tiny, adapters_at_once=3).at_once == 1


@pytest.mark.slow
def test_trajectories_longer_than_their_share_of_the_tokens_are_learned_one_after_another(
    tiny: Any, demonstrations: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lessons = lessons_of(tiny, demonstrations)
    longest = max(len(item.token_ids) for item in demonstrations)
    together: list[int] = []
    run = ParallelPasses.run

    def noted(parallel: ParallelPasses, fittings: Any) -> bool:
        together.append(len(fittings))
        return run(parallel, fittings)

    monkeypatch.setattr(ParallelPasses, "run", noted)
    monkeypatch.setattr(parallel_passes, "joins", lambda through: True)
    Imitation(tiny, tokens_at_once=3 * longest).learn_together(lessons)
    Imitation(tiny, tokens_at_once=3 * longest - 1).learn_together(lessons)
    assert together == [3, 1, 1, 1]


@pytest.mark.slow
def test_adapters_of_different_kinds_learn_one_after_another(tiny: Any, demonstrations: Any) -> None:
    start = tiny.initial_adapter(0)
    frozen = frozenset(name for name in start.tensors if ".lora_A." in name)
    lessons = [Lesson(start, demonstrations[:4], 1), Lesson(replace(start, frozen=frozen), demonstrations[:4], 1)]
    learner = Imitation(tiny, learning_rate=3e-3, batch_size=2)
    (free, _), (held, _) = learner.learn_together(lessons)
    assert all(np.array_equal(held.tensors[name], start.tensors[name]) for name in frozen)
    assert not any(np.array_equal(free.tensors[name], start.tensors[name]) for name in frozen)
    assert [free.digest(), held.digest()] == [learner.learn(lesson)[0].digest() for lesson in lessons]


def test_only_lora_changes_and_the_base_stays_as_it_was(tiny: Any, demonstrations: Any) -> None:
    before = {name: value.clone() for name, value in tiny.network.named_parameters() if ".lora_" not in name}
    learned, _ = Imitation(tiny, learning_rate=1e-2).learn(Lesson(tiny.initial_adapter(0), demonstrations[:4], 1))
    for name, value in tiny.network.named_parameters():
        if ".lora_" not in name:
            assert torch.equal(before[name], value), name
    assert all(np.abs(tensor).sum() > 0 for tensor in learned.tensors.values())


def test_one_step_equals_torchs_adamw_by_hand(tiny: Any, demonstrations: Any) -> None:
    """From B = 0 the first AdamW step moves each entry of B by the learning rate, in the direction of the gradient."""
    start = tiny.initial_adapter(0)
    learned, _ = Imitation(tiny, epochs=1, batch_size=12, learning_rate=1e-3, max_grad_norm=1e9).learn(
        Lesson(start, demonstrations, 1)
    )
    for name, tensor in learned.tensors.items():
        if ".lora_B." in name:
            moved = np.abs(tensor[tensor != 0])
            assert np.isclose(moved, 1e-3, rtol=1e-2).mean() > 0.95, name


@pytest.mark.slow
def test_a_cosine_schedule_ends_lower_than_a_constant_one(tiny: Any, demonstrations: Any) -> None:
    start = tiny.initial_adapter(0)
    norms = {}
    for schedule in ("cosine", "constant"):
        learned, _ = Imitation(tiny, schedule=schedule, learning_rate=1e-3, batch_size=2).learn(
            Lesson(start, demonstrations, 1)
        )
        norms[schedule] = sum(float(np.abs(learned.tensors[n] - start.tensors[n]).sum()) for n in start.tensors)
    assert norms["cosine"] < norms["constant"]


@pytest.mark.slow
def test_an_epoch_is_what_a_plain_loop_over_padded_batches_does(tiny: Any, demonstrations: Any) -> None:
    """Same batches, torch's own AdamW and clipping on the network's own tensors."""
    start = tiny.initial_adapter(0)
    learned, metrics = Imitation(tiny, learning_rate=1e-3, batch_size=5, max_grad_norm=0.5, weight_decay=0.1).learn(
        Lesson(start, demonstrations, 7)
    )
    load_adapter(tiny.network, start)
    parameters = [parameter for parameter in tiny.network.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(parameters, weight_decay=0.1)
    random = np.random.Generator(np.random.Philox(key=7))
    examples = examples_of(demonstrations, tiny.context)
    batches = [chosen for _ in range(2) for chosen in group(examples, 5, random)]
    losses = []
    for number, chosen in enumerate(batches):
        optimiser.param_groups[0]["lr"] = 1e-3 * 0.5 * (1 + np.cos(np.pi * number / len(batches)))
        loss = padded_loss(tiny.network, chosen) / sum(example.agent_tokens for example in chosen)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimiser.step()
        losses.append(loss.item())
    by_hand = read_adapter(tiny.network, like=start)
    for name, tensor in by_hand.tensors.items():
        assert learned.tensors[name] == pytest.approx(tensor, abs=3e-5), name
        assert np.abs(tensor - start.tensors[name]).max() > 1e-4, name
    assert metrics["first_loss"] == pytest.approx(np.mean(losses[:3]), rel=1e-4)
    assert metrics["loss"] == pytest.approx(np.mean(losses[3:]), rel=1e-4)
    assert metrics["tokens"] == 2 * sum(map(len, examples))
    assert metrics["padded_share"] == 0 < metrics["shared_share"] < 1


def test_a_table_is_no_language_model() -> None:
    with pytest.raises(BadInput, match="needs a language model"):
        Imitation(Table())  # type: ignore[arg-type]


def test_the_proximal_term_is_the_gradient_of_its_formula() -> None:
    draw = torch.Generator().manual_seed(0)
    anchors = [torch.randn(3, 4, generator=draw), torch.randn(5, generator=draw)]
    ours = [torch.nn.Parameter(anchor + torch.randn(anchor.shape, generator=draw)) for anchor in anchors]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]

    def loss(parameters: Any) -> Any:
        return sum((parameter**3).sum() for parameter in parameters)

    loss(ours).backward()
    pull_back(ours, anchors, 0.7)
    away = sum(((parameter - anchor) ** 2).sum() for parameter, anchor in zip(theirs, anchors, strict=True))
    (loss(theirs) + 0.35 * away).backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


@pytest.mark.slow
def test_a_stronger_proximal_term_keeps_a_client_nearer_to_the_broadcast(tiny: Any, demonstrations: Any) -> None:
    start = tiny.initial_adapter(0)
    away = []
    for proximal in (0.0, 10.0, 1000.0):
        learner = Imitation(tiny, epochs=4, batch_size=1, learning_rate=1e-3, schedule="constant", proximal_mu=proximal)
        learned, _ = learner.learn(Lesson(start, demonstrations[:3], 1))
        away.append(sum(float(((learned.tensors[n] - start.tensors[n]) ** 2).sum()) for n in start.tensors))
    assert away[0] > 1.5 * away[1] > 1.5**2 * away[2]


class OfNobody:
    """A rule that inherits from nothing and does not say what it compares with the beginning."""

    def __init__(self, weights: bool = True) -> None:
        self.weights, self.before = weights, list[bool]()

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        self.before += [np.array_equal(item.now, item.before) for item in batch]
        share = 1.0 / sum(len(item.now) for item in batch)
        return Weighed([np.full(len(item.now), share) for item in batch if self.weights], 0.0)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (OfNobody(), ""),
        (object(), "objective 'object': the class has no method 'weigh'"),
        (OfNobody(weights=False), "it has to give an array for each example with a weight for each of its tokens"),
    ],
)
def test_an_objective_of_ones_own_goes_through_the_loop(
    tiny: Any, demonstrations: list[Trajectory], rule: Any, said: str
) -> None:
    class Own(Imitation):
        name = "own"

        def objective(self, cases: Sequence[Case]) -> Any:
            return rule

    learner, lesson = (
        Own(tiny, epochs=1, learning_rate=3e-3, batch_size=2),
        Lesson(tiny.initial_adapter(0), demonstrations[:4], 1),
    )
    if said:
        with pytest.raises(FedseError, match=said):
            learner.learn(lesson)
    else:
        learned = learner.learn(lesson)
        assert learned is not None and learned[0].digest() != lesson.start.digest()
        assert rule.before[0] and not rule.before[-1], "all was scored before the first step, and learned from since"


def test_cases_have_to_be_cases(tiny: Any, demonstrations: list[Trajectory]) -> None:
    class Bare(Imitation):
        name = "bare"

        def cases(self, lesson: Lesson) -> Any:
            return list(lesson.trajectories)

    with pytest.raises(FedseError, match="learner 'bare', `cases`: it has to return a list of `Case`"):
        Bare(tiny).learn(Lesson(tiny.initial_adapter(0), demonstrations[:2], 1))
