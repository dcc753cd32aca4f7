"""How fast a world answers."""

from __future__ import annotations

import time

from fedse.seeds import stream, uniform
from fedse.worlds.world import World

_TASKS = 100


def steps_per_second(world: World, seconds: float = 0.2) -> float:
    """Steps of trivial play in one process, resets included, over the first test tasks; the first pass is not timed."""
    tasks = world.tasks("test")[:_TASKS]
    draws = [uniform(stream("speed"), index) for index in range(1_000)]
    steps, begun = 0, time.perf_counter()
    first_pass = True
    while first_pass or time.perf_counter() - begun < seconds:
        for task in tasks:
            world.reset(options={"task": task.id})
            over = False
            while not over:
                _, _, terminated, truncated, _ = world.step(world.trivial(draws[steps % len(draws)]))
                over = terminated or truncated
                steps += 1
        if first_pass:
            first_pass, steps, begun = False, 0, time.perf_counter()
    return steps / (time.perf_counter() - begun)
