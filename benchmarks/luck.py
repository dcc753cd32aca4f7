"""How often `fedse compare` tells equal methods apart in a world, when their runs differ by luck.

    python benchmarks/luck.py

Two methods solve each of 200 tasks with the same chance, uniform between 0 and 1 from task to task. Every run has luck of
its own, normal, which moves the chance of all its tasks. The first share is that of the test over tasks alone, the second
that of test and interval together, which is what a verdict needs; both at 5 %, without a correction for several comparisons.
"""

from __future__ import annotations

import argparse

import numpy as np

from fedse.evaluation.comparison import Pair
from fedse.evaluation.paired import Array, difference

TASKS = 200
WORLD = "world"


def told_apart(random: np.random.Generator, seeds: int, luck: float) -> tuple[bool, bool]:
    """Whether two equal methods differ by the test alone, and by test and interval."""
    chances = random.random(TASKS)

    def successes() -> dict[str, Array]:
        moved = chances + luck * random.standard_normal((seeds, 1))
        return {WORLD: (random.random((seeds, TASKS)) < moved).astype(float)}

    found = difference(successes(), successes(), range(seeds))
    pair = Pair("one", "other", range(seeds), found, found.p, {WORLD: found.by_world[WORLD].p})
    return found.p < 0.05, pair.differs_in(WORLD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400, help="Pairs of methods for each row.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--luck", type=float, nargs="+", default=[0.03, 0.06, 0.09])
    given = parser.parse_args()
    print("| seeds | luck of a run, points | test alone, % | test and interval, % |")
    print("| ---: | ---: | ---: | ---: |")
    for seeds in given.seeds:
        for luck in given.luck:
            random = np.random.default_rng(0)
            by_test, by_both = np.mean([told_apart(random, seeds, luck) for _ in range(given.pairs)], axis=0)
            print(f"| {seeds} | {100 * luck:g} | {100 * by_test:.1f} | {100 * by_both:.1f} |", flush=True)


if __name__ == "__main__":
    main()
