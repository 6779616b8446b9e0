"""What forward and backward consist of: arithmetic, and the fixed cost of starting each operator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hotlap.cost.reading import disturbed
from hotlap.facts.host import Host
from hotlap.facts.summary import Summary
from hotlap.facts.timeline import HotLine, ModelFacts, Stage, SyncPoint, Timeline
from hotlap.ports.rule import Sight
from hotlap.stats.robust import median, quantile
from hotlap.units import NS_PER_MS

OFTEN = 4.0  # calls of one module in a step: above this, Python loops over time steps or over layers
MANY = 50  # calls in a step
MOSTLY = 0.5  # of the samples of the forward pass
SMALL_BATCH = 32  # samples in one pass: vector units and threads of any processor want more rows than this


@dataclass(frozen=True)
class Dispatch:
    """`fixed` is the part of forward and backward that starts operators; 0 where the probe has not measured one."""

    calls: float
    call_us: float
    fixed: float


def compute_share(sight: Sight) -> float:
    """Forward and backward, as a share of the step."""
    return sight.summary.share(Stage.FORWARD, Stage.BACKWARD)


def dispatch_of(sight: Sight) -> Dispatch | None:
    """None where the calls were not counted, or where the compiler has fused them."""
    model, each_us = sight.timeline.model, sight.timeline.runtime.operator_us
    compute_us = _undisturbed_ms(sight) * 1e3
    if model is None or model.compiled or not model.calls_per_step or compute_us <= 0:
        return None
    starting_us = (each_us or 0.0) * (model.operators_per_step or 0.0)
    return Dispatch(
        model.calls_per_step, compute_us / model.calls_per_step, min(1.0, starting_us / compute_us)
    )


def _undisturbed_ms(sight: Sight) -> float:
    """Forward and backward of a step; of the quickest tenth where others on the machine slow down the rest."""
    timeline, both = sight.timeline, (Stage.FORWARD, Stage.BACKWARD)
    if not disturbed(timeline, sight.host) or not sight.summary.n:
        return sight.summary.ms(*both)
    columns = [
        timeline.steps.stages[stage][timeline.steady_from :]
        for stage in both
        if stage in timeline.steps.stages
    ]
    return quantile([sum(times) for times in zip(*columns, strict=True)], 0.1) / NS_PER_MS if columns else 0.0


def loops(timeline: Timeline) -> bool:
    """Whether modules are called again and again within one step, or a loop of the model's own over many of them holds
    its time: a loop over a few layers is a stack of layers."""
    model = timeline.model
    if model is None or not model.calls_per_step:
        return False
    again = model.calls_per_step > OFTEN * max(1, model.modules)
    return again or (model.calls_per_step >= MANY and loop_line(timeline) is not None)


def loop_line(timeline: Timeline) -> HotLine | None:
    """The hottest line in a loop of the model's own, where such lines hold most of the forward pass."""
    here = [each for each in timeline.lines if each.stage is Stage.FORWARD and each.role == "main"]
    inside = [each for each in here if each.looped and of_a_model(each)]
    held = sum(each.share for each in inside)
    return max(inside, key=lambda each: each.share) if held >= MOSTLY else None


def of_a_model(line: HotLine) -> bool:
    """Whether it is a line of a forward pass."""
    return "forward" in line.place.function.split(".")


def samples_per_pass(timeline: Timeline) -> float | None:
    """Median samples that go through the model at once; None where they were not counted."""
    steps, first = timeline.steps, timeline.steady_from
    passes = zip(steps.samples[first:], steps.micro[first:], strict=True)
    seen = [samples / max(1, micro) for samples, micro in passes if samples > 0]
    return median(seen) if seen else None


def device_busy(timeline: Timeline, *, breaks: bool = False) -> float | None:
    """Share of the steady steps in which the device had work: by its operators' trace, by the driver, or by events at
    the borders of parts, which do not see the `breaks` within a part. None where nothing tells it."""
    if timeline.ops is not None and timeline.ops.device_idle is not None:
        return 1.0 - timeline.ops.device_idle
    seen = [gauge.gpu_busy for gauge in timeline.gauges if gauge.gpu_busy is not None]
    if seen:
        return median(seen)
    return timeline.device.busy if timeline.device is not None and not breaks else None


def device_memory(timeline: Timeline, host: Host) -> int | None:
    """Bytes of the device that the job trains on: as it says itself, else as the driver says."""
    if timeline.runtime.accelerator is not None and timeline.runtime.accelerator.memory_bytes:
        return timeline.runtime.accelerator.memory_bytes
    return host.gpus[0].memory_bytes if host.gpus else None


def dtypes(model: ModelFacts) -> tuple[str, ...]:
    """`torch.float32` and `float32` are the same word."""
    return tuple(dtype.removeprefix("torch.") for dtype in model.dtypes)


def accelerates(host: Host, timeline: Timeline) -> str:
    """The hardware for low precision that the model runs on: a GPU's name, `amx`, `bf16`, or nothing."""
    if timeline.on_accelerator:
        return next((gpu.name for gpu in host.gpus if gpu.tensor_cores), "")
    if host.cpu_amx:
        return "AMX"
    return "AVX512-BF16" if host.cpu_bf16 else ""


# Synchronisations of a step: the time inside the calls, and lines that read tensors element by element.


APART = frozenset({Stage.VALIDATE, Stage.CHECKPOINT})  # to read values is what these stages are for
LOOPED = 8.0  # reads a step on one line: a loop over elements
SLOWEST_READ_MS = 0.2  # of the line's time for each read: a line that takes longer does something else


def in_training(timeline: Timeline) -> list[SyncPoint]:
    """The synchronisations that a training step makes."""
    return [point for point in timeline.syncs if point.stage not in APART and point.count > 0]


def steps_run(timeline: Timeline) -> int:
    """All steps: those thinned out of the record synchronised too."""
    return max(1, len(timeline.steps) + timeline.probe.dropped_steps)


def element_lines(timeline: Timeline, summary: Summary) -> dict[HotLine, float]:
    """Lines that read one element after the other, with the reads a step. Input is left to the causes of input."""
    reads: defaultdict[tuple[str, int], float] = defaultdict(float)
    for point in in_training(timeline):
        reads[point.place.file, point.place.line] += point.count / steps_run(timeline)
    found = {}
    for line in timeline.lines:
        here = reads.get((line.place.file, line.place.line), 0.0)
        spent_ms = line.share * summary.ms(line.stage)
        inside = line.role == "main" and line.stage not in (*APART, Stage.DATA)
        if inside and here >= LOOPED and spent_ms <= SLOWEST_READ_MS * here:
            found[line] = here
    return found
