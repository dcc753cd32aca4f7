"""Learners with a teacher: what they minimise is the written-out divergence, and the teacher is who it should be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bandit_world import bandit

import fedse
from fedse.clients.notebook import Notebook
from fedse.errors import BadInput
from fedse.fitting.loop import Fitting
from fedse.learners.distillation import Distillation
from fedse.learners.imitation import Imitation
from fedse.learners.soft_labels import SoftImitation
from fedse.networks.swap import load_adapter
from fedse.networks.training.passes import pass_for
from fedse.networks.training.wanted import alone
from fedse.objectives.cases import Case, examples_of
from fedse.objectives.teaching import Divergence, SoftLabels, Teacher
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Adapter, Lesson
from fedse.worlds.maze import Maze


@pytest.fixture(scope="module")
def shown(tiny: Any) -> Any:
    return Demonstrations(4).trajectories("c", "maze", Maze(rules="brief", observation_length="brief"), tiny.chat, 0)


def moved(adapter: Adapter, by: float = 0.05) -> Adapter:
    random = np.random.default_rng(4)
    tensors = {
        name: (held + by * random.standard_normal(held.shape)).astype("float32")
        for name, held in adapter.tensors.items()
    }
    return replace(adapter, tensors=tensors)


def log_probabilities(model: Any, adapter: Adapter, shown: Any) -> torch.Tensor:
    """Places x tokens, in the order of the examples, by the network's own forward pass."""
    load_adapter(model.network, adapter)
    return by_the_network(model, shown)


def by_the_network(model: Any, shown: Any) -> torch.Tensor:
    found = []
    for example in examples_of(shown, model.context):
        logits = model.network(input_ids=torch.from_numpy(example.ids)[None]).logits[0, :-1].float()
        found.append(torch.log_softmax(logits, -1)[torch.from_numpy(example.train[1:])])
    return torch.cat(found)


