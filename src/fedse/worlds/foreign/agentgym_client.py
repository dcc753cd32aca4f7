"""A client of AgentGym's environment servers, for people who run them already.

A server that is down, slow or confused raises `AgentGymFailed`: the episode is an error, never a failure of the agent.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedse.errors import FedseError
from fedse.plugins import FilePath
from fedse.types import SPLITS, Split, Task
from fedse.worlds.foreign.adapter import REPLY_FORM, ForeignWorld
from fedse.worlds.foreign.agentgym_dialects import DIALECTS
from fedse.worlds.splits import official_ids, set_apart
from fedse.worlds.world import Turn, World

Range = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]
# A server is addressed directly, whatever proxy the machine has for the rest of the net.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AgentGymFailed(FedseError):
    """An AgentGym server did not answer, or not in its own protocol."""


class AgentGymServer(ForeignWorld):
    """An environment that lives behind an AgentGym server."""

    name = "agentgym"
    version = 1

    class Options(World.Options):
        operational: ClassVar[frozenset[str]] = frozenset({"url", "timeout"})

        url: str = Field(pattern=r"^https?://[^\s/]+")
        """Address of the server, as given to AgentGym; for maze and wordle it ends in /maze or /wordle."""
        environment: Literal["babyai", "textcraft", "webshop", "maze", "wordle", "alfworld", "sciworld"]
        """Which of AgentGym's environments answers there."""
        ids: FilePath | None = None
        """JSON file with the ids of the splits; without `validation`, a fifth of `train` is set apart for it."""
        train: Range = Field(default=[200, 800])
        """First id of the training tasks, and the first after them."""
        validation: Range = Field(default=[100, 200])
        """The same for the validation tasks."""
        test: Range = Field(default=[0, 100])
        """The same for the test tasks."""
        description: str = ""
        """What the agent is told; empty means a short text of our own."""
        actions: list[str] = Field(default_factory=list)
        """Actions the floor is measured with; empty means those the server lists, or a few that always mean something."""
        success_reward: float | None = None
        """Least reward of a success; empty means AgentGym's own rule for the environment."""
        turn_limit: int | None = Field(default=None, ge=1)
        """Turns per episode; empty means AgentGym's own."""
        timeout: float = Field(default=60.0, gt=0)
        """Seconds to wait for an answer."""

        @model_validator(mode="after")
        def _fits(self) -> Self:
            ranges = sorted((getattr(self, split), split) for split in SPLITS)
            if self.ids is not None:
                changed = [split for split in SPLITS if getattr(self, split) != type(self).model_fields[split].default]
                if changed:
                    raise ValueError(f"`{changed[0]}` has no effect beside `ids`; leave it out")
                return self
            for (first, last), split in ranges:
                if first >= last:
                    raise ValueError(f"`{split}` holds no task: {first} to {last}")
            for (before, one), (after, other) in itertools.pairwise(ranges):
                if after[0] < before[1]:
                    raise ValueError(f"`{one}` and `{other}` share tasks; their ranges must not overlap")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._dialect = DIALECTS[self.options.environment]
        self._identity: int | None = None

    # Texts and tasks

    @property
    def rules(self) -> str:
        return (
            f"{self.options.description or self._dialect.about}\nYou have {self.turn_limit} turns. Answer with one action "
            "per turn, in two lines:\n" + REPLY_FORM.format(action="action")
        )

    @property
    def turn_limit(self) -> int:
        return self.options.turn_limit or self._dialect.turn_limit

    @cached_property
    def _splits(self) -> dict[Split, list[Task]]:
        if self.options.ids is None:
            return {split: [Task(str(number)) for number in range(*getattr(self.options, split))] for split in SPLITS}
        found = official_ids(self.options.ids)
        if "validation" not in found and len(found.get("train", ())) > 1:
            train, validation = set_apart(found["train"])
            found |= {"train": list(train), "validation": list(validation)}
        return {split: [Task(number) for number in found.get(split, [])] for split in SPLITS}

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._splits[split]

    # The protocol

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The server's answer: to a POST with this body, or to a GET."""
        query = ""
        if self._identity is not None:
            if body is None:
                query = "?" + urllib.parse.urlencode({self._dialect.identity: self._identity})
            else:
                body = {**body, self._dialect.identity: self._identity}
        address = f"{self.options.url.rstrip('/')}/{path}"
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + query, data=sent, headers={"Content-Type": "application/json"})
        try:
            with _OPENER.open(request, timeout=self.options.timeout) as response:
                answer = json.loads(response.read().decode("utf-8"))
        except urllib.error.HTTPError as error:
            raise self._failed(address, f"it answers with status {error.code}") from error
        except TimeoutError as error:
            raise self._failed(address, f"no answer within {self.options.timeout:g} s") from error
        except urllib.error.URLError as error:
            slow = isinstance(error.reason, TimeoutError)
            told = f"no answer within {self.options.timeout:g} s" if slow else f"no connection ({error.reason})"
            raise self._failed(address, told) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(address, f"the connection broke ({type(error).__name__})") from error
        except ValueError as error:
            raise self._failed(address, "its answer is not JSON") from error
        if isinstance(answer, dict) and "error" in answer:
            # The servers report their own failures with status 200.
            raise self._failed(address, f"it reports an error: {str(answer['error'])[:200]}")
        return answer

    def _failed(self, address: str, what: str) -> AgentGymFailed:
        # An environment whose last request failed is in an unknown state; the next episode asks for a new one.
        self._identity = None
        return AgentGymFailed(
            f"agentgym: the server at {address} failed: {what}; see whether it runs and what it logs."
        )

    def _field(self, answer: Any, name: str, *kinds: type) -> Any:
        found = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(found, kinds):
            raise self._failed(self.options.url, f"its answer has no usable field '{name}'")
        return found

    # Play

    def start(self, task: str) -> str:
        if self._identity is None:
            created = self._ask("create", {})
            # WebShop answers with the bare number.
            self._identity = created if type(created) is int else self._field(created, "id", int)
        answer = self._ask("reset", {self._dialect.task: int(task), **self._dialect.reset})
        if self.options.environment == "webshop":
            seen = self._ask("observation")
            if not isinstance(seen, str):
                raise self._failed(self.options.url, "its observation is not a text")
        else:
            seen = self._field(answer, self._dialect.observation, str)
        preface = [self._field(answer, self._dialect.preface, str)] if self._dialect.preface else []
        if self.options.environment == "wordle":
            preface = [f"The words to guess from: {', '.join(self._ask('filtered_vocab'))}."]
        self._offered = self._available(answer)
        return "\n".join([*preface, self._shown(seen)])

    def play(self, action: str) -> Turn:
        answer = self._ask("step", {"action": action.strip()})
        seen = self._field(answer, self._dialect.observation, str)
        reward = float(self._field(answer, self._dialect.reward, int, float))
        done = self._field(answer, "done", bool)
        bar = self._dialect.success if self.options.success_reward is None else self.options.success_reward
        before, self._offered = self._offered, [] if done else self._available(answer)
        # The protocol does not say whether an action meant anything; only a list of actions can tell.
        known = not before or action.strip() in before or action.strip().startswith("search[")
        return Turn(
            self._shown(seen),
            valid=bool(action.strip()) and known,
            done=done,
            success=done and reward >= bar,
            score=reward,
        )

    def _shown(self, seen: str) -> str:
        if self.options.environment == "alfworld" and self._offered:
            return f"{seen}\nAvailable actions: {', '.join(self._offered)}"
        return seen.strip() or "(the server says nothing)"

    def _available(self, answer: Any) -> list[str]:
        """The actions the server lists for the present state; empty where it lists none."""
        if not self._dialect.lists_actions:
            return []
        if self.options.environment == "webshop":
            page = self._ask("available_actions")
            return [f"click[{button}]" for button in self._field(page, "clickables", list)]
        return [str(action) for action in self._field(answer, "available_actions", list)]

    def legal_actions(self) -> list[str] | None:
        return list(self._offered) or None

    def open_actions(self) -> list[tuple[str, str]]:
        return [("search[", "]")] if self.options.environment == "webshop" else []

    def trivial(self, draw: float) -> str:
        """Any action of those given, listed by the server, or known to mean something."""
        actions = self.options.actions or self._offered or list(self._dialect.actions)
        return actions[int(draw * len(actions))]

    def close(self) -> None:
        """Give the environment back. Several servers cannot, so a refusal is no error."""
        if self._identity is not None:
            with contextlib.suppress(AgentGymFailed):
                self._ask("close", {})
            self._identity = None
