"""What single rules promise beyond firing and staying silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.diagnose.run import all_rules
from hotlap.facts.diagnosis import Cause, Severity
from hotlap.facts.timeline import (
    AcceleratorFacts,
    Cadence,
    DeviceTime,
    HotLine,
    Ops,
    OptimizerFacts,
    Pauses,
    Runtime,
    SourceLine,
    Stage,
    SyncPoint,
    Warmup,
)

GIB = 2**30
RULES = all_rules()


def look(cause, sight):
    return RULES[cause].examine(sight)


def reading(make, reads=600, **changes):
    """A loop outside of all stages that takes 27 % of a step of 40 ms; its calls take a millisecond in all."""
    line = make.line(Stage.OTHER, 0.9, file="train.py")
    point = SyncPoint(line.place, "Tensor.item", reads * 205, 0.001)
    return make.timeline(40.0, {Stage.OTHER: 0.3}, lines=(line,), syncs=(point,), **changes)


@pytest.mark.parametrize(("stage", "share"), [(Stage.OTHER, 0.1), (Stage.FORWARD, 0.5)])
def test_a_read_between_two_parts_costs_no_more_than_the_device_is_idle(make, stage, share):
    """Within a part breaks are not seen: there the time in the calls is the most that it can be."""
    point = SyncPoint(make.place("train.py", 88), "Tensor.item", 205, 0.5 * 0.04 * 205, stage)
    device = DeviceTime(0.9, {Stage.DATA: 0.1})
    model = make.model(devices=("npu:0",))
    sight = make.sight(make.timeline(40.0, syncs=(point,), model=model, device=device))
    assert look(Cause.HOST_SYNC, sight).share == pytest.approx(share, rel=0.02)


def test_memory_of_a_device_that_no_driver_tells_is_what_torch_says(make):
    gauges = make.gauges(40, cuda_allocated=[95 * GIB // 10] * 40)
    runtime = Runtime(2, accelerator=AcceleratorFacts("npu", "an npu", 10 * GIB))
    found = look(Cause.MEMORY_HEADROOM, make.sight(make.timeline(gauges=gauges, runtime=runtime)))
    assert (found.severity, found.evidence["memory"]) == (Severity.WARNING, "gpu")


@pytest.mark.parametrize(("collate", "file"), [("pad", "batches.py"), ("default_collate", "train.py")])
def test_padding_is_placed_where_the_script_s_own_collate_function_pads(make, collate, file):
    line = replace(make.line(Stage.DATA, 0.1, file="batches.py"), place=SourceLine("batches.py", 26, "pad"))
    item = make.line(Stage.DATA, 0.9, file="dataset.py")
    item = replace(item, place=replace(item.place, function="Rows.__getitem__"))
    loader = make.loader(collate=collate)
    timeline = make.timeline(40.0, loaders=(loader,), lines=(item, line))
    steps = replace(timeline.steps, tokens=[500] * len(timeline.steps), padded=[1500] * len(timeline.steps))
    found = look(Cause.PADDING_WASTE, make.sight(replace(timeline, steps=steps)))
    assert (found.where.file, found.where.line) == (file, 26 if collate == "pad" else 20)


def test_a_loop_over_elements_is_no_synchronisation(make):
    """The line's time is the loop's; inside the calls nothing is waited for."""
    sight = make.sight(reading(make))
    assert look(Cause.HOST_SYNC, sight) is None
    found = look(Cause.ELEMENT_LOOP, sight)
    assert found.share == pytest.approx(0.27, rel=0.01)
    assert found.evidence["reads"] == pytest.approx(600)
    assert found.where == sight.timeline.lines[0].place


def test_what_a_loop_over_elements_waits_for_a_device_is_a_synchronisation(make):
    timeline = reading(make, model=make.model(devices=("cuda:0",)))
    point = replace(timeline.syncs[0], seconds=0.2 * 0.04 * 205)
    sight = make.sight(replace(timeline, syncs=(point,)))
    assert look(Cause.HOST_SYNC, sight).share == pytest.approx(0.2, rel=0.01)
    assert look(Cause.ELEMENT_LOOP, sight).share == pytest.approx(0.07, rel=0.05)


def test_few_reads_on_a_slow_line_are_not_to_blame_for_it(make):
    sight = make.sight(reading(make, reads=10))
    assert look(Cause.ELEMENT_LOOP, sight) is None
    assert look(Cause.MONITORING_HEAVY, sight) is not None


def test_a_wait_for_an_idle_gpu_counts_only_as_far_as_it_was_idle(make, cases):
    fires, _ = cases[Cause.HOST_SYNC]
    sight = fires(make, 40.0)
    gauges = make.gauges(gpu_busy=0.85)
    found = look(Cause.HOST_SYNC, make.sight(replace(sight.timeline, gauges=gauges)))
    assert found.share == pytest.approx(0.15)


def test_spawned_workers_are_timed_by_themselves(make):
    """`iter(loader)` returns at once, the workers import for two seconds."""
    loader = make.loader(num_workers=2, epochs=10, startup_s=0.1, start_method="spawn")
    rows = tuple(
        replace(make.work(5.0, idle=0.5, number=each), startups=10, startup_s=20.0) for each in range(2)
    )
    found = look(Cause.WORKERS_RESTART, make.sight(make.timeline(400.0, loaders=(loader,), workers=rows)))
    assert found.evidence["startup_s"] == pytest.approx(2.0)
    assert found.share == pytest.approx(9 * 2.0 / 82.0, rel=0.02)


def test_stalls_all_over_the_step_are_notes_on_a_machine_that_others_use(make):
    forward = [2000.0 if index % 50 == 7 else 0.0 for index in range(200)]
    backward = [1500.0 if index % 50 == 31 else 0.0 for index in range(200)]
    timeline = make.timeline(40.0, columns={Stage.FORWARD: forward, Stage.BACKWARD: backward})
    alone = look(Cause.STEP_OUTLIERS, make.sight(timeline))
    shared = look(Cause.STEP_OUTLIERS, make.sight(replace(timeline, gauges=crowded(make))))
    assert (alone.severity, shared.severity) == (Severity.CRITICAL, Severity.NOTE)
    assert alone.evidence["stage"] == "forward"
    assert alone.evidence["outliers"] == 8


def test_stalls_in_one_small_stage_are_the_jobs_own_also_on_a_machine_that_others_use(make):
    column = [2000.0 if index % 50 == 7 else 0.0 for index in range(200)]
    timeline = make.timeline(40.0, columns={Stage.DATA: column}, gauges=crowded(make))
    assert look(Cause.STEP_OUTLIERS, make.sight(timeline)).severity is Severity.CRITICAL


def crowded(make):
    return make.gauges(cpu=1.0, foreign_cpu=3.0)


def test_a_single_stall_is_at_most_a_warning(make):
    column = [20_000.0 if index == 7 else 0.0 for index in range(200)]
    found = look(Cause.STEP_OUTLIERS, make.sight(make.timeline(40.0, columns={Stage.FORWARD: column})))
    assert found.share > 0.5
    assert found.severity is Severity.WARNING


def test_collections_are_no_outliers(make):
    column = [2000.0 if index % 50 == 7 else 0.0 for index in range(200)]
    timeline = make.timeline(40.0, columns={Stage.FORWARD: column}, pauses=Pauses(4, 8.0, 2.0))
    assert look(Cause.STEP_OUTLIERS, make.sight(timeline)) is None
    assert look(Cause.GC_PAUSES, make.sight(timeline)).evidence["every"] == pytest.approx(50)


def test_steps_that_are_compiled_again_are_no_outliers(make):
    column = [2000.0 if index % 50 == 7 else 0.0 for index in range(200)]
    stalls = make.timeline(40.0, columns={Stage.FORWARD: column})
    compiles = make.timeline(40.0, columns={Stage.FORWARD: column}, pauses=Pauses(compile_s=8.0))
    assert look(Cause.STEP_OUTLIERS, make.sight(stalls)) is not None
    assert look(Cause.STEP_OUTLIERS, make.sight(compiles)) is None


LOOPING = HotLine(
    SourceLine("model.py", 14, "Net.forward", "x = gate(x)"), "gate", Stage.FORWARD, 0.7, 70, looped=True
)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (LOOPING, Cause.LAUNCH_BOUND),
        (replace(LOOPING, looped=False), Cause.BATCH_TOO_SMALL),  # a stack of layers, called once
        (replace(LOOPING, share=0.3), Cause.BATCH_TOO_SMALL),  # most of the pass is elsewhere
        (
            replace(LOOPING, place=SourceLine("train.py", 30, "main")),
            Cause.BATCH_TOO_SMALL,
        ),  # the loop that trains
    ],
)
def test_a_loop_that_holds_the_forward_pass_is_named_where_it_is(make, line, named):
    model = make.model(calls_per_step=800.0, modules=400)
    sight = make.sight(make.timeline(40.0, model=model, lines=(line,)))
    small = replace(sight.timeline.steps, samples=[4] * 205)
    sight = make.sight(replace(sight.timeline, steps=small, loaders=(make.loader(batch_size=4),)))
    found = look(Cause.LAUNCH_BOUND, sight)
    assert found.where == (line.place if named is Cause.LAUNCH_BOUND else sight.timeline.model.place)
    assert (look(Cause.BATCH_TOO_SMALL, sight) is None) == (named is Cause.LAUNCH_BOUND)


def test_a_loop_over_a_few_layers_is_no_reason_to_keep_a_small_batch(make):
    model = make.model(calls_per_step=40.0, modules=40, operators_per_step=800.0)
    timeline = make.timeline(40.0, model=model, lines=(LOOPING,), loaders=(make.loader(batch_size=4),))
    small = replace(timeline, steps=replace(timeline.steps, samples=[4] * 205))
    assert look(Cause.BATCH_TOO_SMALL, make.sight(small)) is not None


def test_accumulated_batches_are_counted_by_the_pass(make, cases):
    sight = cases[Cause.BATCH_TOO_SMALL][0](make, 40.0)
    steps = replace(sight.timeline.steps, samples=[32] * 205, micro=[8] * 205)
    found = look(Cause.BATCH_TOO_SMALL, make.sight(replace(sight.timeline, steps=steps)))
    assert found.evidence["batch"] == 4


def test_an_idle_gpu_under_a_busy_host_is_launch_bound(make):
    timeline = make.timeline(40.0, model=make.model(devices=("cuda:0",)), gauges=make.gauges(gpu_busy=0.4))
    found = look(Cause.LAUNCH_BOUND, make.sight(timeline, host=make.gpu_host()))
    assert found.share == pytest.approx(0.95 - 0.4, abs=0.02)
    assert found.evidence["gpu_share"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        (Ops(matmul=0.9, low_precision=0.1), "full-precision"),
        (Ops(matmul=0.9, low_precision=0.9, misaligned=0.8), "sizes"),
    ],
)
def test_operators_say_why_mixed_precision_does_nothing(make, ops, reason):
    timeline = make.timeline(
        model=make.model(devices=("cuda:0",)), runtime=Runtime(2, autocast="torch.float16"), ops=ops
    )
    found = look(Cause.PRECISION_INEFFECTIVE, make.sight(timeline, host=make.gpu_host()))
    assert found.evidence["reason"] == reason
    assert found.evidence["precision"] == "float16"


@pytest.mark.parametrize(
    ("host", "hardware"), [({"cpu_amx": True, "cpu_bf16": True}, "AMX"), ({"cpu_bf16": True}, "AVX512-BF16")]
)
def test_a_cpu_with_units_for_bf16_has_precision_to_use(make, host, hardware):
    found = look(Cause.PRECISION_UNUSED, make.sight(make.timeline(), host=make.host(**host)))
    assert (found.evidence["hardware"], found.evidence["precision"]) == (hardware, "bf16")


def test_a_table_in_float64_does_not_hide_that_the_rest_is_in_float32(make):
    """A frozen codebook of doubles beside a float32 encoder, and for comparison one that is half already."""
    host = make.host(cpu_bf16=True)

    def found(*dtypes):
        return look(
            Cause.PRECISION_UNUSED, make.sight(make.timeline(model=make.model(dtypes=dtypes)), host=host)
        )

    assert found("float32", "float64") is not None
    assert found("float64") is None
    assert found("bfloat16", "float32") is None


def test_a_compiler_that_gave_up_is_reported(make):
    warmup = Warmup(2.0, 5, 0.2, compile_s=0.01, compiles=9)
    timeline = make.timeline(400.0, warmup=warmup, runtime=Runtime(2, recompiles=("a", "b") * 4 + ("b",)))
    found = look(Cause.RECOMPILING, make.sight(timeline))
    assert (found.severity, found.evidence["reason"]) == (Severity.NOTE, "b")


def test_an_optimizer_that_is_fused_weighs_as_much_as_its_tensors(make):
    shares = {Stage.OPTIMIZER: 0.4}
    fused, loose = (
        OptimizerFacts("Adam", 90, 10, fused=True, steps=1),
        OptimizerFacts("Adam", 10, 10, steps=1),
    )
    both = look(Cause.OPTIMIZER_UNFUSED, make.sight(make.timeline(shares=shares, optimizers=(fused, loose))))
    alone = look(Cause.OPTIMIZER_UNFUSED, make.sight(make.timeline(shares=shares, optimizers=(loose,))))
    assert both.share == pytest.approx(alone.share / 10)


def test_foreach_is_taken_by_itself_on_a_gpu(make):
    on_gpu = OptimizerFacts("AdamW", 100, 10, steps=1, device="cuda:0")
    found = look(
        Cause.OPTIMIZER_UNFUSED,
        make.sight(make.timeline(shares={Stage.OPTIMIZER: 0.4}, optimizers=(on_gpu,))),
    )
    assert found.evidence["mode"] == "foreach"


@pytest.mark.parametrize(
    ("free", "severity"), [(1, Severity.CRITICAL), (20, Severity.WARNING), (4000, Severity.NOTE)]
)
def test_growth_is_as_bad_as_the_end_is_near(make, free, severity):
    """One GiB a second; `free` thousand GiB are an hour and more."""
    gauges = make.gauges(40, seconds=8.0, rss=[(4 + index // 5) * GIB for index in range(40)])
    late = tuple(replace(gauge, t=gauge.t + 10**9) for gauge in gauges)
    host = make.host(ram_free_bytes=free * 1000 * GIB, ram_bytes=10**7 * GIB)
    found = look(Cause.MEMORY_GROWTH, make.sight(make.timeline(40.0, gauges=late), host=host))
    assert found.severity is severity
    assert found.evidence["mib_per_step"] == pytest.approx(1024 * 0.04, rel=0.1)


def test_growth_says_what_is_kept(make):
    gauges = make.gauges(
        40,
        rss=[(40 + index) * GIB // 10 for index in range(40)],
        graph_tensors=[100 + 5 * index for index in range(40)],
    )
    late = tuple(replace(gauge, t=gauge.t + 10**9) for gauge in gauges)
    found = look(Cause.MEMORY_GROWTH, make.sight(make.timeline(40.0, gauges=late)))
    assert found.evidence["kept"] == "autograd graphs"


def test_memory_of_the_gpu_grows_too(make):
    gauges = make.gauges(40, cuda_allocated=[(40 + index) * GIB // 10 for index in range(40)])
    late = tuple(replace(gauge, t=gauge.t + 10**9) for gauge in gauges)
    found = look(Cause.MEMORY_GROWTH, make.sight(make.timeline(40.0, gauges=late), host=make.gpu_host()))
    assert found.evidence["memory"] == "gpu"


def test_queues_of_large_batches_fill_shared_memory(make):
    loader = make.loader(num_workers=8, prefetch_factor=4, batch_bytes=100 * 2**20)
    host = make.host(shm_bytes=3 * GIB, shm_free_bytes=3 * GIB)
    found = look(Cause.MEMORY_HEADROOM, make.sight(make.timeline(loaders=(loader,)), host=host))
    assert (found.evidence["memory"], found.severity) == ("shm", Severity.CRITICAL)


@pytest.mark.parametrize(("count", "severity"), [(1, Severity.NOTE), (2, Severity.CRITICAL)])
def test_a_single_validation_says_nothing_of_how_often_it_comes(make, count, severity):
    """Of a window of 200 steps, half of whose time is validation."""
    column = [8000.0 / count if index in (50, 150)[:count] else 0.0 for index in range(200)]
    cadence = Cadence(Stage.VALIDATE, count, 8.0, 100.0 if count > 1 else None)
    timeline = make.timeline(40.0, columns={Stage.VALIDATE: column}, cadences=(cadence,))
    found = look(Cause.VALIDATION_HEAVY, make.sight(timeline))
    assert (found.severity, "every" in found.evidence) == (severity, count > 1)


def test_collections_that_are_more_frequent_than_steps_have_no_cadence(make):
    timeline = make.timeline(40.0, pauses=Pauses(1000, 4.0, 0.01))
    assert "every" not in look(Cause.GC_PAUSES, make.sight(timeline)).evidence


def test_slow_items_of_workers_are_placed_in_the_workers(make):
    column = [400.0 if index % 50 == 7 else 0.0 for index in range(200)]
    lines = (
        HotLine(SourceLine("train.py", 14), "_BaseDataLoaderIter.__next__", Stage.DATA, 1.0, 90),
        HotLine(SourceLine("data.py", 9, "Items.__getitem__"), "", Stage.DATA, 1.0, 90, "worker"),
    )
    loaders = (make.loader(num_workers=2),)
    timeline = make.timeline(40.0, columns={Stage.DATA: column}, lines=lines, loaders=loaders)
    found = look(Cause.STEP_OUTLIERS, make.sight(timeline))
    assert (found.evidence["stage"], found.where) == ("data", lines[1].place)
