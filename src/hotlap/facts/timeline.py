"""The steps that a probe saw, each as exposed time per stage, with what else was seen beside them.

Times are integers in nanoseconds on the machine's monotonic clock, counted from the moment the probe
attached. None means: not measured. Absent is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Stage(StrEnum):
    """A named part of a step."""

    DATA = "data"
    TRANSFER = "transfer"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    LOG = "log"
    VALIDATE = "validate"
    CHECKPOINT = "checkpoint"
    OTHER = "other"


class Ending(StrEnum):
    """How the job came to its end."""

    WINDOW = "window"  # hotlap had seen enough steps and ended it
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    CRASHED = "crashed"
    KILLED = "killed"


@dataclass(frozen=True)
class SourceLine:
    """A line of source; `code` is its text when it was seen."""

    file: str
    line: int
    function: str = ""
    code: str = ""


@dataclass(frozen=True)
class Steps:
    """One column per quantity, one entry per step, oldest first.

    `wall` runs from the end of the step before to the end of this one, so walls add up to the run; `stages`
    holds the exposed time of each stage and its values add up to `wall`. `tokens` are the positions of a
    batch that hold data, `padded` those that only fill it up; these two and `samples` are -1 where they
    were not seen. `micro` counts backward passes: more than one a step is gradient accumulation.
    """

    start: Sequence[int]
    wall: Sequence[int]
    stages: Mapping[Stage, Sequence[int]]
    samples: Sequence[int]
    tokens: Sequence[int]
    padded: Sequence[int]
    micro: Sequence[int]

    def __len__(self) -> int:
        return len(self.wall)


@dataclass(frozen=True)
class Warmup:
    """What came before the steady state. `compile_s` is spent inside the first steps, not on top of them."""

    startup_s: float  # process start to the first event of training (imports, set-up, reading data)
    steps: int  # steps that were not yet steady
    seconds: float  # wall time of those steps
    compile_s: float = 0.0
    compiles: int = 0


@dataclass(frozen=True)
class WorkerFacts:
    """One DataLoader worker (`worker` -1: the main process, where num_workers is 0). Seconds, summed.

    `fetch_s` is `__getitem__`, `cpu_s` the CPU time inside it, `queued_s` the time in it that it was ready
    to run but had no core, `wait_s` the time between batches: handing over, and waiting for the next
    request. `startups` counts how often it was started, `startup_s` what that took in all.
    """

    loader: int
    worker: int
    batches: int
    items: int
    fetch_s: float
    cpu_s: float
    collate_s: float
    wait_s: float
    startups: int = 1
    startup_s: float = 0.0
    queued_s: float | None = None

    @property
    def busy(self) -> float:
        """Share of its life that it prepared batches."""
        work = self.fetch_s + self.collate_s
        return work / (work + self.wait_s) if work else 0.0


@dataclass(frozen=True)
class DatasetFacts:
    """What a loader reads. `deterministic` is proved by fetching items twice, None where that was not tried."""

    kind: str  # class name
    length: int | None
    place: SourceLine | None = None
    item_bytes: int | None = None
    deterministic: bool | None = None
    draws_random: bool | None = None


@dataclass(frozen=True)
class LoaderFacts:
    """One DataLoader as the script built it, and what was seen of it."""

    dataset: DatasetFacts
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    shuffle: bool | None = None
    drop_last: bool = False
    start_method: str = "fork"
    iterable: bool = False
    place: SourceLine | None = None
    epochs: int = 0
    batches: int = 0
    wait_s: float = 0.0  # of the consumer, in all
    startup_s: float = 0.0  # of starting its worker processes and ending them again, in all
    batch_bytes: int | None = None
    worker_threads: int | None = None
    training: bool = True  # False: its batches only went to validation
    collate: str = ""  # name of its collate_fn


@dataclass(frozen=True)
class HotLine:
    """A line that held time, as the stack sampler saw it: `callee` is what it called, `inner` how deep that led.

    `values` are the types and shapes of what its names stood for, in words that `ports.rewrite.Value` reads. `looped`:
    it is in the body of a loop of its function.
    """

    place: SourceLine
    callee: str
    stage: Stage
    share: float  # of that stage's samples in that role
    samples: int
    role: str = "main"  # main | worker
    inner: str = ""
    values: Mapping[str, str] = field(default_factory=dict, hash=False)
    looped: bool = False


@dataclass(frozen=True)
class SyncPoint:
    """A line where the host waits for the device (`.item()`, `.cpu()`, `bool(t)`, printing a tensor)."""

    place: SourceLine
    call: str
    count: int
    seconds: float
    stage: Stage = Stage.OTHER


@dataclass(frozen=True)
class Cadence:
    """An occasional stage: how often it came, what each occurrence took, and after how many steps on average."""

    stage: Stage
    count: int
    seconds: float
    every_steps: float | None
    place: SourceLine | None = None


@dataclass(frozen=True)
class OptimizerFacts:
    """An optimizer as the script built it."""

    kind: str
    parameters: int  # tensors
    elements: int
    fused: bool = False
    foreach: bool | None = None
    steps: int = 0
    device: str = "cpu"
    place: SourceLine | None = None


@dataclass(frozen=True)
class ModelFacts:
    """The root modules that the script called."""

    kind: str
    parameters: int
    modules: int
    calls_per_step: float | None  # calls of leaf modules in one step
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    compiled: bool = False
    place: SourceLine | None = None
    operators_per_step: float | None = None  # of the graph that backward walks
    frozen_parts: int = 0  # modules with parameters that train none of them


@dataclass(frozen=True)
class AcceleratorFacts:
    """The device that a process trained on, in torch's words (`cuda`, `xpu`, `mps`, ...) and in its own."""

    kind: str
    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True)
