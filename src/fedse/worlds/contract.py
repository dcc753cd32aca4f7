"""What an agent may never do in a world. Every reply is checked before the world hears of it:

    kept     the world's step
    broken   the agent is told so and asked again; after `tries` in a row the fallback acts, or the episode ends

So no action that breaks the contract reaches the world, whatever the weights, the adapter or the other sites are.
"""

from __future__ import annotations

import re
from typing import Any, SupportsFloat

from pydantic import Field, field_validator, model_validator

from fedse.plugins import PluginOptions
from fedse.worlds.world import World

REFUSED = "You may not do that here."


class ContractOptions(PluginOptions):
    """Actions that are not carried out. Patterns are regular expressions, and case does not matter."""

    forbid: list[str] = Field(default_factory=list)
    """An action in which one of these is found anywhere breaks the contract."""
    allow: list[str] | None = Field(default=None, min_length=1)
    """An action that none of these matches from its first to its last letter breaks the contract; null allows all."""
    tries: int = Field(default=3, ge=1)
    """Replies in a row that may break the contract: after so many the fallback acts."""
    fallback: str | None = None
    """The action that is then carried out in the agent's place; it must keep the contract. Null ends the episode. Either
    way the episode is no success."""

    @field_validator("forbid", "allow")
    @classmethod
    def _are_patterns(cls, patterns: list[str] | None) -> list[str] | None:
        for pattern in patterns or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression ({error})") from error
        return patterns

    @model_validator(mode="after")
    def _holds_something(self) -> ContractOptions:
        if not self.forbid and self.allow is None:
            raise ValueError("a contract that forbids nothing has no effect: name patterns in `forbid` or `allow`")
        if self.fallback is not None and not self.keeps(self.fallback):
            raise ValueError(
                f"the fallback '{self.fallback}' breaks the contract itself: choose an action that keeps it"
            )
        return self

    def keeps(self, action: str) -> bool:
        """Whether an action may be carried out."""
        if any(re.search(pattern, action, re.IGNORECASE) for pattern in self.forbid):
            return False
        return self.allow is None or any(re.fullmatch(pattern, action, re.IGNORECASE) for pattern in self.allow)


class UnderContract:
    """A world that is only ever told actions that keep a contract. In everything else it is the world itself."""

    def __init__(self, world: World, contract: ContractOptions) -> None:
        self.world = world
        self.contract = contract
        self._observation = ""
        self._broken = 0
        self._helped = False

    def __getattr__(self, name: str) -> Any:
        if name in ("world", "contract"):  # While it is copied or unpickled, it has neither.
            raise AttributeError(name)
        return getattr(self.world, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._broken, self._helped = 0, False
        self._observation, info = self.world.reset(seed=seed, options=options)
        return self._observation, info

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        if self.contract.keeps(action):
            self._broken = 0
            return self._step(action)
        self._broken += 1
        if self._broken < self.contract.tries:
            return f"{REFUSED}\n{self._observation}", 0.0, False, False, {"valid": False}
        self._broken, self._helped = 0, True
        if self.contract.fallback is None:
            return REFUSED, 0.0, False, True, {"valid": False, "success": False, "score": 0.0}
        observation, _, terminated, truncated, info = self._step(self.contract.fallback)
        return observation, 0.0, terminated, truncated, {**info, "valid": False}

    def _step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        self._observation, reward, terminated, truncated, info = self.world.step(action)
        if self._helped and (terminated or truncated):
            # What somebody else did for the agent is nothing to learn from or to boast of.
            info = {**info, "success": False, "score": 0.0}
        return self._observation, reward, terminated, truncated, info

    def legal_actions(self) -> list[str] | None:
        """Those that keep the contract; where none does, all of them, and `step` refuses what is chosen."""
        listed = self.world.legal_actions()
        return listed and ([action for action in listed if self.contract.keeps(action)] or listed)

    def save(self) -> Any:
        return self._observation, self._broken, self._helped, self.world.save()

    def restore(self, saved: Any) -> None:
        self._observation, self._broken, self._helped, inner = saved
        self.world.restore(inner)
