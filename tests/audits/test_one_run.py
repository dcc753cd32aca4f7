"""The bound on epsilon against exact fractions, closed forms, scipy, a mechanism whose epsilon is known, and jax-privacy."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from fedse.audits.one_run import lower_bound, p_value, smallest_epsilon


def exact(canaries: int, guesses: int, right: int, q: Fraction, delta: Fraction) -> Fraction:
    """The formula in whole numbers, where q is a fraction."""

    def at_least(least: int) -> Fraction:
        return sum(
            (comb(guesses, k) * q**k * (1 - q) ** (guesses - k) for k in range(max(0, least), guesses + 1)), Fraction(0)
        )

    luck = at_least(right)
    more = max((at_least(right - i) - luck) / i for i in range(1, right + 1))
    return min(Fraction(1), luck + 2 * canaries * delta * more)


@pytest.mark.parametrize(("canaries", "guesses", "right"), [(20, 10, 10), (40, 40, 35), (200, 60, 58), (30, 12, 1)])
@pytest.mark.parametrize("odds", [1, 3, 9])
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 100_000), Fraction(1, 1000)])
def test_p_values_are_those_of_exact_fractions(
    canaries: int, guesses: int, right: int, odds: int, delta: Fraction
) -> None:
    wanted = exact(canaries, guesses, right, Fraction(odds, odds + 1), delta)
    assert p_value(canaries, guesses, right, math.log(odds), float(delta)) == pytest.approx(float(wanted), rel=1e-9)


@pytest.mark.parametrize(("guesses", "told"), [(50, 2.8), (100, 3.5), (200, 4.2), (1000, 5.8)])
def test_if_every_guess_is_right_the_bound_has_a_closed_form(guesses: int, told: float) -> None:
    q = 0.05 ** (1 / guesses)
    found = smallest_epsilon(guesses, guesses, guesses, 0.0, 0.05)
    assert found == pytest.approx(math.log(q / (1 - q)), abs=1e-5)
    assert round(found, 1) == told


def test_the_bound_is_where_scipy_s_tail_is_five_percent() -> None:
    found = smallest_epsilon(200, 100, 80, 0.0, 0.05)
    assert binom.sf(79, 100, 1 / (1 + math.exp(-found))) == pytest.approx(0.05, abs=1e-5)
    assert smallest_epsilon(200, 100, 80, 1e-4, 0.05) < found
    assert smallest_epsilon(200, 100, 50, 1e-5, 0.05) == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_randomised_response_is_hardly_ever_refuted_at_its_own_epsilon(epsilon: float) -> None:
    random = np.random.default_rng(11)
    told_right = math.exp(epsilon) / (1 + math.exp(epsilon))
    found = []
    for _ in range(40):
        planted = random.random(200) < 0.5
        seen = np.where(random.random(200) < told_right, planted, ~planted)
        found.append(lower_bound(seen.astype(float).tolist(), planted.tolist(), 1e-5).epsilon)
    assert sum(one > epsilon for one in found) <= 5
    assert np.median(found) > 0.5 * epsilon - 0.01


def test_equal_scores_tell_nothing_in_whatever_order_canaries_are_listed() -> None:
    assert lower_bound([0.0] * 200, [True] * 100 + [False] * 100, 1e-5).epsilon == 0.0
    perfect = lower_bound([1.0] * 100 + [0.0] * 100, [True] * 100 + [False] * 100, 1e-5)
    assert (perfect.guesses, perfect.right) == (200, 200) and perfect.epsilon > 3.5


@pytest.mark.torture
def test_jax_privacy_computes_the_same(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    done = subprocess.run([*install, "jax-privacy==2.0.0"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"jax-privacy cannot be installed here: {done.stderr[-200:]}")
    # The module by itself: the package around it needs jax.
    spec = importlib.util.spec_from_file_location("jax_privacy_auditing", tmp_path / "jax_privacy/auditing.py")
    assert spec is not None and spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = theirs
    spec.loader.exec_module(theirs)
    random = np.random.default_rng(5)
    for _ in range(300):
        canaries = int(random.integers(20, 1000))
        guesses = int(random.integers(2, canaries + 1))
        right = int(random.integers(guesses // 2, guesses + 1))
        delta = float(random.choice([1e-6, 1e-5, 1e-3]))
        epsilon = float(random.uniform(0, 6))
        told = theirs._one_run_p_value(canaries, guesses, right, epsilon, delta)
        assert p_value(canaries, guesses, right, epsilon, delta) == pytest.approx(told, rel=1e-6, abs=1e-12)
        bound = theirs._epsilon_one_run(0.0, canaries, guesses, right, 0.05, delta)
        assert smallest_epsilon(canaries, guesses, right, delta, 0.05) == pytest.approx(bound, abs=1e-4)
