"""Cases by number: each has a stream of chance of its own, so that any one of them can be made again by itself."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

# A kind is a module of this package with a function `trial(chance, scratch)`; here, what the table calls it.
KINDS: dict[str, str] = {
    "experiments": "experiment files",
    "tasks": "tasks that a hub asks of a site",
    "headers": "headers on the wire",
    "records": "record files of a run",
    "folders": "run folders",
}
OUTCOMES = ("same", "refused", "silent", "traceback")
WRONG = frozenset({"silent", "traceback"})

Trial = Callable[[random.Random, Path], str]


def outcome(kind: str, seed: int, number: int) -> tuple[str, str]:
    """What became of a case, and where it broke if it did."""
    trial: Trial = import_module(f".{kind}", __package__).trial
    with TemporaryDirectory(prefix="torture-") as scratch:
        try:
            return trial(random.Random(f"{kind} {seed} {number}"), Path(scratch)), ""
        except Exception:
            return "traceback", traceback.format_exc()


def outcomes(kind: str, seed: int, numbers: Iterable[int]) -> tuple[Counter[str], dict[int, str]]:
    """How many cases ended how, and what is known about those that ended wrongly."""
    counted: Counter[str] = Counter()
    wrong = {}
    for number in numbers:
        found, told = outcome(kind, seed, number)
        counted[found] += 1
        if found in WRONG:
            wrong[number] = f"{found}\n{told}"
    return counted, wrong