class DeviceTime:
    """Of the steady steps, as shares of their time: what the device was busy for, and how long it was idle while the
    host was in each stage. Shorter breaks within one stage, between two operators, count as busy."""

    busy: float
    idle: Mapping[Stage, float]


@dataclass(frozen=True)
class Runtime:
    """Switches of torch that were on while training."""

    threads: int
    autocast: str | None = None  # dtype, where the root ran under autocast
    grad_scaler: bool = False
    debug: tuple[str, ...] = ()  # detect_anomaly, deterministic, profiler, launch_blocking
    debug_place: SourceLine | None = None  # where the first of them was turned on
    tf32: bool = False
    cudnn_benchmark: bool = False
    recompiles: tuple[str, ...] = ()
    framework: str = "plain"
    backend: str | None = None  # of torch.distributed
    operator_us: float | None = (
        None  # forward and backward of an operator that has next to nothing to compute
    )
    pages: float | None = None  # of memory that the system handed out in a step
    page_us: float | None = None  # what one of them takes at its first touch
    accelerator: AcceleratorFacts | None = None


@dataclass(frozen=True)
class Gauge:
    """One look at the process and the machine: bytes, and CPU shares where 1.0 is one core.

    `rss` is of the training process alone; `tree_rss` adds its descendants and counts shared pages once for
    each of them. `foreign_cpu` is used by others on the cores that the job may use, `stolen` by other
    guests of the hypervisor.
    """

    t: int
    rss: int
    cpu: float
    workers_cpu: float
    foreign_cpu: float
    iowait: float
    cores: tuple[float, ...] = ()
    cuda_allocated: int | None = None
    cuda_reserved: int | None = None
    gpu_busy: float | None = None  # of the job's GPUs, 0 to 1
    tree_rss: int | None = None
    stolen: float | None = None
    gpu_memory: int | None = None  # of the job's own processes, as the driver counts it
    gpu_memory_used: int | None = None  # by all processes on the job's GPUs
    gpu_clock: float | None = None  # of the highest that the GPU can run at, the lowest of the job's GPUs
    gpu_throttle: str | None = (
        None  # why the driver holds one of them back: heat, power, hardware; empty: nothing does
    )
    gpu_others: int | None = None  # processes on them that are not the job's
    gpu_lost: bool = False  # one of them does not answer any more: it fell off the bus
    ram_free: int | None = None  # memory of the machine (or the container) that is still to be had
    graph_tensors: int | None = None  # live tensors that hold on to an autograd graph


@dataclass(frozen=True)
class Pauses:
    """Garbage collections on the training thread in the steady state, and what compiling took there."""

    count: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    compile_s: float = 0.0


