"""For every cause: a timeline that triggers it, at a given size of step, and near misses that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hotlap.facts.diagnosis import Cause
from hotlap.facts.timeline import (
    Cadence,
    HotLine,
    Operator,
    Ops,
    OptimizerFacts,
    Pauses,
    Runtime,
    SourceLine,
    Stage,
    SyncPoint,
    Warmup,
)
from hotlap.ports.rule import Sight

GIB = 2**30
Case = Callable[[Any, float], Sight]
CASES: dict[Cause, tuple[Case, list[Case]]] = {}


def case(cause: Cause, fires: Case, *misses: Case) -> None:
    CASES[cause] = (fires, list(misses))


def fed(**changes: Any) -> Case:
    return lambda make, ms: make.sight(make.fed(ms, **changes))


def plain(host: dict[str, Any] | None = None, **changes: Any) -> Case:
    return lambda make, ms: make.sight(make.timeline(ms, **changes), host=make.host(**(host or {})))


def with_workers(
    count: int, batch: float, data: float, idle: float = 0.05, cpu: float = 1.0, **changes: Any
) -> Case:
    """`batch` is the work of a batch in one worker and `data` the exposed wait, both in steps."""
    loader = {"num_workers": count, "prefetch_factor": 2, **changes.pop("loader", {})}
    host = changes.pop("host", {})

    def build(make: Any, ms: float) -> Sight:
        timeline = make.timeline(
            ms,
            {Stage.DATA: data},
            loaders=(make.loader(**loader),),
            workers=tuple(make.work(batch * ms, cpu, idle=idle, number=each) for each in range(count)),
            **{key: value(make) if callable(value) else value for key, value in changes.items()},
        )
        return make.sight(timeline, host=make.host(**host))

    return build


case(Cause.INPUT_STARVED, plain(shares={Stage.DATA: 0.4}), plain(shares={Stage.DATA: 0.015}))
case(
    Cause.ITEM_CPU_BOUND,
    fed(data=0.6),
    fed(data=0.015),
    fed(data=0.6, cpu=0.2),
    fed(data=0.6, collate=0.8),
    plain(shares={Stage.DATA: 0.6}),
)
case(
    Cause.ITEM_IO_BOUND,
    fed(data=0.6, cpu=0.1),
    fed(data=0.6, cpu=0.8),
    # On a machine without a free core, items wait for one.
    lambda make, ms: make.sight(make.fed(ms, cpu=0.3, gauges=make.gauges(cpu=2.0, foreign_cpu=2.0))),
)
case(Cause.COLLATE_BOUND, fed(data=0.5, collate=0.7), fed(data=0.5, collate=0.2))
case(
    Cause.WORKERS_TOO_FEW,
    lambda make, ms: make.sight(make.fed(ms * 50, data=0.5)),
    lambda make, ms: make.sight(make.fed(ms * 50, data=0.5, loader={"iterable": True})),
    lambda make, ms: make.sight(make.fed(ms * 50, data=0.015)),
    with_workers(16, batch=4.0, data=0.5),
)
case(
    Cause.WORKERS_TOO_MANY,
    with_workers(8, 2.0, 0.3, host={"cores": 2}),
    with_workers(2, 2.0, 0.3, idle=0.0, host={"cores": 2}),
    fed(data=0.5),
)
case(
    Cause.WORKERS_RESTART,
    lambda make, ms: _restarting(make, ms, epochs=10),
    lambda make, ms: _restarting(make, ms, epochs=1),
    lambda make, ms: _restarting(make, ms, epochs=10, persistent_workers=True),
    lambda make, ms: _restarting(make, ms, epochs=10, part=0.01),
)
case(
    Cause.PREFETCH_SHALLOW,
    lambda make, ms: _bursts(make, ms, idle=0.5),
    with_workers(2, 1.0, 0.3, idle=0.5),
)
case(
    Cause.REPEATED_WORK,
    lambda make, ms: _repeating(make, ms),
    lambda make, ms: _repeating(make, ms, deterministic=False),
    lambda make, ms: _repeating(make, ms, deterministic=None),
    lambda make, ms: _repeating(make, ms, item_bytes=10_000_000),
    lambda make, ms: _repeating(make, ms, item_bytes=None),
    lambda make, ms: _repeating(make, ms, data=0.015),
    lambda make, ms: _repeating(make, ms, epochs=2),
)
case(
    Cause.TRANSFER_EXPOSED,
    lambda make, ms: make.sight(make.timeline(ms, {Stage.TRANSFER: 0.2}, loaders=(make.loader(),))),
    plain(shares={Stage.TRANSFER: 0.015}),
)
case(
    Cause.HOST_SYNC,
    lambda make, ms: _syncing(make, ms, 0.2),
    lambda make, ms: _syncing(make, ms, 0.015),
    lambda make, ms: _syncing(make, ms, 0.2, stage=Stage.VALIDATE),
    # On the CPU nothing is in flight that could be waited for.
    lambda make, ms: _syncing(make, ms, 0.2, model=make.model()),
    # A wait for a device that is never idle costs nothing.
    lambda make, ms: _syncing(make, ms, 0.4, gauges=make.gauges(gpu_busy=0.99)),
)
case(
    Cause.ELEMENT_LOOP,
    lambda make, ms: _reading(make, ms),
    lambda make, ms: _reading(make, ms, stage=Stage.VALIDATE),
    lambda make, ms: _reading(make, ms, stage=Stage.DATA),
    lambda make, ms: _reading(make, ms, reads=4),
    # A line that takes a millisecond for each read does something else.
    lambda make, ms: _reading(make, ms, reads=max(8, round(0.18 * ms))) if ms > 50 else _monitored(make, ms),
    lambda make, ms: _monitored(make, ms),
)
case(
    Cause.LAUNCH_BOUND,
    lambda make, ms: make.sight(make.timeline(ms, model=make.model(calls_per_step=ms * 1e3 / 50))),
    lambda make, ms: make.sight(make.timeline(ms, model=make.model(calls_per_step=ms * 1e3 / 500))),
    lambda make, ms: make.sight(make.timeline(ms, model=make.model(calls_per_step=None))),
    lambda make, ms: make.sight(
        make.timeline(ms, model=make.model(calls_per_step=ms * 1e3 / 50, compiled=True))
    ),
    lambda make, ms: _on_gpu(make, ms, gauges=make.gauges(gpu_busy=0.97)),
    lambda make, ms: _on_gpu(make, ms),
)
case(
    Cause.BATCH_TOO_SMALL,
    lambda make, ms: _batches(make, ms, samples=4),
    lambda make, ms: _batches(make, ms, samples=256),
    lambda make, ms: _batches(make, ms, samples=-1),
    lambda make, ms: _batches(make, ms, samples=4, modules=1),
    lambda make, ms: _batches(make, ms, samples=4, ram_free_bytes=4 * GIB),
)
case(
    Cause.UNCOMPILED,
    plain(ops=Ops(pointwise=0.6)),
    plain(shares={Stage.DATA: 0.99}),
    plain(host={"compiler": None}, ops=Ops(pointwise=0.6)),
    lambda make, ms: make.sight(make.timeline(ms, ops=Ops(pointwise=0.6), model=make.model(compiled=True))),
)
case(
    Cause.RECOMPILING,
    lambda make, ms: _compiling(make, ms, ("size mismatch at index 0",) * 3, part=0.3),
    lambda make, ms: _compiling(make, ms, (), part=0.3),
    lambda make, ms: _compiling(make, ms, ("size mismatch at index 0",), part=0.005),
)
case(
    Cause.PRECISION_UNUSED,
    lambda make, ms: _on_gpu(make, ms),
    plain(),
    lambda make, ms: _on_gpu(make, ms, runtime=Runtime(2, autocast="bfloat16")),
    lambda make, ms: make.sight(make.timeline(ms), host=make.gpu_host()),
)
case(
    Cause.PRECISION_INEFFECTIVE,
    plain(runtime=Runtime(2, autocast="bfloat16")),
    plain(),
    plain(host={"cpu_bf16": True}, runtime=Runtime(2, autocast="bfloat16")),
    lambda make, ms: _on_gpu(make, ms, runtime=Runtime(2, autocast="bfloat16")),
    lambda make, ms: _on_gpu(
        make,
        ms,
        runtime=Runtime(2, autocast="bfloat16"),
        ops=Ops(matmul=0.8, low_precision=0.95, misaligned=0.1),
    ),
)
case(
    Cause.OPTIMIZER_UNFUSED,
    plain(shares={Stage.OPTIMIZER: 0.3}, optimizers=(OptimizerFacts("AdamW", 100, 10**6, steps=205),)),
    plain(
        shares={Stage.OPTIMIZER: 0.3},
        optimizers=(OptimizerFacts("AdamW", 100, 10**6, fused=True, steps=205),),
    ),
    plain(shares={Stage.OPTIMIZER: 0.3}, optimizers=(OptimizerFacts("LBFGS", 100, 10**6, steps=205),)),
    plain(shares={Stage.DATA: 0.7}, optimizers=(OptimizerFacts("SGD", 100, 10**6, steps=205),)),
)
case(
    Cause.PADDING_WASTE,
    lambda make, ms: _padded(make, ms, tokens=500, padded=1500),
    lambda make, ms: _padded(make, ms, tokens=1990, padded=10),
    lambda make, ms: _padded(make, ms, tokens=-1, padded=-1),
)
case(
    Cause.FLOAT64_COMPUTE,
    lambda make, ms: make.sight(make.timeline(ms, model=make.model(dtypes=("torch.float64",)))),
    plain(),
    # Integer buffers, such as a counter of batches, are no arithmetic.
    lambda make, ms: make.sight(make.timeline(ms, model=make.model(dtypes=("float32", "int64")))),
)
case(
    Cause.DEBUG_MODE_ON,
    plain(runtime=Runtime(2, debug=("detect_anomaly",))),
    plain(),
    plain(shares={Stage.DATA: 0.98}, runtime=Runtime(2, debug=("detect_anomaly",))),
    plain(runtime=Runtime(2, debug=("launch_blocking",))),  # which says nothing to a model on the CPU
)
for cause, stage in (
    (Cause.LOGGING_HEAVY, Stage.LOG),
    (Cause.VALIDATION_HEAVY, Stage.VALIDATE),
    (Cause.CHECKPOINT_HEAVY, Stage.CHECKPOINT),
):
    case(
        cause,
        lambda make, ms, stage=stage: _now_and_then(make, ms, stage, 0.2),
        lambda make, ms, stage=stage: _now_and_then(make, ms, stage, 0.015),
        lambda make, ms, stage=stage: _now_and_then(make, ms, Stage.DATA, 0.2),
    )
case(
    Cause.MONITORING_HEAVY,
    lambda make, ms: _monitored(make, ms),
    lambda make, ms: _monitored(make, ms, share=0.05),
    # Ranks that wait for each other do not monitor; and behind the call of a trainer is all of the training.
    lambda make, ms: _monitored(make, ms, inner="distributed_c10d.all_gather"),
    lambda make, ms: _monitored(make, ms, code="trainer.fit(net)", runtime=Runtime(1, framework="lightning")),
    # A line that reads one element after the other is the business of element-loop.
    lambda make, ms: _reading(make, ms),
    lambda make, ms: _monitored(make, ms, pauses=Pauses(3, 0.3 * ms * 0.2, 1.0)),
    plain(shares={Stage.OTHER: 0.3}),
)
case(
    Cause.GATHER_HEAVY,
    lambda make, ms: _pooled(make, ms),
    lambda make, ms: _pooled(make, ms, ("order = cells.argsort()", 0.02), ("sums = rows.cumsum(0)", 0.2)),
    lambda make, ms: _pooled(make, ms, ("return self.encoder(rows)", 0.9)),
    lambda make, ms: _pooled(make, ms, samples=4),
    lambda make, ms: _pooled(make, ms, callee="Module._call_impl"),
    lambda make, ms: _pooled(make, ms, stage=Stage.OTHER),
    # On a GPU a line only says where work was queued; and operators that were seen know better than lines.
    lambda make, ms: make.sight(_pooled(make, ms, device="cuda").timeline, host=make.gpu_host()),
    lambda make, ms: _pooled(make, ms, ops=Ops(top=(Operator("aten::addmm", "", "float32", 0.95, 9.0),))),
    plain(),
)
case(
    Cause.GC_PAUSES,
    lambda make, ms: make.sight(make.timeline(ms, pauses=Pauses(40, 0.15 * ms * 0.2, ms / 1e3))),
    lambda make, ms: make.sight(make.timeline(ms, pauses=Pauses(40, 0.01 * ms * 0.2, ms / 1e3))),
    plain(),
)
case(
    Cause.MEMORY_CHURN,
    lambda make, ms: _churning(make, ms, 0.15),
    lambda make, ms: _churning(make, ms, 0.015),
    lambda make, ms: make.sight(make.timeline(ms, runtime=Runtime(1, pages=1000.0 * ms))),
    plain(),
)
case(
    Cause.STEP_OUTLIERS,
    lambda make, ms: _stalls(make, ms, every=50),
    lambda make, ms: _stalls(make, ms, every=5),
    lambda make, ms: _stalls(make, ms, every=50, stage=Stage.CHECKPOINT),
    lambda make, ms: _stalls(make, ms, every=50, length=1.5),
    plain(),
)
case(
    Cause.MEMORY_GROWTH,
    lambda make, ms: _memory(make, ms, [2 * GIB + index * GIB // 10 for index in range(40)]),
    lambda make, ms: _memory(make, ms, [2 * GIB + index * GIB // 10_000 for index in range(40)]),
    lambda make, ms: _memory(make, ms, [2 * GIB + min(index, 18) * GIB // 10 for index in range(40)]),
    # As seen: the allocator of a healthy job, which takes some more at the start.
    lambda make, ms: _memory(
        make, ms, [size * 2**20 for size in (319, 328, 336, 340, 355, 361, 361, 361, 360) for _ in range(4)]
    ),
    lambda make, ms: _memory(make, ms, [2 * GIB + (index % 2) * GIB for index in range(40)]),
    lambda make, ms: _memory(make, ms, [2 * GIB + index * GIB // 10 for index in range(5)]),
    # In the first epoch a dataset may fill a cache of its own.
    lambda make, ms: _memory(
        make, ms, [2 * GIB + index * 2**20 for index in range(40)], loaders=(make.loader(),)
    ),
)
case(
    Cause.MEMORY_HEADROOM,
    lambda make, ms: _memory(make, ms, [2 * GIB] * 20, ram_free=4 * GIB),
    lambda make, ms: _memory(make, ms, [2 * GIB] * 20, ram_free=20 * GIB),
    lambda make, ms: _memory(make, ms, [2 * GIB] * 20),
)
case(
    Cause.STRAGGLER_RANK,
    lambda make, ms: _ranks(make, ms, slow=0.3),
    lambda make, ms: _ranks(make, ms, slow=0.01),
    # The rank that saves for all.
    lambda make, ms: _ranks(make, ms, slow=0.3, stage=Stage.CHECKPOINT),
    plain(),
)
case(
    Cause.COMM_EXPOSED,
    lambda make, ms: _ranks(make, ms, comm=0.25),
    lambda make, ms: _ranks(make, ms, comm=0.01),
    lambda make, ms: _ranks(make, ms, comm=None),
    plain(comm_s=5.0),
)


def _restarting(make: Any, ms: float, epochs: int, part: float = 0.1, **changes: Any) -> Sight:
    loader = make.loader(num_workers=2, epochs=epochs, startup_s=part * ms * 0.2, **changes)
    return make.sight(make.timeline(ms, loaders=(loader,)))


def _bursts(
    make: Any, ms: float, idle: float, long: float = 3.0, epochs: int = 1, batch: float = 1.0
) -> Sight:
    """Every eighth step waits for `long` steps; to make a batch takes a worker `batch` steps."""
    column = [long * ms if index % 8 == 0 else 0.0 for index in range(200)]
    rows = tuple(make.work(batch * ms, idle=idle, number=each) for each in range(2))
    loader = make.loader(num_workers=2, prefetch_factor=2, epochs=epochs)
    return make.sight(make.timeline(ms, columns={Stage.DATA: column}, loaders=(loader,), workers=rows))


def _repeating(make: Any, ms: float, data: float = 0.5, epochs: int = 4, **changes: Any) -> Sight:
    dataset = replace(make.loader().dataset, **{"deterministic": True, **changes})
    return make.sight(make.fed(ms, data, loader={"dataset": dataset, "epochs": epochs}))


def _syncing(make: Any, ms: float, share: float, stage: Stage = Stage.FORWARD, **changes: Any) -> Sight:
    point = SyncPoint(make.place("train.py", 88), "Tensor.item", 2050, share * ms / 1e3 * 205, stage)
    return make.sight(
        make.timeline(ms, syncs=(point,), **{"model": make.model(devices=("cuda:0",)), **changes})
    )


def _reading(make: Any, ms: float, reads: int | None = None, stage: Stage = Stage.OTHER) -> Sight:
    """A line that holds 18 % of the step and reads elements for 5 us each, or so many of them."""
    line = make.line(stage, 0.6, file="monitor.py")
    count = reads if reads is not None else round(0.18 * ms / 0.005)
    point = SyncPoint(line.place, "Tensor.item", count * 205, 1e-6, stage)
    return make.sight(make.timeline(ms, {stage: 0.3}, lines=(line,), syncs=(point,)))


def _on_gpu(make: Any, ms: float, **changes: Any) -> Sight:
    timeline = make.timeline(ms, model=make.model(devices=("cuda:0",)), **changes)
    return make.sight(timeline, host=make.gpu_host())


def _batches(
    make: Any, ms: float, samples: int, call_us: float = 50, modules: int | None = None, **host: Any
) -> Sight:
    calls = ms * 1e3 / call_us
    timeline = make.timeline(ms, model=make.model(calls_per_step=calls, modules=modules or round(calls)))
    steps = replace(timeline.steps, samples=[samples] * len(timeline.steps))
    return make.sight(replace(timeline, steps=steps), host=make.host(**host))


def _compiling(make: Any, ms: float, reasons: tuple[str, ...], part: float) -> Sight:
    seconds = ms * 0.2
    warmup = Warmup(2.0, 5, seconds, compile_s=part * 2 * seconds, compiles=max(1, len(reasons)))
    return make.sight(make.timeline(ms, warmup=warmup, runtime=Runtime(2, recompiles=reasons)))


def _padded(make: Any, ms: float, tokens: int, padded: int) -> Sight:
    timeline = make.timeline(ms)
    count = len(timeline.steps)
    steps = replace(timeline.steps, tokens=[tokens] * count, padded=[padded] * count)
    return make.sight(replace(timeline, steps=steps))


def _churning(make: Any, ms: float, share: float) -> Sight:
    """Pages of two microseconds that take this share of the step."""
    return make.sight(make.timeline(ms, runtime=Runtime(1, pages=share * ms * 1e3 / 2.0, page_us=2.0)))


def _now_and_then(make: Any, ms: float, stage: Stage, share: float) -> Sight:
    """Every tenth step holds ten times the share."""
    column = [share / (1 - share) * 10 * ms if index % 10 == 9 else 0.0 for index in range(200)]
    cadence = Cadence(stage, 20, sum(column) / 1e3, 10.0, make.place("train.py", 99))
    return make.sight(make.timeline(ms, columns={stage: column}, cadences=(cadence,)))


POOLING = (("order = cells.argsort()", 0.15), ("rows = features[order]", 0.2), ("sums = rows.cumsum(0)", 0.3))


def _pooled(
    make: Any,
    ms: float,
    *lines: tuple[str, float],
    samples: int = 50,
    callee: str = "",
    stage: Stage = Stage.FORWARD,
    device: str = "cpu",
    **changes: Any,
) -> Sight:
    """Half of a step is forward; these lines of one function hold so much of it."""
    found = [
        HotLine(SourceLine("splat.py", 110 + number, "Splat.forward", code), callee, stage, share, samples)
        for number, (code, share) in enumerate(lines or POOLING)
    ]
    shares = {Stage.FORWARD: 0.5, Stage.BACKWARD: 0.3}
    timeline = make.timeline(ms, shares=shares, lines=tuple(found), **changes)
    model = replace(timeline.model, devices=(device,)) if timeline.model else None
    return make.sight(replace(timeline, model=model))


def _monitored(
    make: Any, ms: float, share: float = 0.6, inner: str = "", code: str = "", **changes: Any
) -> Sight:
    line = replace(make.line(Stage.OTHER, share, file="monitor.py"), inner=inner)
    line = replace(line, place=replace(line.place, code=code))
    return make.sight(make.timeline(ms, {Stage.OTHER: 0.3}, lines=(line,), **changes))


def _stalls(make: Any, ms: float, every: int, stage: Stage = Stage.DATA, length: float = 40.0) -> Sight:
    column = [length * ms if index % every == 7 else 0.0 for index in range(200)]
    return make.sight(make.timeline(ms, columns={stage: column}))


def _memory(make: Any, ms: float, rss: list[int], ram_free: int | None = None, **changes: Any) -> Sight:
    gauges = make.gauges(len(rss), seconds=max(4.0, ms * 0.2), rss=rss, ram_free=ram_free)
    late = tuple(replace(each, t=each.t + int(6 * ms * 1e6)) for each in gauges)
    return make.sight(make.timeline(ms, gauges=late, **changes))


def _ranks(
    make: Any, ms: float, slow: float = 0.0, comm: float | None = 0.0, stage: Stage = Stage.DATA
) -> Sight:
    """Three ranks; the first loads longer, the others wait for it in collectives."""
    waits = [comm, *([comm + slow] * 2 if comm is not None else [None] * 2)]
    timelines = [
        make.timeline(
            ms,
            {stage: slow if rank == 0 else 0.0},
            rank=rank,
            world=3,
            runtime=Runtime(2, backend="gloo"),
            comm_s=None if wait is None else wait * ms * 0.2,
        )
        for rank, wait in enumerate(waits)
    ]
    return make.sight(*timelines)


@pytest.fixture(scope="session")
def cases() -> dict[Cause, tuple[Case, list[Case]]]:
    return CASES
