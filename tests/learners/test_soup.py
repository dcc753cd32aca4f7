"""`benchmarks/soup.py`: the mean of two lessons that differ in their order alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedse.learners.imitation import Imitation
from fedse.seeds import stream
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Lesson
from fedse.worlds.maze import Maze


def test_a_soup_is_the_mean_of_two_lessons_of_the_same_trajectories(tiny: Any, benchmarks: Any) -> None:
    shown = Demonstrations(12).trajectories(
        "maze", "maze", Maze(rules="brief", observation_length="brief", size=3), tiny.chat, 0
    )
    settings = {"learning_rate": 3e-3, "batch_size": 2, "epochs": 1}
    start, plain = tiny.initial_adapter(0), Imitation(tiny, **settings)
    (one, metrics), (other, _) = (plain.learn(Lesson(start, shown, key)) for key in (1, stream("again", 1)))
    assert one.digest() != other.digest()
    soup, of_soup = benchmarks("soup").Soup(tiny, **settings).learn(Lesson(start, shown, 1))
    for name, tensor in soup.tensors.items():
        np.testing.assert_allclose(tensor, (one.tensors[name] + other.tensors[name]) / 2, atol=1e-7)
    assert of_soup["tokens"] == 2 * metrics["tokens"]


def test_a_site_without_trajectories_abstains_as_ever(tiny: Any, benchmarks: Any) -> None:
    assert benchmarks("soup").Soup(tiny).learn(Lesson(tiny.initial_adapter(0), [], 1)) is None
