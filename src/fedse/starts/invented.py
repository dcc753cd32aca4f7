"""Episodes in a world's own grammar with names that nobody has ever used: what can be known of them was learned from them.

A word is a name if few of a world's demonstrations have it and its rules do not. What the world says and what the agent says
get names of their own, so that no reply can be copied from what stands before it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from fedse.rollouts.replies import compose
from fedse.types import Step, Trajectory

_WORD = re.compile(r"[A-Za-z]{3,}")
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_COMMON = 0.5
"""Share of the demonstrations from which on a word belongs to the grammar."""


def names_of(shown: Sequence[Trajectory]) -> frozenset[str]:
    """Words of some demonstrations that are names, in lower case."""
    having = Counter(word for item in shown for word in {*_words(_texts(item))})
    grammar = {*_words([item.rules for item in shown])}
    return frozenset(word for word, times in having.items() if times < _COMMON * len(shown)) - grammar


def with_invented_names(shown: Trajectory, names: Collection[str], random: np.random.Generator) -> Trajectory:
    """The same episode, renamed, without tokens."""
    seen, said = _Renaming(names, random), _Renaming(names, random)
    steps = tuple(_step(step, seen, said) for step in shown.steps)
    return replace(shown, steps=steps, closing=seen.of(shown.closing), token_ids=(), train_mask=())


def says_a_name(shown: Trajectory, names: Collection[str]) -> bool:
    """Whether the agent does, so that there is something to invent."""
    return any(word in names for word in _words([step.action for step in shown.steps]))


def _step(step: Step, seen: _Renaming, said: _Renaming) -> Step:
    thought, action = said.of(step.thought), said.of(step.action)
    return replace(
        step, observation=seen.of(step.observation), reply=compose(thought, action), thought=thought, action=action
    )


def _texts(item: Trajectory) -> list[str]:
    return [text for step in item.steps for text in (step.observation, step.thought, step.action)]


def _words(texts: Sequence[str]) -> list[str]:
    return [word.lower() for text in texts for word in _WORD.findall(text)]


class _Renaming:
    """One invented word for each name, as long as the name."""

    def __init__(self, names: Collection[str], random: np.random.Generator) -> None:
        self._names, self._random = names, random
        self._given: dict[str, str] = {}

    def of(self, text: str) -> str:
        return _WORD.sub(lambda found: self._word(found.group()), text)

    def _word(self, word: str) -> str:
        name = word.lower()
        if name not in self._names:
            return word
        if name not in self._given:
            letters = [str(self._random.choice(list((_CONSONANTS, _VOWELS)[place % 2]))) for place in range(len(name))]
            self._given[name] = "".join(letters)
        return self._given[name].capitalize() if word[0].isupper() else self._given[name]
