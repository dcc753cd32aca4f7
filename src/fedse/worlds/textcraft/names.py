"""What items are called: by their plain names, or by made-up words, so that nothing can be known beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedse.seeds import stream, uniform

_STARTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_ENDS = ("", "", "", "l", "n", "r", "s")


@dataclass(frozen=True, eq=False)
class Names:
    """Two-way translation between the names of a recipe book and those that the agent reads and writes."""

    shown: Mapping[str, str]
    meant: Mapping[str, str]


def plain_names(names: Iterable[str]) -> Names:
    same = {name: name for name in names}
    return Names(same, same)


def made_up_names(names: Iterable[str], seed: int, reserved: Iterable[str]) -> Names:
    """A word of two syllables for each name, no two alike and none of the reserved ones, from the seed."""
    shown: dict[str, str] = {}
    meant: dict[str, str] = {}
    taken = set(reserved)
    for name in sorted(names):
        key, index = stream("textcraft name", seed, name), 0
        while (word := _word(key, index)) in taken:
            index += 5
        taken.add(word)
        shown[name], meant[word] = word, name
    return Names(shown, meant)


def _word(key: int, index: int) -> str:
    parts = (_STARTS, _VOWELS, _STARTS, _VOWELS, _ENDS)
    return "".join(part[int(uniform(key, index + place) * len(part))] for place, part in enumerate(parts))
