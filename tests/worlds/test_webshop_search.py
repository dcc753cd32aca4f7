"""The search engine of the WebShop world: stems, word breaks, rounded lengths, and Lucene's own rankings."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from fedse.worlds.webshop.catalogue import read_products
from fedse.worlds.webshop.pages import Shop
from fedse.worlds.webshop.search import STOP_WORDS, Index, rounded_length, words
from fedse.worlds.webshop.stemmer import stem

ALL_FIELDS = frozenset({"title", "description", "features", "options"})


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("cats", "cat"), ("feed", "feed"),
        ("agreed", "agre"), ("plastered", "plaster"), ("motoring", "motor"), ("sing", "sing"),
        ("conflated", "conflat"), ("hopping", "hop"), ("falling", "fall"), ("filing", "file"), ("happy", "happi"),
        ("sky", "sky"), ("relational", "relat"), ("vietnamization", "vietnam"), ("hopefulness", "hope"),
        ("sensibiliti", "sensibl"), ("triplicate", "triplic"), ("electrical", "electr"), ("goodness", "good"),
        ("adjustment", "adjust"), ("adoption", "adopt"), ("probate", "probat"), ("rate", "rate"), ("cease", "ceas"),
        ("controlling", "control"), ("rolling", "roll"), ("assembly", "assembl"), ("possibly", "possibl"),
        ("geology", "geologi"), ("apology", "apolog"), ("is", "is"), ("yes", "ye"), ("toys", "toi"),
    ],
)  # fmt: skip
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_words_break_where_unicode_breaks_them() -> None:
    assert len(STOP_WORDS) == 33
    assert words("The Women's T-Shirt, with 3.5 inch (8,9cm) u.s.a. don't") == [
        "women", "t", "shirt", "3.5", "inch", "8,9cm", "u.s.a", "don't",
    ]  # fmt: skip
    assert words("material:cotton 1:2") == ["material:cotton", "1", "2"]
    assert words("★best❤️ gift✈ 日本") == ["★", "best", "❤️", "gift", "✈", "日", "本"]
    assert words("the and of") == []


def test_texts_in_ascii_break_where_all_texts_do() -> None:
    draw = random.Random(0)
    for _ in range(20_000):
        text = "".join(draw.choices("aZ07_.':,;- ", k=draw.randrange(1, 14)))
        assert words(f"{text} 日") == [*words(text), "日"], text


def test_lengths_keep_four_significant_bits() -> None:
    assert [rounded_length(length) for length in (0, 23, 39, 40, 41, 42, 55, 56, 59, 60, 100, 1000)] == [
        0, 23, 39, 40, 40, 42, 54, 56, 56, 60, 96, 984,
    ]  # fmt: skip


def test_rare_and_frequent_words_count_more_and_ties_keep_their_order() -> None:
    index = Index(["red shoe", "red red shoe", "blue shoe", "green hat"], k1=0.9, b=0.4)
    assert index.search("red shoe", 10) == (1, 0, 2)
    assert index.search("hat shoe", 10)[0] == 3
    assert index.search("shoe", 10)[:2] == (0, 2)
    assert index.search("shoe", 1) == (0,)
    assert index.search("the zebra", 10) == ()


def test_weights_change_the_order() -> None:
    texts = ["lamp " + "very long story about nothing at all " * 4 + "lamp lamp", "lamp on desk"]
    assert Index(texts, k1=2.0, b=0.0).search("lamp", 2) == (0, 1)
    assert Index(texts, k1=0.9, b=1.0).search("lamp", 2) == (1, 0)
    # Without k1 only the presence of a word counts.
    assert Index(texts, k1=0.0, b=0.4).search("lamp", 2) == (0, 1)


def test_noise_depends_on_the_words_alone() -> None:
    texts = [f"lamp number {number}" for number in range(40)]
    plain, noisy, again = (Index(texts, 0.9, 0.4, noise) for noise in (0.0, 0.5, 0.5))
    assert plain.search("lamp", 40) == tuple(range(40))
    assert noisy.search("lamp", 40) == again.search("lamp", 40) != plain.search("lamp", 40)
    assert noisy.search("lamp number", 40) != noisy.search("lamp", 40)


def test_rankings_are_those_of_lucene(outside_data: Path) -> None:
    shop = Shop(read_products(outside_data / "webshop" / "products_1k.json.gz"), ALL_FIELDS, 0.9, 0.4, 0.0)
    recorded = json.loads(gzip.decompress((outside_data / "webshop" / "lucene_rankings.json.gz").read_bytes()))
    first_pages = first_hits = 0
    for query, hits in recorded:
        own, expected = [hit.id for hit in shop.hits(query)], [name for name, _ in hits]
        first_pages += own[:10] == expected[:10]
        first_hits += own[:1] == expected[:1]
    assert len(recorded) == 1008
    assert first_pages / len(recorded) >= 0.99
    assert first_hits == len(recorded)
