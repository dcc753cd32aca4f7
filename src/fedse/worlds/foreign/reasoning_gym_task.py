"""Any question generator of reasoning-gym: one question, one answer, scored by the generator itself."""

from __future__ import annotations

import importlib
from functools import cached_property
from types import ModuleType
from typing import Any

from pydantic import Field

from fedse.errors import BadInput, MissingExtra
from fedse.worlds.foreign.adapter import REPLY_FORM, Fence, SeededWorld, unknown
from fedse.worlds.world import Turn

_VERB = "answer "
_GUESSES = 8
"""Training questions whose answers the trivial policy chooses from."""


class ReasoningGymTask(SeededWorld):
    """A question of one generator. Its answer may be partly right; success is a score at or above the threshold."""

    name = "reasoning_gym"
    version = 1

    class Options(SeededWorld.Options):
        dataset: str
        """Name of a generator such as `chain_sum`."""
        dataset_options: dict[str, Any] = Field(default_factory=dict)
        """Settings of the generator, such as its difficulty."""
        threshold: float = Field(default=1.0, gt=0, le=1)
        """Least score that counts as a success. Many generators pay a little for any answer."""

    options: Options

    @cached_property
    def _library(self) -> ModuleType:
        try:
            with self._fence.inside():
                return importlib.import_module("reasoning_gym")
        except ModuleNotFoundError as error:
            feature = f"the world 'reasoning_gym' (dataset '{self.options.dataset}')"
            raise MissingExtra(feature, "reasoning-gym", "reasoning-gym") from error

    def _generated(self, task: str) -> tuple[Any, dict[str, Any]]:
        """The generator and the question of a task.

        Every task is the only question of a generator with its own seed. Questions i of seed s and i - 1 of seed s + 1
        are the same in this library, so longer runs of questions would reach into other splits.
        """
        known = importlib.import_module("reasoning_gym.factory").DATASETS if self._library else {}
        if self.options.dataset not in known:
            raise unknown(self.options.dataset, "reasoning_gym: dataset", sorted(known))
        seed = self.seed_of(task)
        # A fence of its own: the trivial policy makes questions in the middle of an episode.
        fence = Fence()
        fence.seed(seed)
        with fence.inside():
            try:
                dataset = self._library.create_dataset(
                    self.options.dataset, **{**self.options.dataset_options, "seed": seed, "size": 1}
                )
            except (TypeError, AssertionError, ValueError) as error:
                raise BadInput(
                    f"reasoning_gym: dataset '{self.options.dataset}' refuses its options: {error}."
                ) from error
            return dataset, dataset[0]

    @property
    def rules(self) -> str:
        return (
            "You are given a question. Think, then answer it; you have one try. Write the answer in one line, with "
            "\\n where a new line belongs. Reply in two lines:\n" + REPLY_FORM.format(action="answer YOUR ANSWER")
        )

    @property
    def turn_limit(self) -> int:
        return 1

    def start(self, task: str) -> str:
        self._fence.seed(self.seed_of(task))
        self._dataset, self._entry = self._generated(task)
        return str(self._entry["question"])

    def play(self, action: str) -> Turn:
        if not action.strip().lower().startswith(_VERB):
            return Turn("That is not an answer. Write: answer YOUR ANSWER", valid=False, done=True)
        text, own = action.strip()[len(_VERB) :].strip(), self._entry["answer"]
        if own is None or "\n" in str(own):
            # Elsewhere a backslash belongs to the answer.
            text = text.replace("\\n", "\n")
        with self._fence.inside():
            try:
                score = float(self._dataset.score_answer(text, self._entry))
            except Exception:
                if own is None:
                    raise
                # Some scorers break on a text they cannot read. One that breaks on its own answer too is broken itself.
                self._dataset.score_answer(str(own), self._entry)
                return Turn("The answer could not be read.", valid=False, done=True)
        success = score >= self.options.threshold
        return Turn("The answer is right." if success else "The answer is wrong.", True, True, success, score)

    @cached_property
    def has_expert(self) -> bool:
        """Some generators can score an answer and know none."""
        return self._generated(self.tasks("train")[0].id)[1]["answer"] is not None

    def expert(self) -> tuple[str, str]:
        answer = self._entry["answer"]
        if answer is None:
            return super().expert()
        line = str(answer).strip("\n").replace("\n", "\\n")
        return "I work the question out step by step and check the result.", f"{_VERB}{line}"

    @cached_property
    def _guesses(self) -> list[tuple[str, str]]:
        answers = [(task.id, self._generated(task.id)[1]["answer"]) for task in self.tasks("train")[:_GUESSES]]
        return [(task, str(answer)) for task, answer in answers if answer is not None]

    def trivial(self, draw: float) -> str:
        """The answer to another question of the generator, as one who has not read this one might give."""
        guesses = [answer for task, answer in self._guesses if task != self._task] or ["0"]
        answer = guesses[int(draw * len(guesses))].strip("\n").replace("\n", "\\n")
        return f"{_VERB}{answer}"
