"""Maximum likelihood on the agent's own tokens: the paper's learner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from fedse.adapters.first import without_effect
from fedse.errors import BadInput, GpuFull
from fedse.objectives.cases import Case
from fedse.objectives.objective import Objective
from fedse.objectives.teaching import Teacher
from fedse.plugins import PluginOptions, list_of
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.stopwatch import during
from fedse.types import Learned, Lesson

if TYPE_CHECKING:
    from fedse.fitting.loop import Fitting
    from fedse.models.causal_lm import CausalLM
    from fedse.networks.training.passes import Pass

_TOKENS_ON_GPU, _TOKENS_ELSEWHERE = 16_384, 2_048
_ADAPTERS_ON_GPU = 5
_NOT_FOR_FITTING = {"checkpointing", "adapters_at_once", "tokens_at_once", "restart"}


class ImitationOptions(PluginOptions):
    """Two epochs of AdamW at 5e-5 with a cosine schedule are the paper's; small models want a larger rate."""

    operational: ClassVar[frozenset[str]] = frozenset({"checkpointing"})
    rounding: ClassVar[frozenset[str]] = frozenset({"tokens_at_once", "adapters_at_once", "checkpointing"})
    epochs: Annotated[float | Ramp, Scheduled(above=0)] = 2
    """Passes over the buffer in each round; of a part of one, as many batches of it. Like all of these numbers it may change
    over the rounds: `{from: 4, to: 1, over: 20}`."""
    learning_rate: Annotated[float | Ramp, Scheduled(above=0)] = 5e-5
    """Highest learning rate of a round; the paper's value suits models of several billion parameters."""
    schedule: str = Field(default="cosine", pattern="^(cosine|constant)$")
    """"cosine" falls to zero over the round, without warm-up; "constant" stays."""
    weight_decay: Annotated[float | Ramp, Scheduled(least=0)] = 0.0
    """AdamW's weight decay."""
    batch_size: int = Field(default=8, ge=1)
    """Trajectories behind one step of the optimiser."""
    tokens_at_once: int | None = Field(default=None, ge=1)
    """Tokens that go through the model at once, in whole trajectories: fewer save memory and change roundings only. null is
    16,384 on a GPU and 2,048 elsewhere."""
    adapters_at_once: int | None = Field(default=None, ge=1, le=16)
    """Adapters that one process trains at the same time on a GPU, where it holds several sites and no round has a deadline:
    fewer if their ranks together exceed 128, one with soft targets or noise, or if a trajectory is longer than its share of
    `tokens_at_once`. The results are the same but for roundings. null is 5 for networks of up to 4 GiB and 1 elsewhere."""
    checkpointing: bool = False
    """Computes the inside of each layer twice instead of keeping it: saves memory, takes longer."""
    max_grad_norm: Annotated[float | Ramp, Scheduled(above=0)] = 1.0
    """Largest norm of a gradient."""
    proximal_mu: Annotated[float | Ramp, Scheduled(least=0)] = 0.0
    """Adds proximal_mu / 2 * || adapter - adapter at the round's beginning ||^2 to the loss, which holds clients together
    (FedProx, arXiv 1812.06127)."""
    restart: bool = False
    """Begin every lesson with the base model, and learn all that is remembered anew, as STaR does; false goes on from the
    broadcast adapter, which M-STaR (arXiv 2412.17451) found to be better."""


