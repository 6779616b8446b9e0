from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.cost.reading import disturbed, load_of, prefetch_of, saturated, training_loader
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import (
    DatasetFacts,
    Ending,
    Gauge,
    LoaderFacts,
    ProbeCost,
    Runtime,
    Stage,
    Steps,
    Timeline,
    Warmup,
    WorkerFacts,
)

HOST = Host("Linux", "a cpu", 4, 4, 2**35, 2**34, None, None, "fork")
LOADER = LoaderFacts(DatasetFacts("Items", 100), 8, 0, None, False, False, batches=10, batch_bytes=2**20)
ROW = WorkerFacts(
    loader=0, worker=-1, batches=10, items=80, fetch_s=0.8, cpu_s=0.6, collate_s=0.1, wait_s=0.0
)


def timeline(**changes) -> Timeline:
    """Ten steps of 100 ms, 90 of them loading."""
    count = 10
    stages = {Stage.DATA: [90_000_000] * count, Stage.FORWARD: [10_000_000] * count}
    empty = [-1] * count
    plain = Timeline(
        rank=0,
        world=1,
        pid=1,
        ending=Ending.FINISHED,
        steps=Steps([0] * count, [100_000_000] * count, stages, empty, empty, empty, [1] * count),
        steady_from=0,
        warmup=Warmup(1.0, 0, 0.0),
        runtime=Runtime(threads=2),
        probe=ProbeCost(0.0, 0.0, 0.0, 0),
        loaders=(LOADER,),
        workers=(ROW,),
    )
    return replace(plain, **changes)


def looks(**changes) -> tuple[Gauge, ...]:
    return (replace(Gauge(0, 2**30, 1.0, 0.0, 0.0, 0.0), **changes),) * 5


def load(seen: Timeline, host: Host = HOST):
    return load_of(seen, summarise(seen), host)


def test_the_load_of_one_batch():
    work = load(timeline()).work
    assert work.items == 8
    assert (work.cpu_s, work.wait_s, work.collate_s) == (
        pytest.approx(0.06),
        pytest.approx(0.02),
        pytest.approx(0.01),
    )
    assert work.seconds == pytest.approx(0.09)


def test_compute_is_the_step_without_data():
    found = load(timeline())
    assert found.compute_s == pytest.approx(0.01)
    assert found.observed_s == pytest.approx(0.1)
    assert found.batches == 1.0


def test_accumulation_counts_its_batches():
    seen = timeline()
    assert load(replace(seen, steps=replace(seen.steps, micro=[4] * 10))).batches == 4.0


def test_on_a_full_machine_a_part_of_the_waiting_is_for_a_core():
    work = load(timeline(gauges=looks(cores=(1.0, 1.0, 0.9, 1.0)))).work
    assert (work.queue_s, work.wait_s) == (pytest.approx(0.02), pytest.approx(0.0))
    sleeping = replace(ROW, cpu_s=0.01)
    work = load(timeline(gauges=looks(cores=(1.0, 1.0, 0.9, 1.0)), workers=(sleeping,))).work
    assert (work.queue_s, work.wait_s) == (pytest.approx(0.003), pytest.approx(0.076))


def test_items_on_several_threads_are_no_longer_than_they_took():
    assert load(timeline(workers=(replace(ROW, cpu_s=3.0),))).work.cpu_s == pytest.approx(0.08)


@pytest.mark.parametrize("changes", [{"loaders": ()}, {"workers": ()}, {"steady_from": 10}])
def test_what_was_not_seen_has_no_load(changes):
    assert load(timeline(**changes)) is None


def test_of_several_loaders_the_one_that_gave_most_feeds_training():
    validation = replace(LOADER, training=False, batches=1000)
    other = replace(LOADER, batches=3)
    assert training_loader(timeline(loaders=(validation, other, LOADER))) == (2, LOADER)
    assert training_loader(timeline(loaders=(validation,))) is None


def test_the_default_queue_is_two_deep():
    assert prefetch_of(LOADER) == 2
    assert prefetch_of(replace(LOADER, num_workers=3, prefetch_factor=5)) == 5


def test_nobody_looked_is_not_idle():
    assert saturated(timeline(), 4) is None
    assert saturated(timeline(gauges=looks(cpu=1.0, workers_cpu=1.0, foreign_cpu=1.8)), 4) is True
    assert saturated(timeline(gauges=looks(cpu=1.0)), 4) is False


def test_a_full_machine_is_disturbed_only_by_others():
    assert disturbed(timeline(gauges=looks(cpu=1.0, foreign_cpu=3.0)), HOST)
    assert not disturbed(timeline(gauges=looks(cpu=1.0, workers_cpu=3.0)), HOST)
    assert not disturbed(timeline(gauges=looks(cpu=1.0, foreign_cpu=1.5)), HOST)
    assert not disturbed(timeline(), HOST)
    stolen = looks(cpu=1.0, foreign_cpu=0.8, stolen=1.8)  # by other guests of the hypervisor
    assert disturbed(timeline(gauges=stolen), HOST)
