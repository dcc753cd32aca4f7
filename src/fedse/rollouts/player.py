"""Plays many episodes at once: as one ends, the next takes its place in the policy's slots."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

from fedse.errors import BadInput, TooLate
from fedse.protocols import Chat, Policy, Reply, Restricts
from fedse.rollouts.hinted import turn_ids
from fedse.rollouts.replies import ParsedReply, parse
from fedse.rollouts.several import AnswersWithSeveral
from fedse.rollouts.stepping import MakeWorld, WorldReply, worlds_in
from fedse.stopwatch import during
from fedse.types import Episode, Outcome, Step, Trajectory
from fedse.worlds.answers import blamed, legal_actions, tasks_of

_LEAST = -100.0


@dataclass
class _Open:
    """An episode in play."""

    number: int
    episode: Episode
    world: int
    slot: int
    rules: str
    observation: str
    hint: str
    ids: list[int]
    """What may be learned from."""
    mask: list[bool]
    beside: int
    """How many more ids the agent has read: those of hints that are not learned."""
    steps: list[Step] = field(default_factory=list)
    answered: int = 0
    """Ids up to the last reply."""
    log_probs: list[float] = field(default_factory=list)
    """Of the ids in the mask, if the policy tells them."""

    @property
    def known_log_probs(self) -> tuple[float, ...]:
        """Those of what may be learned from, as they are stored: with a hint that is left out of it, they are of another
        conversation. What rounding left no probability at all was drawn all the same, and must be finite."""
        if self.beside or len(self.log_probs) != sum(self.mask):
            return ()
        return tuple((np.maximum(self.log_probs, _LEAST).round(6) + 0.0).tolist())  # Never -0.0.


class Player:
    """Joins a policy, which knows no worlds, with worlds, which know no tokens."""

    def __init__(
        self,
        policy: Policy,
        chat: Chat,
        context: int,
        finished: Callable[[Trajectory], None] = lambda _: None,
        processes: int = 0,
    ) -> None:
        self.policy = policy
        self.chat = chat
        self.context = context
        self._finished = finished
        if getattr(policy, "asks_for_actions", False) and not isinstance(policy, Restricts):
            raise BadInput("policy: it asks for legal actions and lacks `restrict` or `require_room`.")
        self._restricts = policy if isinstance(policy, Restricts) and policy.asks_for_actions else None
        self._worlds = worlds_in(processes, listing=self._restricts is not None)
        self._opening = cache(chat.opening)
        self._idle: dict[tuple[Any, int], list[int]] = {}
        self._made = 0

    def play(
        self,
        episodes: Iterable[Episode],
        adapter: str,
        until: float | None = None,
        load: Callable[[], None] = lambda: None,
    ) -> list[Trajectory]:
        """Trajectories in the order of the episodes. `adapter` is the digest of what the policy has loaded, or of what
        `load` makes it load while worlds begin their episodes.

        Raises `TooLate` when the monotonic clock passes `until` before all are played.
        """
        return self._play([(episode, adapter) for episode in episodes], until, load)

    def play_with(
        self,
        episodes: Sequence[tuple[Episode, str]],
        until: float | None = None,
        load: Callable[[], None] = lambda: None,
    ) -> list[Trajectory]:
        """The same, each with the adapter of its digest, all of which the policy has loaded."""
        assert isinstance(self.policy, AnswersWithSeveral)
        return self._play(episodes, until, load, self.policy.choose)

    def _play(
        self,
        episodes: Sequence[tuple[Episode, str]],
        until: float | None,
        load: Callable[[], None],
        choose: Callable[[str], None] = lambda _: None,
    ) -> list[Trajectory]:
        self._adapters, self._choose = [adapter for _, adapter in episodes], choose
        self._done: dict[int, Trajectory] = {}
        waiting = deque((number, episode) for number, (episode, _) in enumerate(episodes))
        in_play: dict[int, _Open] = {}
        loaded = False
        while waiting or in_play:
            if until is not None and time.monotonic() >= until:
                for slot in in_play:
                    self.policy.close(slot)
                raise TooLate(f"the time was over with {len(waiting) + len(in_play)} episodes left to play.")
            beginning: list[tuple[int, Episode, int]] = []
            while waiting and len(in_play) + len(beginning) < self.policy.slots:
                number, episode = waiting.popleft()
                world = self._idle_world(episode)
                with during("world"):
                    self._worlds.ask_reset(world, episode.make_world, episode.task.id, episode.hint)
                beginning.append((number, episode, world))
            if not loaded:
                self._load(load, [(episode, world) for _, episode, world in beginning])
                loaded = True
            # All answers first: a prefix asks its world again.
            begun = [(number, episode, world, self._answer_of(world)) for number, episode, world in beginning]
            for number, episode, world, answer in begun:
                opened = self._begin(number, episode, world, answer)
                if opened is not None:
                    in_play[opened.slot] = opened
            asked: list[tuple[_Open, Reply, str, ParsedReply]] = []
            for reply in self._replies() if in_play else []:
                play = in_play[reply.slot]
                if reply.full:
                    self._end_full(play)
                    del in_play[reply.slot]
                    self.policy.close(reply.slot)
                    continue
                with during("text"):
                    text = self.chat.text(reply.ids)
                    parsed = parse(text)
                with during("world"):
                    self._worlds.ask_step(play.world, parsed.action, play.episode.hint)
                asked.append((play, reply, text, parsed))
            for play, reply, text, parsed in asked:
                if self._answer(play, reply, text, parsed, self._answer_of(play.world)):
                    del in_play[reply.slot]
                    self.policy.close(reply.slot)
        done, self._done = self._done, {}
        return [done[number] for number in sorted(done)]

    def _load(self, load: Callable[[], None], asked: Sequence[tuple[Episode, int]]) -> None:
        """While these worlds begin their episodes."""
        with during("world"):
            self._worlds.begin()
        try:
            load()
        except Exception:
            # Other episodes can be played there. A worker that is gone has no answers.
            for episode, world in asked:
                with suppress(EOFError, OSError):
                    if not self._worlds.answer(world).error:
                        self._return(episode, world)
            raise

    def _answer_of(self, world: int) -> WorldReply:
        with during("world"):
            return self._worlds.answer(world)

    def _replies(self) -> list[Reply]:
        with during("decode"):
            return self.policy.ready()

    def _idle_world(self, episode: Episode) -> int:
        # A task is played where it was played before: worlds remember what they made for it.
        home = crc32(episode.task.id.encode()) % self._worlds.homes
        idle = self._idle.setdefault((episode.make_world, home), [])
        if idle:
            return idle.pop()
        self._made += 1
        return self._made * self._worlds.homes + home

    def _return(self, episode: Episode, world: int) -> None:
        self._idle[episode.make_world, world % self._worlds.homes].append(world)

    def _begin(self, number: int, episode: Episode, world: int, answer: WorldReply) -> _Open | None:
        if answer.error:
            never = _Open(number, episode, world, slot=-1, rules="", observation="", hint="", ids=[], mask=[], beside=0)
            self._end(never, answer, Outcome.ERROR)
            return None
        rules, steps = answer.rules, list[Step]()
        with during("text"):
            opening = self._opening(rules)
        if episode.prefix:
            opening, answer = self._led(episode, world, opening, answer, steps)
            if answer.error or answer.over:
                outcome = Outcome.ERROR if answer.error else Outcome.SUCCESS if answer.success else Outcome.FAILURE
                led = _Open(number, episode, world, -1, rules, "", "", opening, [False] * len(opening), 0, steps)
                self._end(led, answer, outcome)
                return None
        with during("text"):
            turn = turn_ids(self.chat, answer.observation, answer.hint, self.context - len(opening))
        length = len(opening) + len(turn.given)
        if length >= self.context:
            raise BadInput(
                f"the rules and the first observation of world '{episode.world}' take {length} tokens, "
                f"and the model's context holds {self.context}: use `rules: brief` and `observation_length: brief`, or a "
                "model with a longer context."
            )
        with during("prefill"):
            self._choose(self._adapters[number])
            slot = self.policy.open(opening, episode.sampling)
            self._extend(slot, turn.given, episode.world, answer)
        ids = [*opening, *(turn.given if episode.learns_hint else turn.bare)]
        return _Open(
            *(number, episode, world, slot, rules, answer.observation, turn.hint, ids, [False] * len(ids)),
            beside=length - len(ids),
            steps=steps,
            answered=len(opening),
        )

    def _led(
        self, episode: Episode, world: int, opening: Sequence[int], answer: WorldReply, steps: list[Step]
    ) -> tuple[list[int], WorldReply]:
        """Carry a prefix out: what the conversation then is, and what the world said last."""
        ids = [*opening]
        for reply in episode.prefix:
            with during("text"):
                text = self.chat.text(reply)
                parsed = parse(text)
                end = [] if reply[-1] in self.chat.end_ids else self.chat.reply("")
                ids += [*self.chat.turn(answer.observation), *reply, *end]
            with during("world"):
                self._worlds.ask_step(world, parsed.action, episode.hint)
            before, answer = answer, self._answer_of(world)
            if answer.error:
                break
            said = (before.observation, text, parsed.thought, parsed.action, answer.valid)
            steps.append(Step(*said, learned=False, reward=answer.reward))
            if answer.over:
                self._return(episode, world)
                break
        return ids, answer

    def _extend(self, slot: int, turn: Sequence[int], world: str, answer: WorldReply) -> None:
        self.policy.extend(slot, turn)
        if self._restricts is not None:
            if answer.actions is None:
                raise _unlisted(world)
            self._restricts.restrict(slot, answer.actions)

    def _answer(self, play: _Open, reply: Reply, text: str, parsed: ParsedReply, answer: WorldReply) -> bool:
        """Take what the world said to the reply; whether the episode is over."""
        play.ids.extend(reply.ids)
        play.mask.extend([True] * len(reply.ids))
        play.log_probs.extend(reply.log_probs)
        play.answered = len(play.ids)
        if answer.error:
            self._end(play, answer, Outcome.ERROR)
            return True
        play.steps.append(
            Step(
                *(play.observation, text, parsed.thought, parsed.action, answer.valid),
                reward=answer.reward,
                hint=play.hint,
            )
        )
        with during("text"):
            end = [] if reply.ended else self.chat.reply("")
            room = self.context - len(play.ids) - play.beside - len(end)
            turn = turn_ids(self.chat, answer.observation, answer.hint, room)
        if not answer.over and len(turn.given) < room:
            play.observation, play.hint = answer.observation, turn.hint
            learned = [*end, *(turn.given if play.episode.learns_hint else turn.bare)]
            play.ids.extend(learned)
            play.mask.extend([False] * len(learned))
            play.beside += len(end) + len(turn.given) - len(learned)
            with during("prefill"):
                self._extend(play.slot, [*end, *turn.given], play.episode.world, answer)
            return False
        self._return(play.episode, play.world)
        outcome = Outcome.SUCCESS if answer.success else Outcome.FAILURE
        self._end(play, answer, outcome)
        return True

    def _end_full(self, play: _Open) -> None:
        """End an episode whose last observation no longer fits, as if it had not been appended."""
        if not play.steps:
            raise BadInput(
                f"the rules and the first observation of world '{play.episode.world}' do not fit the context of the model "
                "that answers: use `rules: brief` and `observation_length: brief`, or a model with a longer context."
            )
        self._return(play.episode, play.world)
        del play.ids[play.answered :], play.mask[play.answered :]
        self._end(play, WorldReply(play.observation), Outcome.FAILURE)

    def _end(self, play: _Open, answer: WorldReply, outcome: Outcome) -> None:
        episode = play.episode
        trajectory = Trajectory(
            client=episode.client,
            world=episode.world,
            task=episode.task.id,
            purpose=episode.purpose,
            round=episode.round,
            attempt=episode.attempt,
            adapter=self._adapters[play.number],
            steps=tuple(play.steps),
            closing=answer.observation,
            outcome=outcome,
            score=answer.score,
            token_ids=tuple(play.ids),
            train_mask=tuple(play.mask),
            error=answer.error,
            detail=answer.detail,
            rules=play.rules,
            category=episode.task.category,
            log_probs=play.known_log_probs,
            reshaped=episode.sampling.temperature != 1.0 or self._restricts is not None,
            truncated=not answer.error and (answer.truncated or not answer.over),
        )
        self._done[play.number] = trajectory
        self._finished(trajectory)


def check_actions(policy: Policy, worlds: Iterable[tuple[str, MakeWorld]]) -> None:
    """Find out before anything is played whether worlds list their actions and replies can hold them, if the policy asks."""
    if isinstance(policy, Restricts) and policy.asks_for_actions:
        for label, make_world in worlds:
            world = make_world()
            with blamed(world, "its first training task"):
                world.reset(options={"task": tasks_of(world, "train")[0].id})
                actions = legal_actions(world)
            if actions is None:
                raise _unlisted(label)
            policy.require_room(actions)


def _unlisted(world: str) -> BadInput:
    return BadInput(
        f"policy.legal_actions: the world '{world}' does not list what may be done in its states: leave the option off."
    )
