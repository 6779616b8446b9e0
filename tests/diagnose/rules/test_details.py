"""What single rules promise beyond firing and staying silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.diagnose.run import all_rules
from hotlap.facts.diagnosis import Cause, Severity
from hotlap.facts.timeline import Ops, Optimizer, Pauses, Runtime, Stage, SyncPoint, Warmup

GIB = 2**30
RULES = all_rules()


def look(cause, sight):
    return RULES[cause].examine(sight)


def test_a_line_that_reads_element_by_element_is_blamed_as_a_whole(make):
    line = make.line(Stage.OTHER, 0.9, file="train.py")
    point = SyncPoint(line.place, "Tensor.item", 64 * 205, 0.001)
    found = look(
        Cause.HOST_SYNC, make.sight(make.timeline(40.0, {Stage.OTHER: 0.3}, lines=(line,), syncs=(point,)))
    )
    assert found.share == pytest.approx(0.27, rel=0.01)
    assert found.evidence["syncs"] == pytest.approx(64)
    assert found.where == line.place


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


def test_batches_of_unlike_sizes_measure_the_fixed_part(make):
    """Every tenth batch is a quarter of the size and takes 70 % of the time: 60 % is fixed."""
    timeline = make.timeline(40.0, model=None)
    short = {index for index in range(205) if index % 10 == 4}
    stages = {
        stage: [int(time * 0.7) if index in short else time for index, time in enumerate(column)]
        for stage, column in timeline.steps.stages.items()
    }
    samples = [128 if index in short else 512 for index in range(205)]
    lengths = {"tokens": [60 * each for each in samples], "padded": [4 * each for each in samples]}
    for seen in ({"tokens": [0] * 205, "padded": [0] * 205}, lengths):
        steps = replace(timeline.steps, samples=samples, stages=stages, **seen)
        found = look(Cause.BATCH_TOO_SMALL, make.sight(replace(timeline, steps=steps)))
        assert found.evidence["batch"] == 512
        assert found.evidence["fixed_share"] == pytest.approx(0.6 * 0.95 + 0.05, abs=0.05)


def test_batches_of_as_many_positions_say_nothing_of_the_fixed_part(make):
    """Two long sequences or forty short ones: both take as long, and that is no fixed part."""
    timeline = make.timeline(40.0, model=None)
    samples = [2 if index % 3 else 40 for index in range(205)]
    steps = replace(timeline.steps, samples=samples, tokens=[4000] * 205, padded=[100] * 205)
    assert look(Cause.BATCH_TOO_SMALL, make.sight(replace(timeline, steps=steps))) is None


@pytest.mark.parametrize("fixed", [0.5, 0.1])
def test_sequences_of_unlike_lengths_measure_the_fixed_part(make, fixed):
    """All batches hold two of them; the time grows with the positions, padding among them, from `fixed` on."""
    timeline = make.timeline(40.0, model=None)
    positions = [100 + 300 * (index * 7 % 20) // 20 for index in range(205)]
    usual = sum(positions) / len(positions)
    stages = {
        stage: [
            int(time * (fixed + (1 - fixed) * each / usual))
            for time, each in zip(column, positions, strict=True)
        ]
        for stage, column in timeline.steps.stages.items()
    }
    tokens = [each * 3 // 4 for each in positions]
    padded = [each - real for each, real in zip(positions, tokens, strict=True)]
    steps = replace(timeline.steps, samples=[2] * 205, tokens=tokens, padded=padded, stages=stages)
    found = look(Cause.BATCH_TOO_SMALL, make.sight(replace(timeline, steps=steps)))
    if fixed < 0.3:
        assert found is None
    else:
        assert found.evidence["fixed_share"] == pytest.approx(fixed * 0.95 + 0.05, abs=0.05)


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

    assert found("float32", "float64").share == pytest.approx(found("float32").share / 2)
    assert found("float64") is None
    assert found("bfloat16", "float32") is None


def test_an_uncompiled_model_on_a_gpu_is_a_note_until_operators_are_seen(make):
    timeline = make.timeline(model=make.model(devices=("cuda:0",)))
    host = make.gpu_host()
    assert look(Cause.UNCOMPILED, make.sight(timeline, host=host)).severity is Severity.NOTE
    seen = replace(timeline, ops=Ops(pointwise=0.7))
    assert look(Cause.UNCOMPILED, make.sight(seen, host=host)).severity is Severity.CRITICAL


def test_a_compiler_that_gave_up_is_a_warning(make):
    warmup = Warmup(2.0, 5, 0.2, compile_s=0.01, compiles=9)
    timeline = make.timeline(400.0, warmup=warmup, runtime=Runtime(2, recompiles=("a", "b") * 4 + ("b",)))
    found = look(Cause.RECOMPILING, make.sight(timeline))
    assert (found.severity, found.evidence["reason"]) == (Severity.WARNING, "b")


def test_an_optimizer_that_is_fused_weighs_as_much_as_its_tensors(make):
    shares = {Stage.OPTIMIZER: 0.4}
    fused, loose = Optimizer("Adam", 90, 10, fused=True, steps=1), Optimizer("Adam", 10, 10, steps=1)
    both = look(Cause.OPTIMIZER_UNFUSED, make.sight(make.timeline(shares=shares, optimizers=(fused, loose))))
    alone = look(Cause.OPTIMIZER_UNFUSED, make.sight(make.timeline(shares=shares, optimizers=(loose,))))
    assert both.share == pytest.approx(alone.share / 10)


def test_foreach_is_taken_by_itself_on_a_gpu(make):
    on_gpu = Optimizer("AdamW", 100, 10, steps=1, device="cuda:0")
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


def test_a_stage_without_a_counted_cadence_is_counted_by_its_steps(make):
    column = [80.0 if index % 10 == 9 else 0.0 for index in range(200)]
    found = look(Cause.CHECKPOINT_HEAVY, make.sight(make.timeline(40.0, columns={Stage.CHECKPOINT: column})))
    assert (found.evidence["count"], found.evidence["every"]) == (20, pytest.approx(10.0))
    assert found.evidence["each_ms"] == pytest.approx(80.0)


def test_only_the_first_epoch_has_to_be_paid(make, cases):
    sight = cases[Cause.REPEATED_WORK][0](make, 40.0)
    loader = sight.timeline.loaders[0]
    shares = [
        look(
            Cause.REPEATED_WORK,
            make.sight(replace(sight.timeline, loaders=(replace(loader, epochs=epochs),))),
        ).share
        for epochs in (1, 2, 4, 100)
    ]
    assert shares == [pytest.approx(part * 0.5, rel=0.03) for part in (0.5, 0.5, 0.75, 0.99)]