@pytest.mark.parametrize("rule", ["divergence", "soft labels"])
def test_a_step_follows_autograds_gradient_of_the_written_out_loss(tiny: Any, shown: Any, rule: str) -> None:
    start, own = moved(tiny.initial_adapter(0), 0.02), moved(tiny.initial_adapter(1))
    through = pass_for(tiny.network, checkpointing=False)
    through.begin(start)
    cases = [Case((item,)) for item in shown[:2]]
    objective = Divergence() if rule == "divergence" else SoftLabels(0.3)
    if rule == "divergence":
        cases.append(Case((shown[2],), (0.7,), replayed=True))
    everything = Teacher(own, tiny.network.config.vocab_size)
    fitting = Fitting(
        through, cases, tiny.context, 1, objective, start, everything, epochs=1, learning_rate=0.0, schedule="constant",
        weight_decay=0.0, batch_size=8, tokens_at_once=10_000, max_grad_norm=1e9,
    )  # fmt: skip
    assert alone(fitting.step()) and not alone(fitting.step())

    with torch.no_grad():
        taught = log_probabilities(tiny, own, shown[:2])
    now = log_probabilities(tiny, start, shown[:2])
    targets = torch.from_numpy(np.concatenate([e.ids[1:][e.train[1:]] for e in examples_of(shown[:2], tiny.context)]))
    if rule == "divergence":
        (replayed,) = examples_of(shown[2:3], tiny.context)
        chosen = torch.from_numpy(replayed.ids[1:][replayed.train[1:]])
        likelihood = by_the_network(tiny, shown[2:3]).gather(1, chosen[:, None]).mean()
        loss = (taught.exp() * (taught - now)).sum(-1).mean() - 0.7 * likelihood
    else:
        label = 0.3 * taught.exp() + 0.7 * torch.nn.functional.one_hot(targets, now.shape[1])
        loss = -(label * now).sum(-1).mean()
    parameters = through.vector.parameters
    wanted = torch.cat([item.flatten() for item in torch.autograd.grad(loss, parameters)])
    found = through.vector.gradient
    assert (found - wanted).norm() < 1e-5 * wanted.norm()
    assert fitting.metrics()["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert through.result(start).digest() == start.digest()


def test_soft_labels_that_trust_nobody_are_imitation(tiny: Any, shown: Any) -> None:
    options = {"learning_rate": 1e-3, "batch_size": 2, "epochs": 1}
    lesson = Lesson(tiny.initial_adapter(0), shown[:2], 3)
    hard, soft, half = (
        learner.learn(lesson)
        for learner in (
            Imitation(tiny, **options),
            SoftImitation(tiny, share=0.0, **options),
            SoftImitation(tiny, share=0.5, **options),
        )
    )
    for name, tensor in hard[0].tensors.items():
        assert np.allclose(tensor, soft[0].tensors[name], atol=1e-5)
    assert any(not np.allclose(tensor, half[0].tensors[name], atol=1e-4) for name, tensor in hard[0].tensors.items())
    assert hard[1]["loss"] == pytest.approx(soft[1]["loss"], rel=1e-4)


def test_a_student_comes_nearer_to_its_teacher_where_it_has_been(tiny: Any, shown: Any) -> None:
    start, own = tiny.initial_adapter(0), moved(tiny.initial_adapter(0))
    learner = Distillation(tiny, imitation=0.0, learning_rate=5e-3, batch_size=4, epochs=4, schedule="constant")
    shown = shown[:2]
    lesson = Lesson(start, [], 1, shown, own=own)
    learned, metrics = learner.learn(lesson)  # type: ignore[misc]
    with torch.no_grad():
        taught, before, after = (log_probabilities(tiny, held, shown) for held in (own, start, learned))
    divergences = [(taught.exp() * (taught - now)).sum(-1).mean().item() for now in (before, after)]
    assert divergences[1] < 0.8 * divergences[0]
    assert metrics["loss"] < metrics["first_loss"]
    assert learner.learn(Lesson(start, shown[:0], 1, shown)) is None, "there is nobody to learn from"
    cut = {name: tensor[:2] if "lora_A" in name else tensor[:, :2] for name, tensor in own.tensors.items()}
    with pytest.raises(BadInput, match="whose tensors are alike in every round"):
        learner.learn(lesson._replace(own=replace(own, tensors=cut)))


def test_the_first_lesson_without_a_teacher_is_imitation(tiny: Any, shown: Any) -> None:
    options = {"learning_rate": 1e-3, "batch_size": 2, "epochs": 1}
    lesson = Lesson(tiny.initial_adapter(0), shown[:2], 3, shown[:2])
    plain, first = Imitation(tiny, **options).learn(lesson), Distillation(tiny, imitation=0.0, **options).learn(lesson)
    for name, tensor in plain[0].tensors.items():  # type: ignore[index]
        assert np.allclose(tensor, first[0].tensors[name], atol=1e-5)  # type: ignore[index]


@pytest.mark.slow
def test_the_teacher_is_what_the_sites_last_lesson_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str | None]] = []
    learn = Distillation.learn_together

    def noted(learner: Distillation, lessons: Any) -> Any:
        learned = learn(learner, lessons)
        seen.extend(
            (made[0].digest(), lesson.own.digest() if lesson.own else None)
            for lesson, made in zip(lessons, learned, strict=True)
        )
        return learned

    monkeypatch.setattr(Distillation, "learn_together", noted)
    world = {"worlds": ["bandit_world:Bandit"]}
    small = {"exploration": {"tasks": 2, "attempts": 2}, "clients": {"one": world, "two": world}, "start": {"tasks": 1}}
    whole = fedse.run(fedse.Experiment(**bandit("distillation", rounds=2, **small)), tmp_path)
    first, second = seen[:2], seen[2:]
    assert [teacher for _, teacher in first] == [None, None]
    assert sorted(str(teacher) for _, teacher in second) == sorted(made for made, _ in first)
    kept = Notebook(whole.folder / "clients" / "one" / "state" / "learner").before(2).tensors
    assert Adapter(kept).digest() in {made for made, _ in first}
