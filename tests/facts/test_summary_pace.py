from __future__ import annotations

import pytest

from hotlap.facts.summary import by_pace, own_work_ms
from hotlap.facts.timeline import Ending, ProbeCost, Runtime, Stage, Steps, Timeline, Warmup

MS = 1_000_000


def rank(number, data, backward, comm_s=None, world=3, count=10):
    """What one rank loads, the others wait for in backward: all walls are equal."""
    empty = [-1] * count
    stages = {Stage.DATA: [data * MS] * count, Stage.BACKWARD: [backward * MS] * count}
    walls = [(data + backward) * MS] * count
    return Timeline(
        rank=number,
        world=world,
        pid=number,
        ending=Ending.WINDOW,
        steps=Steps(list(range(count)), walls, stages, empty, empty, empty, [1] * count),
        steady_from=0,
        warmup=Warmup(1.0, 0, 0.0),
        runtime=Runtime(threads=1),
        probe=ProbeCost(0.0, 0.0, 0.0, 0),
        comm_s=comm_s,
    )


def test_equal_walls_are_told_apart_by_the_time_in_collectives():
    ranks = [rank(0, 10, 40, comm_s=0.2), rank(1, 30, 20, comm_s=0.01), rank(2, 10, 40, comm_s=0.2)]
    assert own_work_ms(ranks) == [pytest.approx(30.0), pytest.approx(49.0), pytest.approx(30.0)]
    assert [each.rank for each in by_pace(ranks)] == [1, 0, 2]


def test_without_them_the_backward_pass_is_taken_for_the_waiting():
    ranks = [rank(0, 10, 40), rank(1, 30, 20), rank(2, 10, 40, comm_s=0.1)]
    assert own_work_ms(ranks) == [pytest.approx(10.0), pytest.approx(30.0), pytest.approx(10.0)]
    assert by_pace(ranks)[0].rank == 1


def test_equal_ranks_keep_their_order():
    ranks = [rank(2, 10, 40), rank(0, 10, 40), rank(1, 10, 40)]
    assert [each.rank for each in by_pace(ranks)] == [0, 1, 2]


def test_a_rank_without_a_steady_step_comes_last():
    ranks = [rank(0, 0, 0), rank(1, 30, 20)]
    assert own_work_ms(ranks)[0] is None
    assert by_pace(ranks)[0].rank == 1


def test_one_process_is_as_slow_as_it_is():
    (alone,) = [rank(0, 10, 40, world=1)]
    assert own_work_ms([alone]) == [pytest.approx(50.0)]
    assert by_pace([alone]) == (alone,)
