"""Looks are made up here: what they mean is arithmetic. test_vitals.py takes real ones."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hotlap.host.looks import GpuLook, JobSnapshot, LookRecord, MachineLoad, Usage

MIB = 1 << 20
LAUNCHER, RANK_0, RANK_1, WORKER_0, WORKER_1, ORPHAN = 100, 101, 102, 111, 112, 120
PROCESSES = {
    LAUNCHER: Usage(1, 10 * MIB, 0.1),
    RANK_0: Usage(LAUNCHER, 500 * MIB, 1.0, reaped=0.25),
    RANK_1: Usage(LAUNCHER, 400 * MIB, 0.5),
    WORKER_0: Usage(RANK_0, 200 * MIB, 0.75),
    WORKER_1: Usage(RANK_1, 100 * MIB, 0.25),
    ORPHAN: Usage(1, 5 * MIB, 0.05),
}
MACHINE = MachineLoad(busy=3.9, iowait=0.2, stolen=0.3, cores=(1.0, 1.0, 1.0, 0.9))


def look(t=1, processes=PROCESSES, machine=MACHINE, gpus=()):
    return JobSnapshot(t=t, span_s=0.5, root=LAUNCHER, processes=processes, machine=machine, gpus=gpus)


def test_the_root_sees_the_whole_job_with_its_orphans():
    gauge = look().gauge()
    assert gauge.rss == 10 * MIB
    assert gauge.tree_rss == 1215 * MIB
    assert gauge.cpu == 0.1
    assert gauge.workers_cpu == pytest.approx(2.8)
    assert gauge.foreign_cpu == pytest.approx(1.0)
    assert (gauge.iowait, gauge.stolen, gauge.cores) == (0.2, 0.3, MACHINE.cores)


def test_a_rank_sees_its_own_workers_and_no_other_rank_as_foreign():
    gauge = look().gauge(RANK_0)
    assert (gauge.rss, gauge.tree_rss) == (500 * MIB, 700 * MIB)
    assert gauge.cpu == 1.0
    assert gauge.workers_cpu == pytest.approx(1.0), "a worker, and 0.25 of one that has ended"
    assert gauge.foreign_cpu == pytest.approx(1.0)


def test_counters_that_disagree_a_little_make_no_negative_share():
    machine = MachineLoad(busy=2.7, iowait=0.0, stolen=None, cores=())
    gauge = look(machine=machine).gauge()
    assert gauge.foreign_cpu == 0.0
    assert gauge.stolen is None


def test_a_process_that_was_not_there_has_no_gauge():
    ended = {LAUNCHER: Usage(1, 0, 0.1), RANK_0: PROCESSES[RANK_0]}
    assert look().gauge(999) is None
    assert look(processes=ended).gauge() is None
    assert look(processes=ended).gauge(RANK_0).rss == 500 * MIB
    assert look(processes={ORPHAN: PROCESSES[ORPHAN]}).gauge() is None


def test_without_a_gpu_nothing_is_said_of_one():
    gauge = look().gauge()
    assert (gauge.gpu_busy, gauge.gpu_memory, gauge.gpu_memory_used) == (None, None, None)


def test_a_rank_is_shown_the_gpu_that_it_uses():
    gpus = (GpuLook(0.9, 900, {RANK_0: 700, 7: 100}), GpuLook(0.1, 300, {RANK_1: 200}))
    first, second, job = (look(gpus=gpus).gauge(pid) for pid in (RANK_0, RANK_1, None))
    assert (first.gpu_busy, first.gpu_memory, first.gpu_memory_used) == (0.9, 700, 900)
    assert (second.gpu_busy, second.gpu_memory, second.gpu_memory_used) == (0.1, 200, 300)
    assert (job.gpu_busy, job.gpu_memory, job.gpu_memory_used) == (0.5, 900, 1200)


def test_where_the_driver_knows_other_process_ids_all_gpus_are_meant():
    gpus = (GpuLook(0.9, 900, {70001: 800}), GpuLook(None, 300, {}))
    gauge = look(gpus=gpus).gauge(RANK_0)
    assert (gauge.gpu_busy, gauge.gpu_memory, gauge.gpu_memory_used) == (0.9, None, 1200)


def test_memory_that_the_driver_does_not_tell_is_not_zero():
    gauge = look(gpus=(GpuLook(0.5, None, {RANK_0: None}),)).gauge(RANK_0)
    assert (gauge.gpu_busy, gauge.gpu_memory, gauge.gpu_memory_used) == (0.5, None, None)


def one_process(t, rss):
    return look(t=t, processes={LAUNCHER: Usage(1, rss, 0.5)})


def test_a_record_keeps_all_looks_until_it_is_full():
    record = LookRecord(limit=100)
    for t in range(99):
        record.add(one_process(t, rss=1 + t))
    assert [gauge.t for gauge in record.gauges()] == list(range(99))


def test_a_long_run_stays_within_the_limit_in_order_over_its_whole_length_with_its_peak():
    record = LookRecord(limit=64)
    count, peak_at = 10_000, 3_333
    for t in range(count):
        record.add(one_process(t, rss=10**9 if t == peak_at else 1000 + t % 7))
        assert len(record.looks) < 64
    gauges = record.gauges()
    times = [gauge.t for gauge in gauges]
    assert times == sorted(times)
    assert len(times) >= 64 // 2 - 1
    assert times[0] < count // 20 and times[-1] > count - count // 20
    assert max(later - earlier for earlier, later in pairwise(times)) < count // 10
    assert [gauge.t for gauge in gauges if gauge.rss == 10**9] == [peak_at]


def test_the_last_looks_show_even_if_they_do_not_fill_a_point():
    record = LookRecord(limit=4)
    for t in range(5):
        record.add(one_process(t, rss=1 + t))
    assert record.gauges()[-1].t == 4


def test_nothing_is_recorded_of_a_job_that_is_gone():
    record = LookRecord()
    record.add(None)
    assert record.gauges() == ()
    record.add(look())
    assert record.gauges(RANK_1)[0].rss == 400 * MIB
    assert record.gauges(999) == ()
