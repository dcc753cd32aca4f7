"""The Porter stemmer (1980) with its author's later changes: the endings `bli` and `logi`, and short words kept whole.

A word is read as [C](VC)^m[V], runs of consonants and vowels; m, the measure, says how much of a stem is left when an
ending is cut off.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

_VOWELS = frozenset("aeiou")

# In every step the longest ending that fits decides, whether or not enough is left of the word to cut it off.
_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def _consonants(word: str) -> list[bool]:
    """For each letter whether it is a consonant; y is one at the start and after a vowel."""
    found: list[bool] = []
    for letter in word:
        if letter == "y":
            found.append(not (found and found[-1]))
        else:
            found.append(letter not in _VOWELS)
    return found


def _measure(stem: str) -> int:
    """How often a run of vowels is followed by a consonant."""
    kinds = _consonants(stem)
    return sum(here and not before for before, here in pairwise(kinds))


def _has_vowel(stem: str) -> bool:
    return not all(_consonants(stem))


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _consonants(word)[-1]


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant, and the last not w, x or y: such a stem once had an e, as in hop(e)."""
    return len(word) > 2 and _consonants(word)[-3:] == [True, False, True] and word[-1] not in "wxy"


def _plurals_and_participles(word: str) -> str:
    if word.endswith("sses") or word.endswith("ies"):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    ending = "ed" if word.endswith("ed") else "ing" if word.endswith("ing") else ""
    stem = word[: len(word) - len(ending)]
    if not ending or not _has_vowel(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _ends_double(stem):
        return stem if stem[-1] in "lsz" else stem[:-1]
    if _measure(stem) == 1 and _ends_short(stem):
        return stem + "e"
    return stem


def _replaced(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    """The word with the longest of these endings replaced, if enough is left of it."""
    fitting = [pair for pair in endings if word.endswith(pair[0])]
    if not fitting:
        return word
    ending, other = max(fitting, key=lambda pair: len(pair[0]))
    stem = word[: -len(ending)]
    return stem + other if _measure(stem) > 0 else word


def _without_suffix(word: str) -> str:
    fitting = [ending for ending in _STEP_4 if word.endswith(ending)]
    if not fitting:
        return word
    ending = max(fitting, key=len)
    stem = word[: -len(ending)]
    if _measure(stem) < 2 or (ending == "ion" and not stem.endswith(("s", "t"))):
        return word
    return stem


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a word in lower case."""
    if len(word) < 3:
        return word
    word = _plurals_and_participles(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _without_suffix(_replaced(_replaced(word, _STEP_2), _STEP_3))
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word
