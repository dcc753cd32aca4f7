"""What a hub may ask of a site in one run, and what it has asked so far: counted on the site's own disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedse.errors import BadInput, OldRound, OverBudget
from fedse.experience.archive import last_round
from fedse.plugins import PluginOptions
from fedse.storage import atomic
from fedse.types import RoundTask


class BudgetOptions(PluginOptions):
    """Most of what a hub may ask for in one run, whatever the experiment says. What is over it is refused (`OverBudget`)."""

    rounds: int | None = Field(default=None, ge=1)
    """Rounds to work for; one that is repeated counts again."""
    repeats: int = Field(default=10, ge=1)
    """How often the same round may be asked for; a hub or site that was interrupted repeats it."""
    evaluations: int = Field(default=10, ge=1)
    """Evaluations for each round that was answered, and as many before the first."""
    hours: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Hours of work, all tasks together."""
    rank: int | None = Field(default=None, ge=1)
    """Ranks that a module's adapter may have, with those that a residual adds; by default as many as the module has."""
    megabytes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Megabytes to receive, all tasks together."""


class Spent(BaseModel):
    """What a hub has asked for so far."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    round: int = Field(default=0, ge=0)
    """The highest that was answered."""
    begun: int = Field(default=0, ge=0)
    """The round that was asked for last."""
    tries: int = Field(default=0, ge=0)
    """How often that was."""
    rounds: int = Field(default=0, ge=0)
    evaluations: int = Field(default=0, ge=0)
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    bytes: int = Field(default=0, ge=0)


class Account:
    """Admits tasks one by one. A count is on disk before the work begins, so that a crash does not give it back."""

    def __init__(self, file: Path, buffer: Path, budget: BudgetOptions) -> None:
        self._file = file
        self._budget = budget
        self._spent = self._read(buffer)

    @property
    def round(self) -> int:
        """The highest round that this site has answered."""
        return self._spent.round

    def admit(self, task: RoundTask, run: str) -> RoundTask:
        """Count a task in, with the time that is left for it; or raise `OldRound` or `OverBudget`."""
        if task.kind == "train" and task.round < self._spent.round:
            raise OldRound(
                f"the hub asks for round {task.round} of run '{run}', and this site has answered round "
                f"{self._spent.round} of it: the hub has lost its run folder, or was started with another --runs. Nothing "
                "was touched here. Give the hub its run folder back, or agree on another `name` in the experiment; to begin "
                f"this run anew, move {self._file.parent} away first."
            )
        following = self._with(task)
        self._check(task, following)
        self._write(following)
        if self._budget.hours is None:
            return task
        left = 3600 * self._budget.hours - self._spent.seconds
        return replace(task, seconds=left if task.seconds is None else min(task.seconds, left))

    def note_answer(self, task: RoundTask) -> None:
        """Note it before the answer leaves."""
        if task.kind == "train":
            self._write(self._spent.model_copy(update={"round": max(self._spent.round, task.round)}))

    def note_work(self, seconds: float) -> None:
        self._write(self._spent.model_copy(update={"seconds": self._spent.seconds + max(0.0, seconds)}))

    def _with(self, task: RoundTask) -> Spent:
        spent = self._spent
        received = task.vector.nbytes + sum(vector.nbytes for vector in task.library.values())
        update: dict[str, int] = {"bytes": spent.bytes + received}
        if task.kind == "train":
            again = task.round == spent.begun
            update |= {"begun": task.round, "tries": spent.tries + 1 if again else 1, "rounds": spent.rounds + 1}
        else:
            update["evaluations"] = spent.evaluations + 1
        return spent.model_copy(update=update)

    def _check(self, task: RoundTask, wanted: Spent) -> None:
        budget, answered = self._budget, self._spent.round
        if budget.hours is not None and wanted.seconds >= 3600 * budget.hours:
            self._refuse("hours", f"work beyond {wanted.seconds / 3600:.2f} hours")
        if budget.megabytes is not None and wanted.bytes > 1e6 * budget.megabytes:
            self._refuse("megabytes", f"{wanted.bytes / 1e6:.3f} megabytes to receive")
        if task.kind == "train" and budget.rounds is not None and wanted.rounds > budget.rounds:
            self._refuse("rounds", f"{wanted.rounds} rounds")
        if task.kind == "train" and wanted.tries > budget.repeats:
            self._refuse("repeats", f"round {wanted.begun} {wanted.tries} times")
        if task.kind == "evaluate" and wanted.evaluations > budget.evaluations * (1 + answered):
            self._refuse("evaluations", f"{wanted.evaluations} evaluations with {answered} rounds answered")

    def _refuse(self, name: str, words: str) -> NoReturn:
        raise OverBudget(
            f"the hub asks for {words}, more than budget.{name} = {getattr(self._budget, name):g} of this site allows: "
            "nothing was done. Raise it in the site's file if the hub is right to ask."
        )

    def _read(self, buffer: Path) -> Spent:
        if not self._file.exists():
            # A site of an older fedse counted nothing, and its buffer tells how far it came.
            return Spent(round=last_round(buffer))
        try:
            return Spent.model_validate_json(self._file.read_bytes())
        except (ValidationError, OSError) as error:
            raise BadInput(
                f"{self._file}, where this site counts what its hub has asked for, is damaged: restore it, or delete it to "
                "count anew from what the buffer knows."
            ) from error

    def _write(self, spent: Spent) -> None:
        atomic.write_text(self._file, spent.model_dump_json() + "\n")
        self._spent = spent
