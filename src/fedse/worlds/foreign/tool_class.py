"""Any Python class whose public methods are tools: the shape that TRL calls an `environment_factory`."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from pydantic import Field, model_validator

from fedse.errors import BadInput
from fedse.plugins import FilePath
from fedse.types import Split, Task
from fedse.worlds.answers import finite_number
from fedse.worlds.foreign.adapter import REPLY_FORM, SeededWorld
from fedse.worlds.foreign.task_rows import Rows, read_rows
from fedse.worlds.foreign.tool_calls import CALL_FORM, FINISH, BadCall, Tool, as_text, guess, method_tool, read_call
from fedse.worlds.world import Turn

_NO_TOOLS = ("reset", "get_reward")


class ToolClass(SeededWorld):
    """A class with `reset`, `get_reward` and tools; an action is one call of a tool in JSON."""

    name = "tools"
    version = 1

    class Options(SeededWorld.Options):
        factory: str = Field(pattern=r"^[\w.]+:\w+$")
        """The class, or a function that makes the object, as `package.module:Class`."""
        factory_options: dict[str, Any] = Field(default_factory=dict)
        """Keywords for it."""
        reset: dict[str, Any] = Field(default_factory=dict)
        """Keywords for every `reset`, beside the task's own."""
        rows: dict[Split, FilePath] = Field(default_factory=dict)
        """JSON Lines files by split; a task is a row, whose keys are keywords of `reset`. Without `validation`, a fifth of
        `train` is set apart for it; empty means that a task is a seed."""
        description: str = ""
        """What the agent is told before the tools; empty means the beginning of the class's docstring."""
        actions: list[str] = Field(default_factory=list)
        """Calls the floor is measured with; empty means calls of those tools whose arguments can be guessed."""
        refusals: list[str] = Field(default=["ValueError"])
        """Exceptions with which a tool refuses a call: the agent reads them, and the action counts as invalid. Any other
        exception is an error of the world. TRL takes every `Exception` so."""
        success_reward: float = 1.0
        """An episode is a success when `get_reward` returns at least this."""
        turn_limit: int = Field(default=20, ge=1)
        """Turns per episode."""

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if not self.rows:
                return self
            if missing := [split for split in ("train", "test") if split not in self.rows]:
                raise ValueError(f"`rows` has no file for {missing[0]}")
            fields = type(self).model_fields
            if idle := [key for key in ("train_tasks", "pool") if getattr(self, key) != fields[key].default]:
                raise ValueError(f"`{idle[0]}` has no effect beside `rows`; leave it out")
            return self

    options: Options

    # The object

    @cached_property
    def _object(self) -> Any:
        module, _, attribute = self.options.factory.partition(":")
        try:
            with self._fence.inside():
                make = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise BadInput(f"{self.name}: there is no '{self.options.factory}': {error}.") from error
        try:
            with self._fence.inside():
                made = make(**self.options.factory_options)
        except TypeError as error:
            raise BadInput(
                f"{self.name}: '{self.options.factory}' does not accept its factory_options: {error}."
            ) from error
        for method in _NO_TOOLS:
            if not callable(getattr(type(made), method, None)):
                raise BadInput(f"{self.name}: {type(made).__name__} has no method '{method}', which it needs here.")
        return made

    @cached_property
    def _tools(self) -> dict[str, Tool]:
        """The tools by name, chosen as TRL chooses them."""
        members = inspect.getmembers(type(self._object), predicate=inspect.isfunction)
        own = [name for name, _ in members if name not in _NO_TOOLS and not name.startswith("_")]
        return {name: method_tool(getattr(self._object, name)) for name in own}

    @cached_property
    def _runner(self) -> asyncio.Runner:
        return asyncio.Runner()

    def _value(self, result: Any) -> Any:
        """What a method returned; one that is `async` is waited for."""
        return self._runner.run(result) if inspect.iscoroutine(result) else result

    # Texts and tasks

    @cached_property
    def rules(self) -> str:
        first = (inspect.getdoc(type(self._object)) or "").strip().split("\n\n")[0]
        about = self.options.description or " ".join(first.split()) or "You solve a task with tools."
        if not self._tools:
            raise BadInput(f"{self.name}: {type(self._object).__name__} has no public method, hence no tool.")
        listed = "\n".join(tool.told for tool in self._tools.values())
        end = "" if FINISH in self._tools else f"\n{FINISH}()\n    Say that you are done."
        return (
            f"{about}\nTools:\n{listed}{end}\nYou have {self.turn_limit} turns. Call one tool per turn, in JSON on one "
            "line. Reply in two lines:\n" + REPLY_FORM.format(action=CALL_FORM)
        )

    @property
    def turn_limit(self) -> int:
        return self.options.turn_limit

    @cached_property
    def _rows(self) -> Rows:
        return read_rows(self.options.rows)

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(name) for name in self._rows[split]] if self.options.rows else super().tasks(split)

    def _row(self, task: str) -> dict[str, Any]:
        """Keywords of `reset` for a task."""
        if self.options.rows:
            return next(rows[task] for rows in self._rows.values() if task in rows)
        parameters = inspect.signature(self._object.reset).parameters.values()
        seeded = any(item.name == "seed" or item.kind is item.VAR_KEYWORD for item in parameters)
        return {"seed": self.seed_of(task)} if seeded else {}

    # Play

    def start(self, task: str) -> str:
        row = {**self.options.reset, **self._row(task)}
        self._fence.seed(int(task.removeprefix("row-"), 16) if self.options.rows else self.seed_of(task))
        with self._fence.inside():
            said = self._value(self._object.reset(**row))
        return (_prompt(row.get("prompt")) + ("" if said is None else as_text(said))).strip() or "Begin."

    def play(self, action: str) -> Turn:
        seen, valid, done = self._answer(action)
        if not done and len(self._actions) < self.turn_limit:
            return Turn(seen, valid)
        with self._fence.inside():
            reward = finite_number(self._value(self._object.get_reward()), "what get_reward returns")
        return Turn(seen, valid, done, reward >= self.options.success_reward, reward)

    def _answer(self, action: str) -> tuple[str, bool, bool]:
        """What the agent reads, whether its action was valid, and whether the episode is over."""
        try:
            tool, arguments = read_call(action, self._tools | ({} if FINISH in self._tools else {FINISH: _finish}))
        except BadCall as error:
            return str(error), False, False
        if tool is _finish:
            return "You are done.", True, True
        try:
            with self._fence.inside():
                seen, valid = as_text(self._value(tool.call(**arguments))), True
        except Exception as error:
            if not {kind.__name__ for kind in type(error).__mro__} & set(self.options.refusals):
                raise
            seen, valid = f"{tool.name}: {error}", False
        return seen or "(no result)", valid, bool(getattr(self._object, "done", False))

    def trivial(self, draw: float) -> str:
        """Any of the calls that were given, or a call with guessed arguments."""
        if self.options.actions:
            return self.options.actions[int(draw * len(self.options.actions))]
        guessed = guess(list(self._tools.values()), draw)
        if guessed is None:
            raise BadInput(
                f"{self.name}: no tool's arguments can be guessed; name calls in `actions` to measure a floor."
            )
        return guessed

    def close(self) -> None:
        if "_runner" in self.__dict__:
            self._runner.close()
            del self._runner


def _no_arguments(given: dict[str, Any]) -> dict[str, Any]:
    if given:
        raise ValueError("it takes no arguments")
    return given


_finish = Tool(FINISH, "", {}, lambda: None, _no_arguments)


def _prompt(prompt: Any) -> str:
    """The text of a row's prompt, which a trainer shows before what `reset` says: a text, or a list of messages."""
    if isinstance(prompt, list):
        return "\n".join(str(message.get("content", "")) for message in prompt if isinstance(message, dict))
    return prompt if isinstance(prompt, str) else ""
