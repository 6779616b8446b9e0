"""A budget measures what monitors cost and lets no more through than its share."""

from __future__ import annotations

import pytest

from hotlap.errors import UsageError
from hotlap.watch.budget import Budget, parsed_share


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def trained(budget, clock, tasks, steps, step_s=0.01):
    """Steps of training in which each task is done as often as the budget lets it; how often each was."""
    done = dict.fromkeys(tasks, 0)
    for _ in range(steps):
        clock.now += step_s
        for task, cost in tasks.items():
            if budget.allows(task):
                with budget.spending(task):
                    clock.now += cost
                done[task] += 1
    return done


def test_all_tasks_together_stay_below_the_share(clock):
    budget = Budget("1%", clock)
    done = trained(budget, clock, {"look": 0.005, "plot": 0.3}, 10_000)
    assert 0.008 < budget.spent_share <= 0.01
    assert done["look"] > done["plot"] >= 1
    assert budget.left_out > 10_000


def test_a_task_whose_cost_scatters_does_not_overdraw_it(clock):
    """At whatever step the training ends, all but in the beginning."""
    budget = Budget("1%", clock)
    over = 0
    for step in range(20_000):
        clock.now += 0.01
        if budget.allows("look"):
            with budget.spending("look"):
                clock.now += 0.02 * (1 + step % 3)
        over += step > 2_000 and budget.spent_share > 0.01
    assert over < 200
    assert budget.spent_share > 0.008


def test_a_task_that_becomes_cheaper_is_done_more_often(clock):
    budget = Budget("10%", clock)
    dear = trained(budget, clock, {"look": 0.05}, 500)["look"]
    cheap = trained(budget, clock, {"look": 0.0005}, 500)["look"]
    assert cheap > 5 * dear


def test_an_unknown_task_waits_for_what_it_may_take(clock):
    budget = Budget("1%", clock)
    assert not budget.allows("plot", guess_s=1.0)
    clock.now += 99.0
    assert not budget.allows("plot", guess_s=1.0)
    clock.now += 2.0
    assert budget.allows("plot", guess_s=1.0)


def test_a_task_inside_a_task_is_booked_once_and_known_by_itself(clock):
    budget = Budget("50%", clock)
    with budget.spending("outer"):
        clock.now += 1.0
        with budget.spending("inner"):
            clock.now += 2.0
    assert budget.spent == 3.0
    clock.now += (
        6.5  # half of 9.5 seconds: one second and three quarters are left, which is less than inner takes
    )
    assert not budget.allows("inner")
    clock.now += 1.0
    assert budget.allows("inner")


def test_a_task_that_fails_is_booked_too(clock):
    budget = Budget("1%", clock)
    with pytest.raises(ZeroDivisionError), budget.spending("look"):
        clock.now += 4.0
        raise ZeroDivisionError
    assert budget.spent == 4.0 and not budget.allows("look")


def test_off_lets_nothing_through(clock):
    budget = Budget("off", clock)
    budget.allows("look")
    clock.now += 1e6
    assert not budget.allows("look") and budget.spent_share == 0.0


@pytest.mark.parametrize(
    ("given", "share"),
    [("1%", 0.01), (" 2.5 % ", 0.025), (0.01, 0.01), ("0.2", 0.2), ("OFF", 0.0), (0, 0.0), ("100%", 1.0)],
)
def test_shares_as_people_write_them(given, share):
    assert parsed_share(given) == pytest.approx(share)


@pytest.mark.parametrize("given", ["fast", "", "120%", -0.1, 1.5, "%", float("nan")])
def test_what_is_no_share_is_refused_with_a_remedy(given):
    with pytest.raises(UsageError, match="is no share of the time") as refused:
        Budget(given)
    assert '"1%"' in str(refused.value)
