"""DP-SGD (arXiv 1607.00133) for trajectories: what a site sends hardly depends on any single one of them.

Epsilon bounds what all rounds up to now tell about one trajectory, whoever reads the adapters and whatever else they know.
It is computed from noise, sampling rate and number of steps alone (Poisson sampling, privacy loss distributions), as if the
site had answered every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from fedse.errors import BadInput
from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.privacy.accountant import enough_noise, epsilon
from fedse.types import Lesson

if TYPE_CHECKING:
    from fedse.fitting.loop import Fitting
    from fedse.networks.training.passes import Pass


class DpImitationOptions(ImitationOptions):
    """Noise and its price. `epochs` divided by `sampling_rate` is the number of steps in a round."""

    noise_multiplier: float = Field(default=1.0, gt=0)
    """Noise in units of `max_grad_norm`, the most that one trajectory adds to a step."""
    sampling_rate: float = Field(default=0.1, gt=0, le=1)
    """Chance of each trajectory to be in a step."""
    max_grad_norm: Annotated[float | Ramp, Scheduled(above=0)] = 1.0
    """Largest norm of a trajectory's gradient; a longer one is cut."""
    batch_size: int = Field(default=8, ge=1)
    """What the noisy sum of a step is divided by, however many trajectories are in it."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """Chance that is left to a loss of privacy beyond epsilon: less than one divided by the number of trajectories."""
    epsilon: float | None = Field(default=None, gt=0)
    """The most that may be spent: a site learns nothing in rounds that would go beyond. null is no bound."""


class DpImitation(Imitation):
    """Imitation under noise: epsilon, in every report, bounds what the adapters of all rounds tell about one trajectory."""

    name = "dp_imitation"
    Options = DpImitationOptions
    draws_noise: ClassVar[bool] = True
    gradients_join: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("epsilon",)
    options: DpImitationOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        if self.options.epsilon is not None and self.spent(self._round) > self.options.epsilon:
            return []
        return super().cases(lesson)

    def fitting(self, through: Pass, cases: Sequence[Case], lesson: Lesson, tokens_at_once: int) -> Fitting:
        from fedse.fitting.private_loop import PrivateFitting

        if not lesson.secret:
            raise BadInput(
                f"learner: '{self.name}' learns only where a client has a secret for its noise, which it has in a run."
            )
        return PrivateFitting(
            through,
            cases,
            self.model.context,
            secret=lesson.secret,
            noise_multiplier=self.options.noise_multiplier,
            sampling_rate=self.options.sampling_rate,
            steps=self.steps(self._round),
            tokens_at_once=tokens_at_once,
            **self._settings(),
        )

    def told_of(self, lesson: Lesson) -> Mapping[str, float]:
        del lesson
        return {"epsilon": self.spent(self._round)}

    def steps(self, round: int) -> int:
        return max(1, int(at(self.options.epochs, round) / self.options.sampling_rate + 0.5))

    def spent(self, rounds: int) -> float:
        """Epsilon after so many rounds."""
        told = self.options
        return epsilon(told.noise_multiplier, told.sampling_rate, self._steps_of(rounds), told.delta)

    def enough_noise(self, rounds: int, budget: float) -> float:
        """A multiplier with which so many rounds keep within a budget."""
        return enough_noise(self.options.sampling_rate, self._steps_of(rounds), self.options.delta, budget)

    def _steps_of(self, rounds: int) -> int:
        return sum(self.steps(number) for number in range(1, rounds + 1))
