"""The statistics beside scipy, brute force and simulation."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from fedse.evaluation.metrics import wilson
from fedse.evaluation.paired import difference, holm, macro_interval, sign_flip, student

scipy_stats = pytest.importorskip("scipy.stats")


def test_with_one_seed_the_sign_flip_test_is_mcnemars_exact_test() -> None:
    for better, worse in product(range(0, 13), range(0, 13)):
        differences = [1] * better + [-1] * worse + [0] * 5
        expected = scipy_stats.binomtest(better, better + worse).pvalue if better + worse else 1.0
        assert sign_flip(differences) == pytest.approx(expected, abs=1e-12)
    assert sign_flip([1] * 60 + [-1] * 20) == pytest.approx(scipy_stats.binomtest(60, 80).pvalue, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_with_several_seeds_it_counts_over_all_signs(seed: int) -> None:
    random = np.random.default_rng(seed)
    differences = random.integers(-3, 4, size=10)
    sums = [abs(int(np.dot(signs, differences))) for signs in product((-1, 1), repeat=10)]
    expected = np.mean([total >= abs(differences.sum()) for total in sums])
    assert sign_flip(differences.tolist()) == pytest.approx(expected, abs=1e-12)


def test_equal_methods_are_seldom_called_different() -> None:
    random = np.random.default_rng(1)
    easy = random.random((300, 1, 40))  # The same tasks are easy for both.
    ours, theirs = (random.random((300, 3, 40)) < easy for _ in range(2))
    p = [sign_flip((ours[trial].astype(int) - theirs[trial]).sum(axis=0).tolist()) for trial in range(300)]
    assert np.mean(np.array(p) < 0.05) < 0.09


@pytest.mark.parametrize("seed", range(5))
def test_holm_rejects_what_closed_testing_with_bonferroni_rejects(seed: int) -> None:
    p = (np.random.default_rng(seed).random(5) ** 3).tolist()
    for level in (0.01, 0.05, 0.2):
        closed = [
            all(
                min(p[index] for index in family) <= level / size
                for size in range(1, 6)
                for family in combinations(range(5), size)
                if chosen in family
            )
            for chosen in range(5)
        ]
        assert [value <= level for value in holm(p)] == closed
    assert holm([]) == []


def test_wilson_is_scipys() -> None:
    for successes, episodes in [(0, 25), (17, 25), (25, 25), (3, 200)]:
        theirs = scipy_stats.binomtest(successes, episodes).proportion_ci(method="wilson")
        assert wilson(successes, episodes) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_the_macro_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(3)
    truth, tasks = np.array([0.9, 0.5, 0.05]), [40, 25, 100]
    hits = 0
    for _ in range(600):
        found = [random.binomial(count, share) for count, share in zip(tasks, truth, strict=True)]
        bounds = [wilson(successes, count) for successes, count in zip(found, tasks, strict=True)]
        shares = [successes / count for successes, count in zip(found, tasks, strict=True)]
        low, high = macro_interval(shares, bounds)
        hits += low <= truth.mean() <= high
    assert 0.92 < hits / 600 < 0.985


def test_the_interval_of_a_difference_covers_it_and_agrees_with_scipys_bootstrap() -> None:
    random = np.random.default_rng(5)
    ours = {
        "maze": (random.random((1, 80)) < 0.7).astype(float),
        "wordle": (random.random((1, 50)) < 0.4).astype(float),
    }
    theirs = {
        "maze": (random.random((1, 80)) < 0.4).astype(float),
        "wordle": (random.random((1, 50)) < 0.4).astype(float),
    }
    found = difference(ours, theirs, [0])
    apart = np.concatenate([ours[name][0] - theirs[name][0] for name in ours])
    assert found.micro == pytest.approx(apart.mean())
    assert found.macro == pytest.approx(np.mean([(ours[name] - theirs[name]).mean() for name in ours]))
    whole = scipy_stats.bootstrap(
        (apart,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    # Ours draws within worlds, scipy's from all tasks at once: nearly the same here.
    assert found.micro_interval == pytest.approx((whole.low, whole.high), abs=0.03)
    assert found.by_world["maze"].p == sign_flip((ours["maze"] - theirs["maze"])[0].astype(int).tolist())


@pytest.mark.torture
def test_equal_methods_with_luck_from_run_to_run_are_seldom_told_apart_in_a_world() -> None:
    """The test over tasks alone takes the luck of three runs for a difference in a quarter of the cases and more."""
    random = np.random.default_rng(7)
    by_test = by_both = 0
    for _ in range(80):
        ours, theirs = (
            (random.random((3, 200)) < np.clip(0.5 + 0.06 * random.standard_normal((3, 1)), 0, 1)).astype(float)
            for _ in range(2)
        )
        world = difference({"maze": ours}, {"maze": theirs}, [0, 1, 2]).by_world["maze"]
        sure = world.p < 0.05
        by_test += sure
        by_both += sure and not world.interval[0] <= 0 <= world.interval[1]
    assert by_test > 0.2 * 80
    assert by_both < 0.15 * 80 < by_test


def test_seeds_that_disagree_widen_the_interval() -> None:
    tasks = np.ones((1, 100))
    agreeing = {"maze": np.concatenate([0.2 * tasks, 0.2 * tasks, 0.2 * tasks])}
    split = {"maze": np.concatenate([0.6 * tasks, 0.2 * tasks, -0.2 * tasks])}
    nothing = {"maze": np.zeros((3, 100))}
    same = difference(agreeing, nothing, [0, 1, 2])
    unsure = difference(split, nothing, [0, 1, 2])
    assert same.macro_interval == pytest.approx((0.2, 0.2))
    assert unsure.macro_interval[0] < 0 < unsure.macro == pytest.approx(0.2)
    assert unsure.by_seed == pytest.approx({0: 0.6, 1: 0.2, 2: -0.2})
    expected = scipy_stats.t.interval(0.95, 2, 0.2, scipy_stats.sem([0.6, 0.2, -0.2]))
    assert unsure.seeds_interval == pytest.approx(expected, abs=1e-4)
    assert difference({"maze": split["maze"][:1]}, {"maze": nothing["maze"][:1]}, [0]).seeds_interval is None


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 11, 12, 20, 60])
def test_the_interval_over_the_seeds_alone_is_students(seeds: int) -> None:
    values = np.random.default_rng(seeds).normal(size=seeds)
    expected = scipy_stats.t.interval(0.95, seeds - 1, values.mean(), scipy_stats.sem(values))
    assert student(values.tolist()) == pytest.approx(expected, abs=1e-4)


def test_students_t_is_scipys_to_four_decimals_and_does_not_jump() -> None:
    for freedom in [*range(1, 41), 99, 100, 1000]:
        low, high = student([-1.0, 1.0] + [0.0] * (freedom - 1)) or (0.0, 0.0)
        spread = (2 / freedom) ** 0.5 / (freedom + 1) ** 0.5
        assert (high - low) / 2 / spread == pytest.approx(scipy_stats.t.ppf(0.975, freedom), abs=5.1e-5)


def test_a_task_that_several_sites_play_counts_once() -> None:
    """A copy of a site says nothing new: without the tasks' names it would halve the p-value's exponent."""
    random = np.random.default_rng(3)
    ours, theirs = (random.random((2, 40)) < share for share in (0.6, 0.45))
    once = difference({"east": ours.astype(float)}, {"east": theirs.astype(float)}, [1, 2])
    names = {"east": [f"task {at}" for at in range(40)], "west": [f"task {at}" for at in range(40)]}
    both = [{site: side.astype(float) for site in names} for side in (ours, theirs)]
    twice = difference(*both, [1, 2], names)
    assert twice.p == once.p and twice.macro_interval == once.macro_interval
    apart = difference(*both, [1, 2], {"east": names["east"], "west": [f"other {at}" for at in range(40)]})
    assert apart.p < once.p and _width(apart.macro_interval) < 0.85 * _width(once.macro_interval)
    assert difference(*both, [1, 2]).macro_interval == apart.macro_interval


def test_tasks_that_only_some_sites_played_are_drawn_with_the_others() -> None:
    random = np.random.default_rng(4)
    ours, theirs = ((random.random((3, 30)) < share).astype(float) for share in (0.6, 0.45))
    names = [f"task {at}" for at in range(30)]
    found = difference(
        {"east": ours, "west": ours[:, 2:]},
        {"east": theirs, "west": theirs[:, 2:]},
        [1, 2, 3],
        {"east": names, "west": names[2:]},
    )
    alone = difference({"east": ours}, {"east": theirs}, [1, 2, 3], {"east": names})
    assert found.macro_interval == pytest.approx(alone.macro_interval, abs=0.03) and found.tasks == 58


def _width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]
