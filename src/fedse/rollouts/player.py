"""Plays many episodes at once: as one ends, the next takes its place in the policy's slots."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedse.protocols import Chat, Policy, Reply, Sampling
from fedse.rollouts.replies import parse
from fedse.types import Outcome, Purpose, Step, Task, Trajectory
from fedse.worlds.world import World


@dataclass(frozen=True)
class Episode:
    """One attempt that somebody wants played."""

    client: str
    world: str
    make_world: Callable[[], World]
    task: Task
    purpose: Purpose
    round: int
    attempt: int
    sampling: Sampling


@dataclass
class _Open:
    """An episode in play."""

    number: int
    episode: Episode
    world: World
    slot: int
    observation: str
    ids: list[int]
    mask: list[bool]
    steps: list[Step] = field(default_factory=list)


class Player:
    """Joins a policy, which knows no worlds, with worlds, which know no tokens."""

    def __init__(
        self,
        policy: Policy,
        chat: Chat,
        context: int,
        finished: Callable[[Trajectory], None] = lambda _: None,
    ) -> None:
        self.policy = policy
        self.chat = chat
        self.context = context
        self._finished = finished
        self._idle: dict[Any, list[World]] = {}

    def play(self, episodes: Iterable[Episode], adapter: str) -> list[Trajectory]:
        """Trajectories in the order of the episodes. `adapter` is the digest of what the policy has loaded."""
        self._adapter = adapter
        self._done: dict[int, Trajectory] = {}
        waiting = deque(enumerate(episodes))
        in_play: dict[int, _Open] = {}
        while waiting or in_play:
            while waiting and len(in_play) < self.policy.slots:
                opened = self._begin(*waiting.popleft())
                if opened is not None:
                    in_play[opened.slot] = opened
            for reply in self.policy.ready() if in_play else []:
                if self._answer(in_play[reply.slot], reply):
                    del in_play[reply.slot]
                    self.policy.close(reply.slot)
        return [self._done[number] for number in sorted(self._done)]

    def _begin(self, number: int, episode: Episode) -> _Open | None:
        try:
            idle = self._idle.setdefault(episode.make_world, [])
            world = idle.pop() if idle else episode.make_world()
            observation, _ = world.reset(options={"task": episode.task.id})
        except Exception as error:
            self._end(number, episode, [], "", Outcome.ERROR, 0.0, [], [], error)
            return None
        opening = self.chat.opening(world.rules)
        turn = self.chat.turn(observation)
        slot = self.policy.open(opening, episode.sampling)
        self.policy.extend(slot, turn)
        ids = [*opening, *turn]
        return _Open(number, episode, world, slot, observation, ids, [False] * len(ids))

    def _answer(self, play: _Open, reply: Reply) -> bool:
        """Give the reply to the world; whether the episode is over."""
        play.ids.extend(reply.ids)
        play.mask.extend([True] * len(reply.ids))
        text = self.chat.text(reply.ids)
        parsed = parse(text)
        try:
            observation, _, terminated, truncated, info = play.world.step(parsed.action)
            valid = bool(info["valid"])
            won = (terminated or truncated) and bool(info["success"])
            score = float(info["score"]) if terminated or truncated else 0.0
        except Exception as error:
            # A world that broke may be in any state, so it is not used again.
            self._end(play.number, play.episode, play.steps, "", Outcome.ERROR, 0.0, play.ids, play.mask, error)
            return True
        play.steps.append(Step(play.observation, text, parsed.thought, parsed.action, valid))
        turn = [*([] if reply.ended else self.chat.reply("")), *self.chat.turn(observation)]
        if not (terminated or truncated) and len(play.ids) + len(turn) < self.context:
            play.observation = observation
            play.ids.extend(turn)
            play.mask.extend([False] * len(turn))
            self.policy.extend(play.slot, turn)
            return False
        self._idle[play.episode.make_world].append(play.world)
        outcome = Outcome.SUCCESS if won else Outcome.FAILURE
        self._end(play.number, play.episode, play.steps, observation, outcome, score, play.ids, play.mask)
        return True

    def _end(
        self,
        number: int,
        episode: Episode,
        steps: Sequence[Step],
        closing: str,
        outcome: Outcome,
        score: float,
        ids: Sequence[int],
        mask: Sequence[bool],
        error: Exception | None = None,
    ) -> None:
        trajectory = Trajectory(
            client=episode.client,
            world=episode.world,
            task=episode.task.id,
            purpose=episode.purpose,
            round=episode.round,
            attempt=episode.attempt,
            adapter=self._adapter,
            steps=tuple(steps),
            closing=closing,
            outcome=outcome,
            score=score,
            token_ids=tuple(ids),
            train_mask=tuple(mask),
        )
        if error is not None:
            detail = "".join(traceback.format_exception(error))
            trajectory = replace(trajectory, error=type(error).__name__, detail=detail)
        self._done[number] = trajectory
        self._finished(trajectory)
