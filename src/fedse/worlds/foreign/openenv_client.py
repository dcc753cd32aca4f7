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
from fedse.types import Split, Task
from fedse.worlds.answers import finite_number
from fedse.worlds.foreign.adapter import REPLY_FORM, SeededWorld
from fedse.worlds.foreign.openenv_actions import (
    NO_FIELDS,
    Actions,
    FieldActions,
    ToolActions,
    calls_tools,
    tool_answer,
)
from fedse.worlds.foreign.openenv_tasks import dealt, listed_tasks
from fedse.worlds.foreign.openenv_wire import BadAction, Server, Session
from fedse.worlds.world import Turn


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
        the whole action as JSON, or calls a tool where the environment has tools."""
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
        self._seen_last, self._valid, self._return = "", True, 0.0

    # What the server tells of itself

    @cached_property
    def _grammar(self) -> Actions:
        """How actions are written."""
        told = self._server.ask("/schema")
        schema = told.get("action") if isinstance(told, dict) else None
        if not isinstance(schema, dict):
            raise self._server.failed(
                "it does not tell the schema of its actions", "see whether it is an OpenEnv server"
            )
        tools = self._listed_tools() if calls_tools(schema) and not self.options.field else []
        return ToolActions(tools) if tools else FieldActions(schema, self.options.field, self.options.action)

    def _listed_tools(self) -> list[Any]:
        """The tools of an environment, which may be asked for at any time, in the middle of an episode too; none where an
        action only looks like a call."""
        session = self._session or self._server.session()
        try:
            tools = session.ask("step", {"type": "list_tools"}).get("observation", {}).get("tools")
        except BadAction:
            return []
        finally:
            if session is not self._session:
                session.close()
        return tools if isinstance(tools, list) else []

    @cached_property
    def rules(self) -> str:
        told = {} if self.options.description else self._server.ask("/metadata") or {}
        about = self.options.description or str(
            told.get("description") or told.get("name") or "You act in an environment."
        )
        if "Action:" in about:
            return about
        return (
            f"{about}\n{self._grammar.form()}\nYou have {self.turn_limit} turns. Answer with one action per turn, in two "
            "lines:\n" + REPLY_FORM.format(action="action")
        )

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
            if not action.strip():
                raise BadAction("it is empty")
            answer = self._ask("step", {**self.options.action, **self._grammar.meant(action)})
        except BadAction as error:
            self._leave_at_the_end(done=False)
            enough = self.options.reward == "sum" and self._return >= self.options.success_reward
            told = f"That is not an action: {error}.\n{self._seen_last}"
            return Turn(told, valid=False, success=enough, score=self._return)
        reward = finite_number(answer.get("reward") or 0.0, "a reward")
        self._return += reward
        decisive = reward if self.options.reward == "last" else self._return
        done = answer.get("done") is True
        seen = self._read(answer)
        self._leave_at_the_end(done)
        return Turn(seen, self._valid, done, decisive >= self.options.success_reward, self._return)

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
        observation = answer["observation"]
        self._valid = observation.get("valid") is not False
        if not self.options.text and {"tool_name", "result"} <= observation.keys():
            text, self._valid, broke = tool_answer(observation)
            if broke:
                raise self._failed(f"a tool broke ({broke})")
        else:
            text = self._shown(observation)
        self._seen_last = text.strip() or "(the server says nothing)"
        return self._seen_last

    def _shown(self, observation: dict[str, Any]) -> str:
        seen = {name: item for name, item in observation.items() if name not in NO_FIELDS}
        if self.options.text and self.options.text not in seen:
            raise self._failed(f"its observation has no field '{self.options.text}', only {', '.join(seen) or 'none'}")
        # An observation without fields of its own says in its metadata what it has to say.
        whole = seen or observation.get("metadata") or {}
        chosen = (
            seen[self.options.text] if self.options.text else next(iter(seen.values())) if len(seen) == 1 else whole
        )
        return chosen if isinstance(chosen, str) else json.dumps(chosen, ensure_ascii=False)

    def trivial(self, draw: float) -> str:
        """Any action of those given, or one with guessed fields."""
        if self.options.actions:
            return self.options.actions[int(draw * len(self.options.actions))]
        guessed = self._grammar.guessed(draw)
        if guessed is None:
            raise BadInput("openenv: actions cannot be guessed; name some in `actions` to measure a floor.")
        return guessed

    # The session

    def _leave_at_the_end(self, done: bool) -> None:
        """Servers have few places, often one: it is kept for no longer than an episode takes."""
        if done or len(self._actions) >= self.turn_limit:
            self.close()

    def close(self) -> None:
        if self._session is not None:
            self._leave()
            self._session = None
