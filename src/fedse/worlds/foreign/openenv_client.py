"""A client of OpenEnv's environment servers, which speaks their WebSocket protocol and needs nothing of theirs.

A server that is down, slow or broken raises `OpenEnvFailed`: the episode is an error, never a failure of the agent.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from fedse.errors import BadInput
from fedse.storage.strict_json import parse
from fedse.types import Split, Task
from fedse.worlds.answers import finite_number
from fedse.worlds.foreign.adapter import REPLY_FORM, SeededWorld
from fedse.worlds.foreign.guesses import choice, few_values
from fedse.worlds.foreign.openenv_tasks import dealt, listed_tasks
from fedse.worlds.foreign.openenv_wire import BadAction, Server, Session
from fedse.worlds.world import Turn

_NO_FIELDS = ("metadata", "done", "reward")
"""Of every action and observation; nothing that an agent would fill in or read."""


class OpenEnvServer(SeededWorld):
    """An environment that lives behind an OpenEnv server."""

    name = "openenv"
    version = 1

    class Options(SeededWorld.Options):
        operational: ClassVar[frozenset[str]] = frozenset({"url", "timeout"})

        url: str = Field(pattern=r"^https?://[^\s/]+")
        """Address of the server, such as `http://127.0.0.1:8000`."""
        text: str = ""
        """Field of an observation that the agent reads; empty means the only field if it is a text, else all as JSON."""
        field: str = ""
        """Field of an action that the agent's line fills; empty means the only one that is required, else the agent writes
        the whole action as JSON."""
        reset: dict[str, Any] = Field(default_factory=dict)
        """Keywords for every `reset`, beside the task's own."""
        action: dict[str, Any] = Field(default_factory=dict)
        """Fields that every action has, beside the agent's own."""
        splits: dict[Split, str] = Field(default_factory=dict)
        """Which of the server's splits is which of ours, for servers that list tasks under other names."""
        description: str = ""
        """What the agent is told; empty means the server's own description. A text that has `Action:` in it is taken as
        the whole rules."""
        actions: list[str] = Field(default_factory=list)
        """Actions the floor is measured with; empty means guesses, where the fields of an action have few values."""
        reward: Literal["last", "sum"] = "last"
        """Which reward decides about success: the last one or the sum over the episode."""
        success_reward: float = 1.0
        """An episode that ends with at least this reward is a success, also at the turn limit."""
        turn_limit: int = Field(default=20, ge=1)
        """Turns per episode."""
        timeout: float = Field(default=60.0, gt=0)
        """Seconds to wait for an answer."""

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._server = Server(self.options.url, self.options.timeout)
        self._session: Session | None = None
        self._seen_last, self._return = "", 0.0

    # What the server tells of itself

    @cached_property
    def _schema(self) -> dict[str, Any]:
        """JSON schema of an action without the fields that are given and those that no agent fills in."""
        told = self._server.ask("/schema")
        schema = told.get("action") if isinstance(told, dict) else None
        if not isinstance(schema, dict):
            raise self._server.failed(
                "it does not tell the schema of its actions", "see whether it is an OpenEnv server"
            )
        given = {*_NO_FIELDS, *self.options.action}
        properties = {name: item for name, item in schema.get("properties", {}).items() if name not in given}
        required = [name for name in schema.get("required", ()) if name not in given]
        return {**schema, "properties": properties, "required": required}

    @cached_property
    def _field(self) -> str:
        """The field that the agent's line fills; empty where the line is the whole action as JSON."""
        fields, required = self._schema["properties"], self._schema["required"]
        if self.options.field:
            if self.options.field not in fields:
                raise BadInput(
                    f"openenv: an action has no field '{self.options.field}'; its fields: {', '.join(fields) or 'none'}."
                )
            return self.options.field
        return required[0] if len(required) == 1 else ""

    @cached_property
    def rules(self) -> str:
        told = {} if self.options.description else self._server.ask("/metadata") or {}
        about = self.options.description or str(
            told.get("description") or told.get("name") or "You act in an environment."
        )
        if "Action:" in about:
            return about
        return (
            f"{about}\n{self._form()}\nYou have {self.turn_limit} turns. Answer with one action per turn, in two lines:\n"
            + REPLY_FORM.format(action="action")
        )

    def _form(self) -> str:
        """How an action is written."""
        if self._field:
            return f"An action is one line that gives the {self._about(self._field)}"
        fields = [f"- {self._about(name)}" for name in self._schema["properties"]]
        return "\n".join(["An action is a JSON object on one line. Its fields:", *fields])

    def _about(self, name: str) -> str:
        """A field of an action in words."""
        item = self._schema["properties"][name]
        few = (few_values(self._schema) or {}).get(name, ())
        kind = f" ({item['type']})" if "type" in item else ""
        listed = f" One of: {', '.join(map(str, few))}." if few and not isinstance(few, range) else ""
        return f"{name}{kind}: {item.get('description', '')}{listed}".rstrip(": ")

    @property
    def turn_limit(self) -> int:
        return self.options.turn_limit

    # Tasks

    @cached_property
    def _listed(self) -> dict[Split, list[Task]] | None:
        """The tasks that the server lists; None where a task is a seed."""
        offered = listed_tasks(self._server)
        if offered is None:
            if self.options.splits:
                raise BadInput("openenv: the server lists no tasks, so `splits` has no effect; leave it out.")
            return None
        ids = dealt(offered, self.options.splits)
        first, count = self.options.pool * self.options.train_tasks, self.options.train_tasks
        if first >= len(ids["train"]):
            raise BadInput(
                f"openenv: pool {self.options.pool} is empty; the server has {len(ids['train'])} training tasks."
            )
        ids["train"] = ids["train"][first : first + count]
        return {split: [Task(name) for name in own] for split, own in ids.items()}

    def tasks(self, split: Split) -> Sequence[Task]:
        return super().tasks(split) if self._listed is None else self._listed[split]

    def _chosen(self, task: str) -> dict[str, Any]:
        """Keywords that choose a task in `reset`."""
        if self._listed is None:
            return {"seed": self.seed_of(task)}
        split, _, index = task.rpartition("-")
        return {"split": split, "index": int(index)}

    # Play

    def start(self, task: str) -> str:
        if self._session is None:
            self._session = self._server.session()
            # A world that is dropped in the middle of an episode must not keep a place at the server.
            self._leave = weakref.finalize(self, self._session.close)
        self._return = 0.0
        answer = self._ask("reset", {**self.options.reset, **self._chosen(task)})
        if answer.get("done"):
            raise self._failed("its episode is over before the first action")
        return self._read(answer)

    def play(self, action: str) -> Turn:
        try:
            answer = self._ask("step", {**self.options.action, **self._meant(action)})
        except BadAction as error:
            self._leave_at_the_end(done=False)
            enough = self.options.reward == "sum" and self._return >= self.options.success_reward
            told = f"That is not an action: {error}.\n{self._seen_last}"
            return Turn(told, valid=False, success=enough, score=self._return)
        reward = finite_number(answer.get("reward") or 0.0, "a reward")
        self._return += reward
        decisive = reward if self.options.reward == "last" else self._return
        done = answer.get("done") is True
        self._leave_at_the_end(done)
        return Turn(
            self._read(answer),
            valid=answer["observation"].get("valid") is not False,
            done=done,
            success=decisive >= self.options.success_reward,
            score=self._return,
        )

    def _meant(self, action: str) -> dict[str, Any]:
        """The action as the server takes it."""
        if not action.strip():
            raise BadAction("it is empty")
        # The type of a field is the server's affair, but a list or a number is not written as a text.
        text = self._schema["properties"].get(self._field, {}).get("type") == "string"
        try:
            said = action if text else parse(action)
        except ValueError as error:
            if self._field:
                return {self._field: action}
            raise BadAction("it is not JSON") from error
        if self._field:
            return {self._field: said}
        if not isinstance(said, dict):
            raise BadAction("it is not a JSON object")
        return said

    def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        if self._session is None:
            raise self._failed("the connection was given up")
        try:
            answer = self._session.ask(kind, data)
        except BadAction:
            raise
        except Exception:
            # An environment whose last request failed is in an unknown state; the next episode asks for a new one.
            self.close()
            raise
        if not isinstance(answer.get("observation"), dict):
            raise self._failed("its answer holds no observation")
        return answer

    def _failed(self, what: str) -> Exception:
        self.close()
        return self._server.failed(what)

    def _read(self, answer: dict[str, Any]) -> str:
        """What the agent reads of an observation."""
        seen = {name: item for name, item in answer["observation"].items() if name not in _NO_FIELDS}
        if self.options.text and self.options.text not in seen:
            raise self._failed(f"its observation has no field '{self.options.text}', only {', '.join(seen) or 'none'}")
        chosen = seen[self.options.text] if self.options.text else next(iter(seen.values())) if len(seen) == 1 else seen
        text = chosen if isinstance(chosen, str) else json.dumps(chosen, ensure_ascii=False)
        self._seen_last = text.strip() or "(the server says nothing)"
        return self._seen_last

    def trivial(self, draw: float) -> str:
        """Any action of those given, or one with guessed fields."""
        if self.options.actions:
            return self.options.actions[int(draw * len(self.options.actions))]
        values = few_values(self._schema) or {}
        if not values or (self._field and self._field not in values):
            raise BadInput(
                "openenv: the fields of an action cannot be guessed; name some in `actions` to measure a floor."
            )
        guessed = choice(values, draw)
        if not self._field:
            return json.dumps(guessed)
        value = guessed[self._field]
        return value if isinstance(value, str) else json.dumps(value)

    # The session

    def _leave_at_the_end(self, done: bool) -> None:
        """Servers have few places, often one: it is kept for no longer than an episode takes."""
        if done or len(self._actions) >= self.turn_limit:
            self.close()

    def close(self) -> None:
        if self._session is not None:
            self._leave()
            self._session = None
