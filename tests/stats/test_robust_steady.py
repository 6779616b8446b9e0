from __future__ import annotations

import random
import time

import pytest

from hotlap.stats.robust import steady_from

MS = 1_000_000


def noisy(count: int, level: float = 10.0, spread: float = 0.05, seed: int = 0) -> list[int]:
    draw = random.Random(seed)
    return [int(level * MS * draw.uniform(1 - spread, 1 + spread)) for _ in range(count)]


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1)])
def test_very_short_runs_lose_only_their_first_step(count, expected):
    assert steady_from([10 * MS] * count) == expected


@pytest.mark.parametrize("count", [5, 6, 10, 100, 1001])
def test_a_constant_series_loses_its_first_step(count):
    assert steady_from([7 * MS] * count) == 1


def test_zeros_do_not_divide():
    assert steady_from([0] * 50) == 1


@pytest.mark.parametrize("level", [0.2, 10.0, 4000.0])
@pytest.mark.parametrize("slow_steps", [1, 2, 5, 30])
def test_slow_first_steps_are_found_at_any_size_of_step(level, slow_steps):
    walls = noisy(slow_steps, level * 3, seed=1) + noisy(200, level)
    assert steady_from(walls) == slow_steps


def test_a_decaying_start_is_cut_where_it_has_settled():
    walls = [int(wall * (1 + 8 * 0.5**index)) for index, wall in enumerate(noisy(100))]
    assert 4 <= steady_from(walls) <= 7


def test_steps_two_and_three_may_compile_again():
    walls = noisy(100)
    for index in (0, 2, 3):
        walls[index] *= 40
    assert steady_from(walls) == 4


def test_a_compiling_step_is_warm_up_even_when_it_is_quick():
    compiles = [index in (0, 2, 5) for index in range(100)]
    assert steady_from([10 * MS] * 100, compiles) == 6


def test_a_late_compilation_belongs_to_the_steady_state():
    compiles = [index in (0, 30) for index in range(100)]
    assert steady_from([10 * MS] * 100, compiles) == 1


def test_a_slow_first_half_is_never_cut_beyond_the_middle():
    walls = noisy(60, 50.0) + noisy(40, 10.0)
    assert steady_from(walls) <= 50


@pytest.mark.parametrize("period", [2, 3, 4, 10, 25])
def test_alternating_costs_are_steady(period):
    walls = [wall * (5 if index % period == 0 else 1) for index, wall in enumerate(noisy(400))]
    assert steady_from(walls) <= 3


@pytest.mark.parametrize("seed", range(5))
def test_stalls_later_on_do_not_hide_the_warm_up(seed):
    draw = random.Random(seed)
    walls = noisy(300, seed=seed)
    for index in range(20, 300):
        if draw.random() < 0.05:
            walls[index] *= draw.randint(10, 200)
    walls[0], walls[1], walls[2] = 90 * MS, 60 * MS, 40 * MS
    assert steady_from(walls) == 3


@pytest.mark.parametrize("total_drift", [-0.7, -0.3, 0.5, 4.0])
def test_a_drift_is_no_warm_up(total_drift):
    walls = [int(wall * (1 + total_drift * index / 500)) for index, wall in enumerate(noisy(500))]
    assert steady_from(walls) <= 2


def test_a_warm_up_before_a_drift_is_found():
    walls = [int(wall * (1 + index / 500)) for index, wall in enumerate(noisy(500))]
    for index in range(6):
        walls[index] *= 4
    assert steady_from(walls) == 6


@pytest.mark.parametrize("count", [5, 6, 7, 8, 9, 10])
def test_short_runs_keep_at_least_half(count):
    for slow in range(count):
        walls = [100 * MS] * slow + [10 * MS] * (count - slow)
        assert 1 <= steady_from(walls) <= count // 2
        if slow <= count // 2:
            assert steady_from(walls) == max(1, slow)


def test_a_long_run_is_quick():
    walls = noisy(100_000, spread=0.5)
    begin = time.process_time()
    steady_from(walls, [False] * len(walls))
    assert time.process_time() - begin < 2.0  # four times the budget: other work may share the cores
