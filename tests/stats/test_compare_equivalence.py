"""Two one-sided tests: same only where the whole interval lies within the margin."""

from __future__ import annotations

import random

from hotlap.stats.compare import equivalence, pooled, ratio


def test_a_small_difference_within_a_wide_margin_is_the_same():
    found = equivalence([0.01, -0.01, 0.0, 0.005], 0.1)
    assert found.same
    assert not found.different


def test_a_difference_beyond_the_margin_is_different():
    found = equivalence([0.5, 0.52, 0.49], 0.1)
    assert found.different
    assert not found.same


def test_a_wide_scatter_is_neither():
    found = equivalence([0.5, -0.5, 0.1], 0.1)
    assert not found.same
    assert not found.different


def test_a_single_pair_is_neither():
    found = equivalence([0.0], 0.1)
    assert not found.same
    assert not found.different


def test_a_true_difference_at_the_margin_is_hardly_ever_called_the_same():
    draw = random.Random(1)
    called = [equivalence([0.1 + draw.gauss(0, 0.05) for _ in range(5)], 0.1).same for _ in range(400)]
    assert sum(called) / len(called) < 0.08


def test_pooled_scatter_makes_single_runs_comparable():
    groups = [[100.0, 102.0, 98.0], [200.0, 204.0, 197.0], [50.0]]
    scatter = pooled(groups)
    assert scatter.freedom == 4
    assert ratio([100.0], [120.0], scatter=scatter).decided
    assert not ratio([100.0], [102.0], scatter=scatter).decided
    assert pooled([[1.0], [2.0]]) is None
