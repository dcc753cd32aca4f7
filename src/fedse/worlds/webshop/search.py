"""Full-text search as Lucene does it: an English analyser and BM25 with lengths rounded to one byte."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedse.seeds import stream, uniform
from fedse.worlds.webshop.stemmer import stem

Floats = npt.NDArray[np.float32]

STOP_WORDS = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
        "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
        "was", "will", "with",
    )
)  # fmt: skip

# Unicode word breaks, as far as shop texts need them. Letters are joined by . ' : and their like, digits by . , ; and '
_JOINS_BOTH = ".'\u2018\u2019\u2024\ufe52\uff07\uff0e"
_JOINS_LETTERS = ":\u00b7\u0387\u2027\ufe13\ufe55\uff1a"
_JOINS_DIGITS = ",;\u037e\uff0c\uff1b"
_IDEOGRAPHS = "\u3041-\u3096\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = "\u0300-\u036f\u200d\ufe0e\ufe0f"
_LETTER = rf"(?:[^\W\d_{_IDEOGRAPHS}][{_MARKS}]*)"
_DIGIT = rf"(?:\d[{_MARKS}]*)"
# Pictures count as words of their own: emoji, and signs such as stars and hearts.
_PICTURES = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u2388\u23cf\u23e9-\u23f3"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705"
    "\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767"
    "\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
)
_WORD = re.compile(
    rf"_*(?:{_LETTER}|{_DIGIT})"
    rf"(?:_*(?:{_LETTER}|{_DIGIT})"
    rf"|(?<=[^\W\d_])[{_JOINS_BOTH}{_JOINS_LETTERS}](?={_LETTER})"
    rf"|(?<=\d)[{_JOINS_BOTH}{_JOINS_DIGITS}](?=\d))*_*"
    rf"|[{_IDEOGRAPHS}]"
    rf"|[{_PICTURES}][{_MARKS}\U0001f3fb-\U0001f3ff]*(?:(?<=\u200d)[{_PICTURES}][{_MARKS}\U0001f3fb-\U0001f3ff]*)*"
)
_PLAIN_WORD = re.compile(
    r"_*[a-z0-9][a-z0-9_]*(?:(?:(?<=[a-z])[.':](?=[a-z])|(?<=[0-9])[.',;](?=[0-9]))[a-z0-9][a-z0-9_]*)*"
)
"""The same for texts in ASCII, which most are, in a third of the time."""
_POSSESSIVES = ("'s", "\u2019s", "\uff07s")


def words(text: str) -> list[str]:
    """The index terms of a text: in lower case, without possessives and stop words, cut down to their stems."""
    found = []
    for word in (_PLAIN_WORD if text.isascii() else _WORD).findall(text.lower()):
        bare = word[:-2] if word.endswith(_POSSESSIVES) else word
        if bare not in STOP_WORDS:
            found.append(stem(bare))
    return found


def rounded_length(length: int) -> int:
    """A document's length as Lucene keeps it: exact below 40, from there on with four significant bits above 24."""
    exact = 24
    above = length - exact
    if above < 16:
        return length
    shift = above.bit_length() - 4
    return exact + ((above >> shift) << shift)


class Index:
    """BM25 over a list of texts. Hits with the same score come in the order of the texts."""

    def __init__(self, texts: Sequence[str], k1: float, b: float, noise: float = 0.0) -> None:
        self._size, self._noise = len(texts), noise
        frequencies = [Counter(words(text)) for text in texts]
        lengths = [sum(counts.values()) for counts in frequencies]
        mean = np.float32(sum(lengths) / max(1, len(lengths)))
        rounded = np.array([rounded_length(length) for length in lengths], dtype=np.float32)
        one, k, share = np.float32(1), np.float32(k1), np.float32(b)
        # Single precision in this order of operations decides close calls as Lucene does.
        inverse = (
            one / (k * ((one - share) + share * rounded / mean)) if k1 else np.full(len(texts), np.inf, np.float32)
        )
        places: dict[str, list[int]] = {}
        counts: dict[str, list[int]] = {}
        for place, found in enumerate(frequencies):
            for word, count in found.items():
                places.setdefault(word, []).append(place)
                counts.setdefault(word, []).append(count)
        self._postings: dict[str, tuple[npt.NDArray[np.int64], Floats, np.float32]] = {}
        for word, where in places.items():
            rarity = np.float32(np.log(1 + (self._size - len(where) + 0.5) / (len(where) + 0.5)))
            at = np.array(where)
            self._postings[word] = at, one + np.array(counts[word], dtype=np.float32) * inverse[at], rarity

    def search(self, query: str, most: int) -> tuple[int, ...]:
        """Places of the best texts for a query, best first."""
        scores = np.zeros(self._size)
        for word, count in Counter(words(query)).items():
            if word in self._postings:
                places, divisors, rarity = self._postings[word]
                weight = rarity * np.float32(count)
                scores[places] += weight - weight / divisors
        if self._noise:
            key = stream("webshop rank noise", query)
            for place in np.flatnonzero(scores):
                scores[place] *= 1 + self._noise * (2 * uniform(key, int(place)) - 1)
        order = np.argsort(-scores.astype(np.float32), kind="stable")[:most]
        return tuple(order[scores[order] > 0].tolist())
