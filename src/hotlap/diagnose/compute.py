"""What forward and backward consist of: arithmetic, and the fixed cost of starting each operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotlap.cost.reading import disturbed
from hotlap.facts.host import Host
from hotlap.facts.timeline import Gauge, Model, Stage, Timeline
from hotlap.ports.rule import Sight
from hotlap.stats.quantile import median, quantile
from hotlap.units import NS_PER_MS

# Forward and backward of a leaf module that has next to nothing to compute: Python, dispatch, autograd. Used
# where it was not measured on the spot: layers of 8 to 16 units took 20 to 40 us on a two-core machine, whatever
# the batch; the lower end is used, so as not to overstate.
DISPATCH_US = 25.0
OFTEN = 4.0  # calls of one module in a step: above this, Python loops over time steps or over layers
SMALL_BATCH = 32  # samples in one pass: vector units and threads of any processor want more rows than this


@dataclass(frozen=True)
class Dispatch:
    """`fixed` is the part of forward and backward that does not depend on the batch."""

    calls: float
    call_us: float
    fixed: float


def compute_share(sight: Sight) -> float:
    """Forward and backward, as a share of the step."""
    return sight.summary.share(Stage.FORWARD, Stage.BACKWARD)


def dispatch_of(sight: Sight) -> Dispatch | None:
    """None where the calls were not counted, or where the compiler has fused them."""
    model = sight.timeline.model
    compute_ms = _undisturbed_ms(sight)
    if model is None or model.compiled or not model.calls_per_step or compute_ms <= 0:
        return None
    call_us = compute_ms * 1e3 / model.calls_per_step
    return Dispatch(model.calls_per_step, call_us, min(1.0, _starting_us(sight, model) / compute_ms / 1e3))


def _starting_us(sight: Sight, model: Model) -> float:
    """What the operators of a step would take if they had nothing to compute."""
    each = sight.timeline.runtime.operator_us
    if each is not None and model.operators_per_step:
        return each * model.operators_per_step
    return DISPATCH_US * (model.calls_per_step or 0.0)


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


def loops(model: Model) -> bool:
    """Whether modules are called again and again within one step."""
    return bool(model.calls_per_step) and (model.calls_per_step or 0.0) > OFTEN * max(1, model.modules)


def samples_per_pass(timeline: Timeline) -> float | None:
    """Median samples that go through the model at once; None where they were not counted."""
    steps, first = timeline.steps, timeline.steady_from
    passes = zip(steps.samples[first:], steps.micro[first:], strict=True)
    seen = [samples / max(1, micro) for samples, micro in passes if samples > 0]
    return median(seen) if seen else None


def on_cuda(timeline: Timeline) -> bool:
    return timeline.model is not None and any("cuda" in device for device in timeline.model.devices)


def gpu_busy(gauges: Sequence[Gauge]) -> float | None:
    """Median busy share of the job's GPUs; None where no driver was asked."""
    seen = [gauge.gpu_busy for gauge in gauges if gauge.gpu_busy is not None]
    return median(seen) if seen else None


def dtypes(model: Model) -> tuple[str, ...]:
    """`torch.float32` and `float32` are the same word."""
    return tuple(dtype.removeprefix("torch.") for dtype in model.dtypes)


def accelerates(host: Host, timeline: Timeline) -> str:
    """The hardware for low precision that the model runs on: a GPU's name, `amx`, `bf16`, or nothing."""
    if on_cuda(timeline):
        return next((gpu.name for gpu in host.gpus if gpu.tensor_cores), "")
    if host.cpu_amx:
        return "AMX"
    return "AVX512-BF16" if host.cpu_bf16 else ""
