"""Which clients are asked in a round in which not all are. It follows from the seed and the round alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from fedse.seeds import generator

Draw = Literal["at_random", "in_turn"]


def at_random(clients: Sequence[str], count: int, number: int, seed: int) -> list[str]:
    """By lot, anew every round."""
    order = generator(seed, number, "participation").permutation(len(clients))
    return [clients[index] for index in order[:count]]


def in_turn(clients: Sequence[str], count: int, number: int, seed: int) -> list[str]:
    """The next ones in an order that is drawn once, and anew when somebody joins. Each of K clients is asked as often as
    every other in K rounds."""
    order = generator(seed, "participation").permutation(len(clients))
    first = (number - 1) * count
    return [clients[order[place % len(clients)]] for place in range(first, first + count)]


DRAWS: Mapping[Draw, Callable[[Sequence[str], int, int, int], list[str]]] = {
    "at_random": at_random,
    "in_turn": in_turn,
}
"""Names of `count` of the clients that are there, by what the experiment asks for."""
