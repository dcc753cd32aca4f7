"""Adapters that are trained at the same time on one frozen network: on a GPU through one pass for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fedse.networks.training.joint_pass import JointPass
from fedse.networks.training.passes import Pass
from fedse.networks.training.wanted import Asking, GradientWanted, ScoresWanted, Wanted, alone

_HIGHEST_RANK_TOGETHER = 128
"""Of all adapters of a joint pass: every row is multiplied with all of them."""


class ParallelPasses:
    """Passes that are made when they are first needed and kept from round to round, like their graphs."""

    def __init__(self, first: Pass) -> None:
        self._passes = [first]
        self._joint: JointPass | None = None

    @property
    def alone(self) -> bool:
        """Whether there can be but one."""
        return self._passes[0].alone

    @property
    def most_adapters(self) -> int:
        """How many are worth training at the same time. Without a joint pass they would only take turns."""
        first = self._passes[0]
        return max(1, _HIGHEST_RANK_TOGETHER // first.rank) if joins(first) else 1

    def passes(self, count: int) -> list[Pass]:
        while len(self._passes) < count:
            self._passes.append(self._passes[0].beside())
        return self._passes[:count]

    def run(self, lessons: Sequence[Asking[None]]) -> bool:
        """Go through all of them, the n-th through the n-th pass, and say whether each has what it would have alone."""
        if len(lessons) == 1:
            alone(lessons[0])
            return True
        try:
            self._run_jointly(lessons, self._joint_pass(len(lessons)))
        except Exception:
            # A rule may refuse the scores that another's divergence has spoiled.
            if self._all_finite(len(lessons)):
                raise
            return False
        return self._all_finite(len(lessons))

    def _all_finite(self, count: int) -> bool:
        return bool(torch.stack([through.vector.values.isfinite().all() for through in self._passes[:count]]).all())

    def _run_jointly(self, lessons: Sequence[Asking[None]], joint: JointPass) -> None:
        """Gradients wait until nobody wants scores, so that all who are left go through the network together."""
        answers: Mapping[int, Any] = dict.fromkeys(range(len(lessons)))
        waiting: dict[int, ScoresWanted | GradientWanted] = {}
        while True:
            for number, answer in answers.items():
                if (wanted := _next(lessons[number], answer)) is not None:
                    waiting[number] = wanted
            if not waiting:
                return
            scores = {number: each for number, each in waiting.items() if isinstance(each, ScoresWanted)}
            gradients = {number: each for number, each in waiting.items() if isinstance(each, GradientWanted)}
            if not self._all_own(turn := scores or gradients):
                answers = {number: each.alone() for number, each in turn.items()}
            else:
                answers = joint.log_probabilities(scores) if scores else joint.add_gradients(gradients)
            for number in answers:
                del waiting[number]

    def _all_own(self, wanted: Mapping[int, Wanted]) -> bool:
        """Whether they go through the whole network, and not up to an inner layer."""
        return all(each.through is self._passes[number] for number, each in wanted.items())

    def _joint_pass(self, count: int) -> JointPass:
        """One for at least so many: its graphs serve fewer, too."""
        if self._joint is None or self._joint.adapters < count:
            self._joint = None  # Its graphs leave the memory before others come.
            passes = self.passes(count)
            self._joint = JointPass(passes[0].reading([through.vector for through in passes]))
        for absent in self._passes[count : self._joint.adapters]:
            absent.vector.clear()
        self._joint.expect([through.needs for through in self._passes[:count]])
        return self._joint


def joins(through: Pass) -> bool:
    """Whether a joint pass pays. On a CPU, which one adapter's batch fills, results stay the same bit for bit without it."""
    return not through.alone and through.vector.values.device.type == "cuda"


def _next(lesson: Asking[None], answer: Any) -> ScoresWanted | GradientWanted | None:
    """What it wants after this answer, unless it is at its end."""
    try:
        return lesson.send(answer)
    except StopIteration:
        return None
