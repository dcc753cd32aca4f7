"""Random numbers that depend on what they are for and never on when or beside what they are drawn.

A stream is named by the things that identify it (seed, client, round, task, attempt); its n-th number is a
function of name and n. So episodes can be played in any order and any batch and still make the same choices.
"""

from __future__ import annotations

import hashlib

import numpy as np

_MASK = (1 << 64) - 1


def stream(*name: str | int) -> int:
    """The 64-bit key of the stream with this name."""
    text = "\x1f".join(str(part) for part in name)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def uniform(key: int, index: int) -> float:
    """Number `index` of the stream, in [0, 1): SplitMix64 as a counter-based generator."""
    state = (key + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return float((state ^ (state >> 31)) >> 11) * 2.0**-53


def generator(*name: str | int) -> np.random.Generator:
    """A NumPy generator for the stream with this name, for shuffles and draws of many numbers."""
    return np.random.Generator(np.random.Philox(key=stream(*name)))