@dataclass(frozen=True)
class Operator:
    """One operator with the sizes it met: its own time, as a share of all operators' time, and calls a step."""

    name: str
    shapes: str
    dtype: str
    share: float
    calls: float


@dataclass(frozen=True)
class Products:
    """What matrix products, convolutions, attention and recurrent layers compute in one stage, in one precision.

    All is of one step. Rows differ in stage, precision, and FLOPs for each byte (in powers of two). `bytes` are the
    least that has to be moved: inputs and results.
    """

    stage: Stage
    dtype: str
    flops: float
    bytes: float
    seconds: float  # that these operators took, under torch.profiler


@dataclass(frozen=True)
class Roof:
    """The most that the device can do: FLOP/s by precision, and bytes of its memory a second."""

    flops: Mapping[str, float]
    bandwidth: float | None
    source: str  # measured | given | a datasheet's address


@dataclass(frozen=True)
class Ops:
    """What kinds of operators a step consists of, seen under torch.profiler after the measured window.

    `pointwise` (what a compiler fuses: activations, norms, dropout, arithmetic) and `matmul` (also
    convolutions) are shares of the operators' time; `low_precision` and `misaligned` (a size that is no
    multiple of 8) are shares of the time in `matmul`.
    """

    top: tuple[Operator, ...] = ()
    pointwise: float | None = None
    matmul: float | None = None
    low_precision: float | None = None
    misaligned: float | None = None
    device_idle: float | None = None  # share of the profiled time in which the device had nothing to do
    steps: int | None = None  # that were profiled
    products: tuple[Products, ...] = ()  # of one step
    stage_s: Mapping[Stage, float] = field(default_factory=dict)  # of one step: time in all operators
    moved_bytes: Mapping[Stage, float] = field(
        default_factory=dict
    )  # at least, by operators beside the products
    compiled: bool = False  # parts of it, whose kernels do not say what they compute


@dataclass(frozen=True)
class ProbeCost:
    """What the probe itself cost: calibrated cost of its marks, plus its own thread's CPU time."""

    per_step_s: float
    share: float
    marks_per_step: float
    bytes: int
    dropped_steps: int = 0  # thinned out to stay within the memory budget
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rehearsal:
    """A mean step fed by the script's own items under another number of workers, after the window."""

    workers: int
    step_s: float
    spread: float  # standard error of that mean, as a share of it


@dataclass(frozen=True)
class Timeline:
    """All that was seen of one training process."""

    rank: int
    world: int
    pid: int
    ending: Ending
    steps: Steps
    steady_from: int  # index of the first steady step
    warmup: Warmup
    runtime: Runtime
    probe: ProbeCost
    model: ModelFacts | None = None
    loaders: tuple[LoaderFacts, ...] = ()
    workers: tuple[WorkerFacts, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    lines: tuple[HotLine, ...] = ()
    syncs: tuple[SyncPoint, ...] = ()
    cadences: tuple[Cadence, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    pauses: Pauses = field(default_factory=Pauses)
    epochs: int = 0
    boundary: str = "optimizer"  # what ends a step: optimizer | backward
    inferred: tuple[Stage, ...] = ()  # stages named from gaps between their neighbours
    comm_s: float | None = None  # steady time in collectives on the host's path
    comm_stages: Mapping[Stage, float] = field(default_factory=dict)  # its seconds in each stage
    ops: Ops | None = None
    roof: Roof | None = None
    device: DeviceTime | None = None
    free_input_s: float | None = None  # a step on a batch that costs nothing, measured after the window
    free_input_range_s: tuple[float, ...] = ()  # in which that median lies, at 95 %
    rehearsals: tuple[Rehearsal, ...] = ()  # of other numbers of workers, measured after the window

    @property
    def on_cuda(self) -> bool:
        """Whether the model's parameters are on a GPU that torch knows as CUDA: NVIDIA's, or AMD's by ROCm."""
        return self.model is not None and any("cuda" in device for device in self.model.devices)

    @property
    def on_accelerator(self) -> bool:
        """Whether the model's parameters are on anything but the CPU."""
        return self.model is not None and any(not each.startswith("cpu") for each in self.model.devices)

    @property
    def steady_steps(self) -> int:
        return max(0, len(self.steps) - self.steady_from)
