"""Lessons that go through the network in one pass end where each would have ended alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fedse.adapters.plan import PERSONAL, factor, in_part
from fedse.learners.distillation import Distillation
from fedse.learners.dp_imitation import DpImitation
from fedse.learners.group_policy_gradient import GroupPolicyGradient
from fedse.learners.imitation import Imitation
from fedse.networks.training import parallel_passes
from fedse.networks.training.joint_pass import JointPass
from fedse.objectives.cases import Case
from fedse.objectives.objective import Objective, Scored, Weighed
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Adapter, Learned, Lesson, Trajectory
from fedse.worlds.maze import Maze

JOINT = ("add_gradients", "log_probabilities")
ROOM = 10_000
"""Tokens at once, so many that each has room for a batch."""


@pytest.fixture
def joint(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """As on a GPU; what went through a joint pass, and with how many adapters."""
    monkeypatch.setattr(parallel_passes, "joins", lambda through: True)
    noted: list[tuple[str, int]] = []
    for name in JOINT:
        usual = getattr(JointPass, name)

        def note(through: JointPass, wanted: Any, name: str = name, usual: Any = usual) -> Any:
            noted.extend([(name, len(wanted))] if wanted else [])
            return usual(through, wanted)

        monkeypatch.setattr(JointPass, name, note)
    yield noted


@pytest.fixture(scope="module")
def shown(tiny: Any) -> list[list[Trajectory]]:
    """Of worlds with different rules, so that openings have different lengths."""
    worlds = [Maze(rules=rules, observation_length="brief", size=3) for rules in ("brief", "bare", "brief")]
    return [
        list(Demonstrations(count).trajectories("c", "maze", world, tiny.chat, 0))
        for count, world in zip((6, 3, 4), worlds, strict=True)
    ]


def stirred(adapter: Adapter, seed: int) -> Adapter:
    random = np.random.default_rng(seed)
    tensors = {
        name: (held + 0.03 * random.standard_normal(held.shape)).astype(np.float32)
        for name, held in adapter.tensors.items()
    }
    return replace(adapter, tensors=tensors)


def lessons_of(tiny: Any, shown: Sequence[Sequence[Trajectory]]) -> list[Lesson]:
    """From different adapters, with different numbers of steps."""
    start = tiny.initial_adapter(0)
    explored = [
        [replace(item, task="x", rewards={"world": number % 2}) for number, item in enumerate(own)] for own in shown
    ]
    return [
        Lesson(stirred(start, number), own, 10 + number, fresh, secret=bytes([number] * 32))
        for number, (own, fresh) in enumerate(zip(shown, explored, strict=True))
    ]


def change(learned: Learned | None, lesson: Lesson) -> Any:
    assert learned is not None
    return np.concatenate(
        [(learned[0].tensors[name] - held).ravel() for name, held in sorted(lesson.start.tensors.items())]
    )


def assert_alike(learner: Imitation, lessons: Sequence[Lesson], likeness: float = 0.99999) -> None:
    at_once = learner.learn_together(lessons)
    in_turn = [learner.learn(lesson) for lesson in lessons]
    changes = [change(found, lesson) for found, lesson in zip(at_once, lessons, strict=True)]
    for ours, usual, found, lesson in zip(changes, in_turn, at_once, lessons, strict=True):
        theirs = change(usual, lesson)
        assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) > likeness
        assert np.linalg.norm(ours - theirs) < 0.01 * np.linalg.norm(theirs)
        assert found is not None and usual is not None and found[1].keys() == usual[1].keys()
        assert found[1] == pytest.approx(usual[1], rel=1e-3, abs=1e-5)
    assert not any(np.array_equal(one, other) for one, other in pairwise(changes))


@pytest.mark.slow
def test_own_steps_clips_and_schedules(tiny: Any, shown: Any, joint: Any) -> None:
    options: dict[str, Any] = {"learning_rate": 3e-3, "batch_size": 2, "proximal_mu": 0.1, "max_grad_norm": 0.3}
    # So few that some batches of two go through the network in two parts.
    longest = max(len(item.token_ids) for own in shown for item in own)
    learner = Imitation(tiny, tokens_at_once=3 * longest, **options)
    lessons = lessons_of(tiny, shown)
    with pytest.MonkeyPatch.context() as alone:
        alone.setattr(Imitation, "learn", lambda self, lesson: Imitation(tiny, tokens_at_once=longest, **options)
                      .learn_together([lesson])[0])  # fmt: skip
        assert_alike(learner, lessons)
    assert {count for _, count in joint} == {1, 2, 3}, "adapters that have no step left are absent"


@pytest.mark.slow
def test_frozen_parts_that_differ(tiny: Any, shown: Any, joint: Any) -> None:
    random = np.random.default_rng(2)

    def with_frozen_part(adapter: Adapter) -> Adapter:
        own = {}
        for name, held in adapter.tensors.items():
            shape = (2, held.shape[1]) if factor(name) == "A" else (held.shape[0], 2)
            own[in_part(name, PERSONAL)] = 0.2 * random.standard_normal(shape).astype(np.float32)
        return replace(adapter, tensors={**adapter.tensors, **own}, frozen=frozenset(own))

    lessons = [lesson._replace(start=with_frozen_part(lesson.start)) for lesson in lessons_of(tiny, shown)]
    assert_alike(Imitation(tiny, epochs=1, learning_rate=3e-3, batch_size=2, tokens_at_once=ROOM), lessons)
    assert ("add_gradients", 3) in joint


@pytest.mark.slow
def test_rules_that_score_before_they_learn(tiny: Any, shown: Any, joint: Any) -> None:
    learner = GroupPolicyGradient(tiny, learning_rate=2e-3, batch_size=2, tokens_at_once=ROOM)
    assert_alike(learner, lessons_of(tiny, shown), likeness=0.9999)
    assert {("add_gradients", 3), ("log_probabilities", 3)} <= set(joint)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["soft targets", "an inner layer", "noise"])
def test_what_a_joint_pass_does_not_know_goes_through_each_ones_own(
    tiny: Any, shown: Any, joint: Any, kind: str
) -> None:
    lessons = lessons_of(tiny, shown)
    if kind == "soft targets":
        lessons = [lesson._replace(own=stirred(lesson.start, 9)) for lesson in lessons]
        learner: Imitation = Distillation(tiny, learning_rate=2e-3, batch_size=2, epochs=1, tokens_at_once=ROOM)
    elif kind == "an inner layer":
        learner = GroupPolicyGradient(
            tiny, bottom_up={"layer": 1, "rounds": 1}, learning_rate=2e-3, epochs=1, tokens_at_once=ROOM
        )
    else:
        learner = DpImitation(tiny, learning_rate=2e-3, sampling_rate=0.5, epochs=1, tokens_at_once=ROOM)
    assert_alike(learner, lessons, likeness=0.9999)
    assert not [turn for turn in joint if turn[0] == "add_gradients"]


@pytest.mark.slow
def test_one_that_diverges_harms_no_other(tiny: Any, shown: Any, joint: Any) -> None:
    lessons = lessons_of(tiny, shown)
    broken = {name: np.full_like(held, 3e38) for name, held in lessons[1].start.tensors.items()}
    lessons[1] = lessons[1]._replace(start=replace(lessons[1].start, tensors=broken))
    learner = Imitation(tiny, learning_rate=3e-3, batch_size=2, epochs=1, tokens_at_once=ROOM)
    at_once = learner.learn_together(lessons)
    assert ("add_gradients", 3) in joint
    for number in (0, 2):
        alone, found = learner.learn(lessons[number]), at_once[number]
        assert alone is not None and found is not None and found[0].digest() == alone[0].digest()


class Strict:
    """Counts all tokens alike, or so much that the step diverges, and refuses scores that are not finite."""

    def __init__(self, weight: float) -> None:
        self._weight = weight

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        if not all(np.isfinite(item.now).all() for item in batch):
            raise ValueError("log-probabilities are not finite")
        return Weighed([np.full(item.now.shape, self._weight) for item in batch], 0.0)


class StrictImitation(Imitation):
    def objective(self, cases: Sequence[Case]) -> Objective:
        return Strict(np.inf if len(cases) == 1 else 0.01)


@pytest.mark.slow
def test_who_diverges_in_its_last_step_does_not_make_the_rule_of_another_fail(
    tiny: Any, shown: Any, joint: Any
) -> None:
    """The first has one step, after which its factors are not finite; the others go on beside it."""
    lessons = lessons_of(tiny, shown)
    lessons[0] = lessons[0]._replace(trajectories=list(lessons[0].trajectories)[:1])
    learner = StrictImitation(tiny, learning_rate=3e-3, batch_size=2, epochs=1, tokens_at_once=ROOM)
    at_once, in_turn = learner.learn_together(lessons), [learner.learn(lesson) for lesson in lessons]
    assert ("add_gradients", 3) in joint
    for number, (found, alone) in enumerate(zip(at_once, in_turn, strict=True)):
        assert found is not None and alone is not None and found[0].digest() == alone[0].digest()
        assert np.isfinite(change(found, lessons[number])).all() == (number > 0)


@pytest.mark.slow
def test_more_than_fit_into_one_pass_learn_in_parts(
    tiny: Any, shown: Any, joint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lessons = lessons_of(tiny, shown)
    learner = Imitation(tiny, epochs=1, batch_size=2, tokens_at_once=ROOM)
    learner.learn(lessons[0])
    rank = learner._passes._kept._passes[0].rank  # type: ignore[union-attr]
    monkeypatch.setattr(parallel_passes, "_HIGHEST_RANK_TOGETHER", 2 * rank + 1)
    assert_alike(learner, lessons)
    assert {count for _, count in joint} == {1, 2}