class Imitation:
    """Fits the adapter to the trajectories token by token, from the broadcast adapter, with a fresh optimiser.

    A rule of another kind overrides `cases`, `objective`, or both.
    """

    name = "imitation"
    Options: type[ImitationOptions] = ImitationOptions
    gradients_join: ClassVar[bool] = True
    """Whether one pass can bring the gradients of several adapters: targets are not soft, trajectories not kept apart."""

    def __init__(self, model: CausalLM, **options: object) -> None:
        if not hasattr(model, "network"):
            raise BadInput(
                f"learner: '{self.name}' needs a language model; the model 'table' goes with learner 'table', the model "
                "'served' with learner 'none'."
            )
        from fedse.networks.training.kept_passes import KeptPasses

        self.model = model
        self.options = self.Options.model_validate(options)
        self._passes = KeptPasses(model.network, self.options.checkpointing)
        self._round = 1

    def enter(self, round: int) -> None:
        self._round = round

    @property
    def at_once(self) -> int:
        # Who overrides how one adapter is learned means all of them.
        if type(self).learn is not Imitation.learn or self._passes.alone or not self.gradients_join:
            return 1
        several = self._on_gpu and self._passes.several_pay
        return self.options.adapters_at_once or (_ADAPTERS_ON_GPU if several else 1)

    @property
    def _on_gpu(self) -> bool:
        return str(self.model.device).startswith("cuda")

    @property
    def _tokens_at_once(self) -> int:
        return self.options.tokens_at_once or (_TOKENS_ON_GPU if self._on_gpu else _TOKENS_ELSEWHERE)

    def cases(self, lesson: Lesson) -> list[Case]:
        """What a lesson is learned from; where there is nothing, the learner abstains."""
        return [Case((trajectory,)) for trajectory in lesson.trajectories]

    def objective(self, cases: Sequence[Case]) -> Objective | None:
        """The rule by which tokens count, with the numbers of this round; None: all of them alike."""
        del cases
        return None

    def teacher(self, lesson: Lesson) -> Teacher | None:
        """Whose distributions the objective is given (`Scored.taught`), if it wants any."""
        del lesson
        return None

    def told_of(self, lesson: Lesson) -> Mapping[str, float]:
        """What the rule measures of a lesson before it learns."""
        del lesson
        return {}

    def learn(self, lesson: Lesson) -> Learned | None:
        return self.learn_together([lesson])[0]

    def learn_together(self, lessons: Sequence[Lesson]) -> list[Learned | None]:
        if self.options.restart:
            lessons = [lesson._replace(start=without_effect(lesson.start)) for lesson in lessons]
        cases = [list_of(Case, self.cases(lesson), f"learner '{self.name}', `cases`") for lesson in lessons]
        given = [pair for pair in zip(lessons, cases, strict=True) if pair[1]]
        learned = iter(self._learn_together(*zip(*given, strict=True)) if given else ())
        return [next(learned) if own else None for own in cases]

    def _learn_together(self, lessons: Sequence[Lesson], cases: Sequence[Sequence[Case]]) -> list[Learned]:
        with self._memory_explained(1):
            parallel = self._passes.passes_for(lessons[0].start)
        share = max(1, self._tokens_at_once // len(lessons))
        if len(lessons) > (most := parallel.most_adapters):
            return self._learn_in_turn(lessons, cases, most)
        if len(lessons) > 1 and not self._fit_together(lessons, cases, share):
            return self._learn_in_turn(lessons, cases)
        with self._memory_explained(len(lessons)):
            passes, fittings = parallel.passes(len(lessons)), []
            for through, lesson, own in zip(passes, lessons, cases, strict=True):
                with during("adapter"):
                    through.begin(lesson.start)
                fittings.append(self.fitting(through, own, lesson, share))
            if not parallel.run([fitting.steps() for fitting in fittings]):
                return self._learn_in_turn(lessons, cases)
            learned: list[Learned] = []
            for through, fitting, lesson in zip(passes, fittings, lessons, strict=True):
                metrics = {**fitting.metrics(), **self.told_of(lesson)}
                with during("adapter"):
                    learned.append((through.result(like=lesson.start), metrics))
            return learned

    def _learn_in_turn(self, lessons: Sequence[Lesson], cases: Sequence[Sequence[Case]], of: int = 1) -> list[Learned]:
        parts = [slice(at, at + of) for at in range(0, len(lessons), of)]
        return [learned for part in parts for learned in self._learn_together(lessons[part], cases[part])]

    def fitting(self, through: Pass, cases: Sequence[Case], lesson: Lesson, tokens_at_once: int) -> Fitting:
        """The round of one adapter, to be gone through."""
        from fedse.fitting.loop import Fitting

        rule, settings = self.objective(cases), self._settings()
        whole = (through, cases, self.model.context, lesson.key, rule, lesson.start, self.teacher(lesson))
        return Fitting(*whole, tokens_at_once=tokens_at_once, **settings)

    def _settings(self) -> dict[str, Any]:
        """What the round is fitted with."""
        of_fitting = ImitationOptions.model_fields.keys() - _NOT_FOR_FITTING
        return {
            name: at(value, self._round) for name, value in self.options.model_dump(include=set(of_fitting)).items()
        }

    @contextmanager
    def _memory_explained(self, adapters: int) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            from fedse.networks.training.kept_passes import ran_out_of_memory

            if not ran_out_of_memory(error):
                raise
            now = "" if self.options.checkpointing else " with `learner.checkpointing: true`, or"
            raise GpuFull(
                f"the GPU has no memory left for the learner (adapters at once: {adapters}, tokens at once: "
                f"{self._tokens_at_once:,}); the run can be resumed{now} when other processes have left the GPU, and a new "
                "one needs less with a smaller `learner.tokens_at_once` or `policy.slots`."
            ) from error

    def _fit_together(self, lessons: Sequence[Lesson], cases: Sequence[Sequence[Case]], share: int) -> bool:
        """Whether one kind of pass does for all, and no trajectory takes more than its adapter's share of the tokens."""
        longest = max(len(item.token_ids) for own in cases for case in own for item in case.trajectories)
        alike = self._passes.suit(lesson.start for lesson in lessons)
        return alike and min(longest, self.model.context) <= share
