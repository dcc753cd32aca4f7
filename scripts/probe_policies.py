"""Policies that change a model without training it: what the probes of nano hold against what was learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedse.networks.decoding.network_forward import NetworkForward
from fedse.networks.decoding.stepwise import StepwiseDecoder
from fedse.policies.transformer import TransformerPolicy
from fedse.protocols import Policy, Reply
from fedse.seeds import stream
from fedse.types import Sampling


class ForcedOpening:
    """A policy whose replies all begin with the same ids: what can be had by a prompt, without any training."""

    def __init__(self, policy: Policy, ids: Sequence[int]) -> None:
        self.slots, self.usage = policy.slots, policy.usage
        self.load, self.open, self.close = policy.load, policy.open, policy.close
        self._policy, self._ids = policy, tuple(ids)

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        self._policy.extend(slot, [*ids, *self._ids])

    def ready(self) -> list[Reply]:
        return [Reply(reply.slot, (*self._ids, *reply.ids), reply.ended) for reply in self._policy.ready()]


class SoftPrompt:
    """A policy whose conversations all begin with the same further ids."""

    def __init__(self, policy: Policy, ids: Sequence[int]) -> None:
        self.slots, self.usage = policy.slots, policy.usage
        self.load, self.extend, self.ready, self.close = policy.load, policy.extend, policy.ready, policy.close
        self._policy, self._ids = policy, tuple(ids)

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        return self._policy.open([*self._ids, *opening], sampling)


class Majority:
    """A policy that says in each turn what most of several sampled replies say."""

    def __init__(self, policy: Policy, voices: int) -> None:
        self.slots, self.usage = policy.slots // voices, policy.usage
        self.load = policy.load
        self._policy, self._voices = policy, voices
        self._said: dict[int, list[int]] = {}
        self._opening: dict[int, tuple[tuple[int, ...], Sampling]] = {}
        self._asked: dict[int, int] = {}
        """Which conversation each slot of the policy speaks for."""
        self._replies: dict[int, list[Reply]] = {}
        self._turns = 0

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        slot = next(number for number in range(self.slots) if number not in self._said)
        self._said[slot], self._opening[slot] = [], (tuple(opening), sampling)
        return slot

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        self._said[slot] += ids
        opening, sampling = self._opening[slot]
        self._turns += 1
        for voice in range(self._voices):
            key = stream(sampling.key, self._turns, voice)
            asked = self._policy.open(opening, Sampling(key, sampling.temperature))
            self._policy.extend(asked, self._said[slot])
            self._asked[asked] = slot
        self._replies[slot] = []

    def ready(self) -> list[Reply]:
        while True:
            for reply in self._policy.ready():
                self._replies[self._asked.pop(reply.slot)].append(reply)
                self._policy.close(reply.slot)
            complete = [slot for slot, replies in self._replies.items() if len(replies) == self._voices]
            if complete:
                return [self._most_frequent(slot) for slot in complete]

    def _most_frequent(self, slot: int) -> Reply:
        replies = sorted(self._replies.pop(slot), key=lambda reply: reply.ids)
        (ids, ended), _ = Counter((reply.ids, reply.ended) for reply in replies).most_common(1)[0]
        self._said[slot] += ids
        return Reply(slot, ids, ended)

    def close(self, slot: int) -> None:
        del self._said[slot], self._opening[slot]


class PlainPolicy(TransformerPolicy):
    """Runs through the network itself, so that what is hooked into it counts."""

    def make_decoder(self) -> Any:
        return StepwiseDecoder(self.model, self.slots, NetworkForward(self.model.network))
