"""When batches are audited: one early, then at random moments within a share of the time."""

from __future__ import annotations

import random

import pytest

from hotlap.sameness.audit import Audit


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _audited(seed: int, batches: int, step: float, cost: float) -> tuple[list[int], float, float]:
    """Numbers of the batches that were audited, seconds that audits took after the first, seconds since it."""
    clock = _Clock()
    audit = Audit(0.01, seed, clock)
    numbers, spent, since = [], 0.0, clock.now
    for number in range(batches):
        clock.now += step
        if audit.due():
            with audit.timed():
                clock.now += cost
            audit.agreed()
            spent += cost if numbers else 0.0
            since = since if numbers else clock.now
            numbers.append(number)
    return numbers, spent, clock.now - since


@pytest.mark.parametrize("cost", [0.001, 0.02, 0.5])
def test_one_audit_comes_early_and_the_others_take_at_most_their_share(cost: float) -> None:
    for seed in range(50):
        numbers, spent, seconds = _audited(seed, 20_000, 0.01, cost)
        assert numbers[0] < 3
        assert spent <= 0.01 * seconds
        assert len(numbers) > 1, "and not only once"


def test_audits_come_as_often_as_their_share_allows() -> None:
    numbers, spent, seconds = _audited(1, 50_000, 0.01, 0.01)
    assert spent > 0.7 * 0.01 * seconds
    delays = sorted(min(n for n in numbers if n >= at) - at for at in range(0, 45_000, 97))
    assert delays[len(delays) // 2] <= 200, "a change is met within 200 steps, in the median"


@pytest.mark.parametrize("period", [2, 7, 64])
def test_a_change_that_comes_and_goes_is_met(period: int) -> None:
    for seed in range(20):
        numbers, _, _ = _audited(seed, 400_000, 0.01, 0.01)
        assert any(number % period == 1 for number in numbers)


def test_batches_since_the_last_agreement_are_counted() -> None:
    clock = _Clock()
    audit = Audit(0.01, 3, clock)
    while not audit.due():
        pass
    with audit.timed():
        clock.now += 1.0
    audit.agreed()
    assert audit.unaudited == 0
    for _ in range(5):
        assert not audit.due()
    assert audit.unaudited == 5
    clock.now += 1000.0
    assert audit.due()
    with audit.timed():
        clock.now += 1.0
    assert audit.unaudited == 6, "one that did not agree does not count"


def test_the_numbers_of_the_script_do_not_move() -> None:
    before = random.getstate()
    audit = Audit()
    for _ in range(4):
        audit.due()
    with audit.timed():
        pass
    assert random.getstate() == before


def test_an_audit_that_raises_is_timed_too() -> None:
    clock = _Clock()
    audit = Audit(0.01, 0, clock)
    while not audit.due():
        pass
    with pytest.raises(ValueError), audit.timed():
        clock.now += 1.0
        raise ValueError
    assert not audit.due()
