"""Whether two methods differ on the same tasks, exactly where that is possible.

The difference of a task is a sum over seeds of (success of one) - (success of the other). If the methods were equally
good, each task's difference could as well have had the other sign. `sign_flip` counts over all signs how often the sum is at
least as far from zero as the one that was seen. With one seed this is the exact McNemar test. What is not independent stays
together: several seeds of one task, and one task that several sites played, as sites of one world do.

That test takes the seeds as they are: it answers whether *these runs* differ on other tasks. Two runs of one method differ
too, by the luck of what they explored. So whether *methods* differ also takes an interval over seeds and tasks drawn again.
Two or three seeds drawn again are drawn from too few; beside it stands Student's interval over the seeds alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi, sin, sqrt, tan
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedse.seeds import generator

Array = npt.NDArray[np.float64]
RESAMPLES = 4000


def sign_flip(differences: Sequence[int]) -> float:
    """Two-sided p-value, exact: the distribution of the sum over all signs by convolution.

    >>> sign_flip([1, 1, 1, 1, 1]), sign_flip([1, -1, 0])
    (0.0625, 1.0)
    """
    sizes = [abs(int(difference)) for difference in differences if difference]
    reach = sum(sizes)
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for size in sizes:
        moved = np.zeros_like(chances)
        moved[size:] += chances[: len(chances) - size] / 2
        moved[: len(chances) - size] += chances[size:] / 2
        chances = moved
    observed = abs(sum(differences))
    as_far = np.abs(np.arange(-reach, reach + 1)) >= observed
    return float(min(1.0, chances[as_far].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """The same p-values, corrected for being many: those below 0.05 are wrong together at most once in twenty times.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for position, index in enumerate(sorted(range(len(p_values)), key=lambda item: p_values[item])):
        largest = max(largest, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def macro_interval(
    shares: Sequence[float], intervals: Sequence[tuple[float, float]], played: Sequence[Hashable] = ()
) -> tuple[float, float]:
    """An interval of the plain mean of shares from the intervals of the shares (square and add, after Newcombe).

    `played` says which tasks each share is of. Shares of the same tasks err together, at worst all by their whole intervals.

    >>> macro_interval([0.5, 0.5], [(0.4, 0.6), (0.4, 0.6)], ["maze", "maze"])
    (0.4, 0.6)
    """
    below: dict[Hashable, float] = {}
    above: dict[Hashable, float] = {}
    for share, (low, high), tasks in zip(shares, intervals, played or range(len(shares)), strict=True):
        below[tasks] = below.get(tasks, 0.0) + share - low
        above[tasks] = above.get(tasks, 0.0) + high - share
    mean = sum(shares) / len(shares)
    down, up = (sqrt(sum(error**2 for error in errors.values())) / len(shares) for errors in (below, above))
    return max(0.0, mean - down), min(1.0, mean + up)


def student(differences: Sequence[float]) -> tuple[float, float] | None:
    """95 % of the mean of differences that have nothing in common; none of a single one.

    >>> student([0.1]), [round(bound, 3) for bound in student([0.1, 0.3])]
    (None, [-1.071, 1.471])
    """
    if len(differences) < 2:
        return None
    half = _t_95(len(differences) - 1) * stdev(differences) / sqrt(len(differences))
    return fmean(differences) - half, fmean(differences) + half


def _t_95(freedom: int) -> float:
    """Student's t for 95 %, with the four decimals of the usual tables."""
    low, high = 0.0, pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return round(sqrt(freedom) * tan(high), 4)


def _within(angle: float, freedom: int) -> float:
    """How likely t is at most sqrt(freedom) * tan(angle) away from zero (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = 0.0
    for power in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (power - 1) / power
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


class InOneWorld(NamedTuple):
    """How much better one is than the other in a world."""

    share: float
    interval: tuple[float, float]
    p: float


@dataclass(frozen=True)
class Difference:
    """How much better one is than the other, in shares, with 95 % intervals."""

    macro: float
    macro_interval: tuple[float, float]
    micro: float
    micro_interval: tuple[float, float]
    p: float
    """On all tasks together."""
    by_world: Mapping[str, InOneWorld]
    by_seed: Mapping[int, float]
    """Macro difference of each seed both have."""
    seeds_interval: tuple[float, float] | None
    """Of the macro difference, over the seeds alone; none with one seed."""
    tasks: int


def difference(
    ours: Mapping[str, Array],
    theirs: Mapping[str, Array],
    seeds: Sequence[int],
    tasks: Mapping[str, Sequence[str]] | None = None,
) -> Difference:
    """Successes (0 or 1) of two methods by world, each with a row for every seed and a column for every task.

    `tasks` names the columns: a name that several worlds have is a task that was played in all of them.
    """
    apart = {name: ours[name] - theirs[name] for name in ours}
    columns = {
        name: list((tasks or {}).get(name, [f"{name} {at}" for at in range(apart[name].shape[1])])) for name in apart
    }
    worlds = list(apart.values())
    every = np.concatenate(worlds, axis=1)
    macro, micro = _resampled(apart, columns)
    by_seed = {seed: float(np.mean([world[row].mean() for world in worlds])) for row, seed in enumerate(seeds)}
    return Difference(
        macro=float(np.mean([world.mean() for world in worlds])),
        macro_interval=_middle(macro),
        micro=float(every.mean()),
        micro_interval=_middle(micro),
        p=sign_flip(_by_task(apart, columns)),
        by_world={
            name: InOneWorld(
                float(world.mean()),
                _middle(_resampled({name: world}, columns)[0]),
                sign_flip(world.sum(axis=0).astype(int).tolist()),
            )
            for name, world in apart.items()
        },
        by_seed=by_seed,
        seeds_interval=student(list(by_seed.values())),
        tasks=every.shape[1],
    )


def _by_task(apart: Mapping[str, Array], columns: Mapping[str, Sequence[str]]) -> list[int]:
    """Sums over seeds, and over the worlds in which a task was played."""
    found: Counter[str] = Counter()
    for name, world in apart.items():
        found.update(dict(zip(columns[name], world.sum(axis=0).astype(int).tolist(), strict=True)))
    return list(found.values())


def _resampled(apart: Mapping[str, Array], columns: Mapping[str, Sequence[str]]) -> tuple[Array, Array]:
    """Means over worlds and over tasks when seeds, and the tasks of worlds that share any, are drawn again with
    replacement."""
    random = generator("bootstrap of paired differences")
    seeds = next(iter(apart.values())).shape[0]
    of_seeds = random.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    sums, counts = [], []
    for names, tasks in played_together({name: columns[name] for name in apart}):
        drawn = random.multinomial(len(tasks), np.full(len(tasks), 1 / len(tasks)), RESAMPLES)
        place = {task: at for at, task in enumerate(tasks)}
        for name in names:
            of_tasks = drawn[:, [place[task] for task in columns[name]]]
            sums.append(((of_seeds @ apart[name]) * of_tasks).sum(axis=1))
            # None of its tasks is drawn only where a world has hardly any: then it says nothing.
            counts.append(np.maximum(of_tasks.sum(axis=1), 1))
    macro = np.mean([total / count for total, count in zip(sums, counts, strict=True)], axis=0)
    return macro, np.sum(sums, axis=0) / np.sum(counts, axis=0)


def played_together(columns: Mapping[str, Sequence[str]]) -> list[tuple[list[str], list[str]]]:
    """Worlds that have a task in common, with all tasks that one of them has.

    >>> played_together({"east": ["a", "b"], "maze": ["c"], "west": ["b", "d"]})
    [(['east', 'west'], ['a', 'b', 'd']), (['maze'], ['c'])]
    """
    groups: list[tuple[list[str], list[str]]] = []
    for name, own in columns.items():
        joined = [group for group in groups if not set(group[1]).isdisjoint(own)]
        names = [other for group in joined for other in group[0]]
        tasks = dict.fromkeys(task for group in joined for task in group[1]) | dict.fromkeys(own)
        # In the place of the first: the order in which worlds are drawn does not depend on whom they are joined with.
        at = groups.index(joined[0]) if joined else len(groups)
        groups = [group for group in groups if group not in joined]
        groups.insert(at, ([*names, name], list(tasks)))
    return groups


def _middle(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
