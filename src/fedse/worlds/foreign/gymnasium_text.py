"""Any single-player Gymnasium environment that takes texts or a few numbered actions."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import gymnasium
from pydantic import Field, model_validator

from fedse.errors import BadInput
from fedse.seeds import stream
from fedse.types import Split, Task
from fedse.worlds.foreign.adapter import REPLY_FORM, SeededWorld, unknown
from fedse.worlds.foreign.task_ids import Named, TaskId, named_tasks
from fedse.worlds.foreign.toy_text import TOY_TEXT, Known, plain, readable
from fedse.worlds.world import Turn

_TURNS_WITHOUT_A_LIMIT = 50


class GymnasiumText(SeededWorld):
    """An environment of the Gymnasium interface, with its actions and observations put into words."""

    name = "gymnasium"
    version = 1

    class Options(SeededWorld.Options):
        env: str
        """Id of a registered environment such as `FrozenLake-v1`, or `package.module:Class`."""
        env_options: dict[str, Any] = Field(default_factory=dict)
        """Keywords for the environment's constructor."""
        actions: list[str] = Field(default_factory=list)
        """Words for the numbered actions, in their order; empty means built-in words, or `action 0`, `action 1`, ..."""
        description: str = ""
        """What the agent is told about the environment; empty means built-in words, or its docstring's beginning."""
        observation: Literal["auto", "drawing", "value"] = "auto"
        """What is seen: the environment's text drawing or the observation itself; auto takes a drawing if there is one."""
        reward: Literal["last", "sum"] = "last"
        """Which reward decides about success: the last one or the sum over the episode."""
        success_reward: float | None = None
        """An episode that ended by itself with at least this reward is a success; empty means built-in, or 1."""
        turn_limit: int | None = Field(default=None, ge=1)
        """Turns per episode; empty means the environment's own limit, or 50."""
        task_ids: dict[Split, list[TaskId]] = Field(default_factory=dict)
        """Ids of the tasks by split, for an environment that is made for one task. Without `validation`, a fifth of `train`
        is set apart for it; empty means that a task is a seed."""
        task_key: str = "task_id"
        """Keyword of the environment's constructor that takes such an id."""
        info: list[str] = Field(default_factory=list)
        """Entries of the `info` that comes with the first observation, told before it, such as `policy` or `task.ticket`."""

        @model_validator(mode="after")
        def _tasks_fit(self) -> Self:
            fields = type(self).model_fields
            idle = ("train_tasks", "pool") if self.task_ids else ("task_key",)
            if changed := [key for key in idle if getattr(self, key) != fields[key].default]:
                raise ValueError(f"`{changed[0]}` has no effect {'beside' if self.task_ids else 'without'} `task_ids`")
            if self.task_ids:
                named_tasks(self.task_ids)
            return self

    options: Options

    # Tasks

    @cached_property
    def _named(self) -> Named:
        return named_tasks(self.options.task_ids)

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(name) for name in self._named[split]] if self.options.task_ids else super().tasks(split)

    def seed_of(self, task: str) -> int:
        return stream("task id", task) % 2**31 if self.options.task_ids else super().seed_of(task)

    def _made_for(self, task: str) -> gymnasium.Env[Any, Any]:
        """The environment for a task. One that is made for a single task is made anew."""
        if self.options.task_ids and task != self._made_of:
            self.close()
            self.__dict__.pop("_env", None)
            self._made_of = task
        return self._env

    # The environment

    _made_of = ""
    """The task that the environment was made for; empty means the first one."""

    @cached_property
    def _env(self) -> gymnasium.Env[Any, Any]:
        with self._fence.inside():
            try:
                return self._made()
            except gymnasium.error.UnregisteredEnv as error:
                raise unknown(self.options.env, "gymnasium: environment", sorted(gymnasium.registry)) from error
            except gymnasium.error.DependencyNotInstalled as error:
                raise BadInput(f"gymnasium: environment '{self.options.env}' needs another library: {error}") from error
            except TypeError as error:
                raise BadInput(f"gymnasium: '{self.options.env}' does not accept its env_options: {error}.") from error

    def _made(self) -> gymnasium.Env[Any, Any]:
        module, _, attribute = self.options.env.partition(":")
        options: dict[str, Any] = dict(self.options.env_options)
        if self.options.task_ids:
            known = {name: item for own in self._named.values() for name, item in own.items()}
            options[self.options.task_key] = known[self._made_of or next(iter(known))]
        if attribute.isidentifier():
            try:
                kind = getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise BadInput(f"gymnasium: there is no class '{self.options.env}': {error}.") from error
            if not (isinstance(kind, type) and issubclass(kind, gymnasium.Env)):
                raise BadInput(f"gymnasium: '{self.options.env}' is not a gymnasium.Env.")
            if self._wants_drawing(kind.metadata):
                options.setdefault("render_mode", "ansi")
            return kind(**options)
        spec = gymnasium.spec(self.options.env)
        # The turn limit is the world's affair, so that being cut off is told apart from an end.
        plain: dict[str, Any] = {"disable_env_checker": True, "max_episode_steps": -1, **options}
        entry = spec.entry_point
        creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
        if self._wants_drawing(getattr(creator, "metadata", {})):
            plain.setdefault("render_mode", "ansi")
        return gymnasium.make(self.options.env, **plain)

    def _wants_drawing(self, metadata: Any) -> bool:
        if self.options.observation == "value":
            return False
        offered = "ansi" in (metadata or {}).get("render_modes", ())
        if not offered and self.options.observation == "drawing":
            raise BadInput(f"gymnasium: environment '{self.options.env}' draws no text; use `observation: value`.")
        return offered

    @cached_property
    def _toy(self) -> Known | None:
        name = type(self._env.unwrapped).__name__.removesuffix("Env")
        ours = type(self._env.unwrapped).__module__.startswith("gymnasium.envs.toy_text.")
        return TOY_TEXT.get(name) if ours else None

    @cached_property
    def _words(self) -> dict[str, int] | None:
        """Words of the numbered actions; None where an action is a text."""
        space = self._env.action_space
        with self._fence.inside():
            # Some environments have a space of their own for texts.
            if isinstance(space, gymnasium.spaces.Text) or space.contains("a text"):
                return None
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise BadInput(
                f"gymnasium: actions of '{self.options.env}' are {type(space).__name__}; only Text and Discrete fit."
            )
        count, first = int(space.n), int(space.start)
        words: Sequence[str] = self.options.actions or (self._toy.actions if self._toy else ())
        words = [word.strip().lower() for word in words] or [f"action {number}" for number in range(count)]
        if len(set(words)) != count:
            raise BadInput(f"gymnasium: '{self.options.env}' has {count} actions; `actions` must name each once.")
        return {word: first + place for place, word in enumerate(words)}

    # Texts

    @cached_property
    def rules(self) -> str:
        about = self.options.description or (self._toy.description if self._toy else self._docstring())
        possible = f"Actions: {', '.join(self._words)}.\n" if self._words else "An action is a line of text.\n"
        return (
            f"{about}\n{possible}You have {self.turn_limit} turns. Answer with one action per turn, in two lines:\n"
            + REPLY_FORM.format(action="action")
        )

    def _docstring(self) -> str:
        """The first paragraph of the environment's own description."""
        first = (inspect.getdoc(type(self._env.unwrapped)) or "").strip().split("\n\n")[0]
        return " ".join(first.split()) or f"You act in the environment {self.options.env}."

    @cached_property
    def turn_limit(self) -> int:
        spec = None if self.options.env.partition(":")[2].isidentifier() else gymnasium.spec(self.options.env)
        own = spec.max_episode_steps if spec else None
        return self.options.turn_limit or own or _TURNS_WITHOUT_A_LIMIT

    def _view(self, observation: Any) -> str:
        if isinstance(observation, str):
            return observation
        if self._env.render_mode == "ansi":
            drawn = self._env.render()
            where = self._taxi_in_words(observation)
            return where + readable(drawn if isinstance(drawn, str) else "".join(map(str, drawn or ())))
        return (self._toy.observation if self._toy else "{0}").format(plain(observation))

    def _taxi_in_words(self, observation: Any) -> str:
        """Taxi draws passenger and destination in colours only, and hides a passenger on board."""
        decode = getattr(self._env.unwrapped, "decode", None)
        if self._toy is not TOY_TEXT["Taxi"] or decode is None:
            return ""
        row, column, passenger, destination = decode(int(observation))
        place = "in the taxi" if passenger == 4 else f"at {'RGYB'[passenger]}"
        return f"Taxi: row {row}, column {column}. Passenger: {place}. Destination: {'RGYB'[destination]}.\n"

    # Play

    def start(self, task: str) -> str:
        env, seed = self._made_for(task), self.seed_of(task)
        self._fence.seed(seed)
        with self._fence.inside():
            observation, self._info = env.reset(seed=seed)
            env.action_space.seed(seed)
            self._return, self._view_now = 0.0, self._view(observation)
            told = [_told(self._info, name) for name in self.options.info]
        return "\n".join([*told, self._view_now]).strip() if told else self._view_now

    def play(self, action: str) -> Turn:
        meant: Any = action if self._words is None else self._words.get(action.strip().rstrip(".").lower())
        if meant is None or (self._words is None and not (action.strip() and self._env.action_space.contains(action))):
            allowed = f" Use one of: {', '.join(self._words)}." if self._words else ""
            return Turn(f"That is not an action.{allowed}\n{self._view_now}", valid=False, score=self._return)
        with self._fence.inside():
            observation, reward, terminated, truncated, self._info = self._env.step(meant)
            self._view_now = self._view(observation)
        self._return += float(reward)
        decisive = float(reward) if self.options.reward == "last" else self._return
        bar = self.options.success_reward
        if bar is None:
            bar = self._toy.success_reward if self._toy else 1.0
        return Turn(
            self._view_now or "(nothing to see)",
            valid=self._info.get("valid") is not False,
            done=bool(terminated or truncated),
            success=bool(terminated) and decisive >= bar,
            score=self._return,
        )

    def legal_actions(self) -> list[str] | None:
        return list(self._words) if self._words else None

    def trivial(self, draw: float) -> str:
        """Any of the actions. A text environment lists none: give words to draw from in `actions`."""
        actions = list(self._words) if self._words else self.options.actions
        if not actions:
            raise BadInput(f"gymnasium: '{self.options.env}' takes texts; name some in `actions` to measure a floor.")
        return actions[int(draw * len(actions))]

    def close(self) -> None:
        if "_env" in self.__dict__:
            self._env.close()


def _told(info: Any, name: str) -> str:
    """An entry of `info` as text: a list item by item, and `a.b` for what `a` holds under `b`."""
    value = info
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
        if value is None:
            raise BadInput(
                f"gymnasium: the environment's info has no '{name}'; it has: {', '.join(info) or 'nothing'}."
            )
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
