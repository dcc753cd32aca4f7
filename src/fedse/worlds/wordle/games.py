"""The game of Wordle itself: marking guesses, the best guess, and lists of words that can be solved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from fedse.errors import BadInput
from fedse.seeds import stream, uniform
from fedse.types import SPLITS, Split
from fedse.worlds.splits import assigned_split

LENGTH = 5
CATEGORIES = ("early", "middle", "late")
"""Where the hidden word's first letter stands in the alphabet: a to e, f to p, q to z."""


def category(word: str) -> str:
    return CATEGORIES[0 if word[0] <= "e" else 1 if word[0] <= "p" else 2]


@lru_cache(maxsize=1 << 17)
def marks(guess: str, hidden: str, letter_counting: bool) -> str:
    """For each letter of the guess: g right place, y elsewhere in the hidden word, b absent.

    With letter counting a letter is marked y only as often as the hidden word has it outside the right places; without
    it, as in the original, every letter that occurs anywhere is.
    """
    if not letter_counting:
        return "".join(
            "g" if letter == right else "y" if letter in hidden else "b"
            for letter, right in zip(guess, hidden, strict=True)
        )
    unplaced = [right for letter, right in zip(guess, hidden, strict=True) if letter != right]
    found = []
    for letter, right in zip(guess, hidden, strict=True):
        if letter == right:
            found.append("g")
        elif letter in unplaced:
            unplaced.remove(letter)
            found.append("y")
        else:
            found.append("b")
    return "".join(found)


def fitting(words: Sequence[str], history: Sequence[tuple[str, str]], letter_counting: bool) -> tuple[str, ...]:
    """The words that could still be the hidden one after these guesses and their marks."""
    return tuple(word for word in words if all(marks(guess, word, letter_counting) == seen for guess, seen in history))


@lru_cache(maxsize=1 << 14)
def best_guess(possible: tuple[str, ...], letter_counting: bool) -> str:
    """The possible word after which the fewest can be left in the worst case, then on average."""

    def left_over(guess: str) -> tuple[int, int, str]:
        groups = Counter(marks(guess, word, letter_counting) for word in possible).values()
        return max(groups), sum(size * size for size in groups), guess

    return min(possible, key=left_over)


def guesses_needed(words: tuple[str, ...], hidden: str, letter_counting: bool) -> int:
    """How many guesses the expert takes."""
    possible, used = words, 0
    while True:
        guess = best_guess(possible, letter_counting)
        used += 1
        if guess == hidden:
            return used
        possible = fitting(possible, [(guess, marks(guess, hidden, letter_counting))], letter_counting)


@dataclass(frozen=True, eq=False)
class WordList:
    """Words by split and category. A word's split is a function of the word alone."""

    words: Mapping[Split, tuple[str, ...]]
    categories: Mapping[Split, Mapping[str, tuple[str, ...]]]


@lru_cache(maxsize=16)
def word_list(words: tuple[str, ...]) -> WordList:
    by_split: dict[Split, list[str]] = {split: [] for split in SPLITS}
    for word in sorted(words):
        by_split[assigned_split(stream("wordle word", word))].append(word)
    return WordList(
        {split: tuple(own) for split, own in by_split.items()},
        {
            split: {name: chosen for name in CATEGORIES if (chosen := tuple(w for w in own if category(w) == name))}
            for split, own in by_split.items()
        },
    )


@lru_cache(maxsize=256)
def hidden_order(words: WordList, split: Split, name: str, pool: int) -> tuple[str, ...]:
    """The order in which the words of a category are hidden, one per task."""
    return tuple(sorted(words.categories[split][name], key=lambda word: stream("wordle order", pool, word)))


@dataclass(frozen=True, slots=True)
class Game:
    """A hidden word and the words it is listed among."""

    hidden: str
    words: tuple[str, ...]


_ATTEMPTS = 50


@lru_cache(maxsize=8192)
def listed_game(
    words: WordList,
    split: Split,
    name: str,
    number: int,
    pool: int,
    candidates: int,
    lookalikes: float,
    guesses: int,
    letter_counting: bool,
) -> Game:
    """Game `number` of a split and category. All its words belong to the split, and the expert solves it in time."""
    order = hidden_order(words, split, name, pool)
    hidden = order[number % len(order)]
    others = [word for word in words.words[split] if word != hidden]
    alike = round(lookalikes * (candidates - 1))
    if alike:
        others.sort(key=lambda word: -sum(a == b for a, b in zip(word, hidden, strict=True)))
    key = stream("wordle", split, name, number, pool)
    for attempt in range(_ATTEMPTS):
        # A later attempt takes its look-alikes a little further away, so that they change too.
        first = min(attempt, len(others) - alike)
        chosen = {hidden, *others[first : first + alike]}
        index = attempt * 1_000_000
        while len(chosen) < candidates:
            chosen.add(others[int(uniform(key, index) * len(others))])
            index += 1
        listed = tuple(sorted(chosen))
        if guesses_needed(listed, hidden, letter_counting) <= guesses:
            return Game(hidden, listed)
    raise BadInput(
        f"wordle: no list of {candidates} words around '{hidden}' can be solved in {guesses} guesses; raise `guesses` or "
        "lower `candidates` or `lookalikes`."
    )
