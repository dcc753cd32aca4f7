"""Wordle: find the hidden word. Clean: words of the test are never seen before. Original: a vocabulary of 40 words."""

from fedse.worlds.wordle.world import Wordle

__all__ = ["Wordle"]
