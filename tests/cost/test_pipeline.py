from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.cost.pipeline import (
    Load,
    Setting,
    Work,
    best_workers,
    cached,
    lighter,
    predict,
    step_s,
)
from hotlap.facts.timeline import Rehearsal


def load(cpu_ms=80.0, wait_ms=0.0, compute_ms=20.0, collate_ms=0.0, mib=0.1, cores=1.0, observed_ms=None):
    work = Work(items=64, cpu_s=cpu_ms / 1e3, wait_s=wait_ms / 1e3, collate_s=collate_ms / 1e3, mib=mib)
    observed = observed_ms or compute_ms + cpu_ms + wait_ms + collate_ms
    return Load(work, 1.0, compute_ms / 1e3, cores, observed / 1e3)


def ms(load, workers, cores=2, prefetch=2):
    return step_s(load, Setting(workers, prefetch), cores) * 1e3


def test_without_workers_nothing_overlaps():
    assert ms(load(80, 10, 20, 5), 0) == pytest.approx(115.0)


def test_items_that_need_the_cpu_do_not_scale_beyond_the_cores():
    costly = load(cpu_ms=100, compute_ms=10)
    assert ms(costly, 2) < 0.7 * ms(costly, 0)
    assert ms(costly, 8) == pytest.approx(ms(costly, 3), rel=0.1)
    assert ms(costly, 8) >= (100 + 10) / 2


def test_items_that_wait_scale_with_the_workers():
    waiting = load(cpu_ms=1, wait_ms=100, compute_ms=10)
    assert ms(waiting, 2) == pytest.approx(ms(waiting, 1) / 2, rel=0.1)
    assert ms(waiting, 8) < 1.6 * 10 + 5


def test_workers_take_cores_from_the_training_itself():
    alone, greedy = load(40, compute_ms=40, cores=1.0), load(40, compute_ms=40, cores=2.0)
    assert ms(greedy, 2) > 1.2 * ms(alone, 2)


def test_cheap_items_are_dearer_to_hand_over():
    cheap = load(cpu_ms=0.2, compute_ms=2.0, mib=4.0)
    assert ms(cheap, 2) > ms(cheap, 0)
    assert best_workers(cheap, Setting(0), range(5), 4) == 0


def test_the_fewest_workers_that_serve_are_enough():
    assert best_workers(load(cpu_ms=30, compute_ms=40), Setting(0), range(9), 8) == 1
    assert best_workers(load(cpu_ms=150, compute_ms=40), Setting(0), range(9), 8) in (4, 5, 6)


def test_a_deeper_queue_never_hurts():
    even = load(cpu_ms=40, compute_ms=40)
    assert ms(even, 1, prefetch=8) < ms(even, 1, prefetch=1)


def test_a_prediction_lies_in_its_interval_and_knows_what_it_does_not_know():
    found = predict(load(), Setting(0), Setting(2), 2)
    assert found.interval.low < found.gain < found.interval.high
    off = predict(load(observed_ms=200), Setting(0), Setting(2), 2)
    assert off.interval.high - off.interval.low > 1.5 * (found.interval.high - found.interval.low)


def test_no_change_brings_nothing():
    assert predict(load(), Setting(1), Setting(1), 2).gain == pytest.approx(0.0)


def test_cached_items_leave_collating_and_compute():
    slow = load(cpu_ms=800, compute_ms=20, collate_ms=5)
    held = cached(slow)
    assert step_s(held, Setting(0), 2) * 1e3 == pytest.approx(25.0, abs=1.0)
    assert predict(slow, Setting(0), Setting(0), 2, held).gain > 20


def test_a_cache_is_never_slower_than_the_items_it_holds():
    quick = load(cpu_ms=0.01)
    assert cached(quick).work.cpu_s <= quick.work.cpu_s


def test_accumulation_takes_several_batches_a_step():
    assert step_s(replace(load(), batches=4.0), Setting(0), 2) * 1e3 == pytest.approx(20 + 4 * 80)


def test_on_two_cores_four_workers_serve_cpu_bound_items_like_two():
    """Measured with items of 4 ms: 302 items a second at 2 workers, 312 at 4."""
    bound = load(cpu_ms=4 * 64, compute_ms=0.0001)
    assert ms(bound, 2) / ms(bound, 4) == pytest.approx(312 / 302, rel=0.1)


# Measured: items that sleep for 4 ms, items a second at 1, 2 and 4 workers against those at 0.
@pytest.mark.parametrize(("workers", "measured"), [(1, 227 / 228), (2, 465 / 228), (4, 912 / 228)])
def test_it_agrees_with_measured_waiting_items(workers, measured):
    bound = load(cpu_ms=0.1, wait_ms=4 * 64, compute_ms=0.0001)
    assert ms(bound, 0) / ms(bound, workers) == pytest.approx(measured, rel=0.2)


REHEARSED = {1: Rehearsal(1, 0.120, 0.01), 2: Rehearsal(2, 0.070, 0.01)}


def test_what_was_rehearsed_is_believed_more_than_the_model():
    tried = replace(load(), rehearsed=REHEARSED)
    found = predict(tried, Setting(0), Setting(1), 2)
    assert found.gain == pytest.approx(100 / 120 - 1)
    assert found.interval.high - found.interval.low < 0.15
    assert best_workers(tried, Setting(0), range(3), 2) == 2


def test_beyond_what_was_rehearsed_the_model_goes_on_from_there_and_doubts_itself():
    waiting = replace(load(cpu_ms=1, wait_ms=100, compute_ms=5), rehearsed={2: Rehearsal(2, 0.060, 0.01)})
    twice = predict(waiting, Setting(0), Setting(4), 2)
    assert twice.gain == pytest.approx(106 / 30 - 1, rel=0.15)
    near = predict(waiting, Setting(0), Setting(2), 2)
    width = [each.interval.high / each.interval.low for each in (twice, near)]
    assert width[0] > width[1]


def test_without_pauses_for_its_input_a_training_process_computes_faster():
    paused = replace(load(cpu_ms=80, compute_ms=20), free_s=0.008)
    assert step_s(cached(paused), Setting(0), 2) * 1e3 == pytest.approx(8, abs=0.5)
    half = lighter(paused, replace(paused.work, cpu_s=0.040))
    assert step_s(half, Setting(0), 2) * 1e3 == pytest.approx(40 + 14)
