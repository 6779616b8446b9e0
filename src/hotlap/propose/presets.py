"""Starting plans from the facts of a host, and of the job where a profile of it is stored.

A preset says only what its facts carry: every line has its reason, and what changes the numbers is left out
unless it is allowed by name. The host's rules are folklore made careful; a line from a profile comes with the gain
that an experiment measured on the job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hotlap.facts.diagnosis import Diagnosis, Severity
from hotlap.facts.host import Gpu, Host
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import LoaderFacts, Timeline
from hotlap.ports.knob import UNCHANGED, Knob, Numerics
from hotlap.ports.values import Choice, Flag, Share, Values, Whole
from hotlap.units import share, size

_PAYS = 0.03
"""A measured gain below this is within what a busy machine makes of it: not a line of a preset."""


@dataclass(frozen=True)
class Proposal:
    """A preset's plan, and the lines that it would have with more allowed: knob to numerics."""

    plan: Plan
    left_out: Mapping[str, Numerics]


def balanced(ground: Ground) -> Iterator[Line]:
    """Saves what costs nothing: neither memory to speak of, nor a change of the schedule."""
    yield from workers(ground)
    yield from transfer(ground)
    yield from free_of_cost(ground)
    yield from precision(ground)
    yield from fused(ground)
    yield from _diagnosed(ground)


def speed(ground: Ground) -> Iterator[Line]:
    """Also what takes memory, or minutes of compiling, to save time later."""
    yield from workers(ground, generous=True)
    yield from transfer(ground)
    yield from free_of_cost(ground)
    yield from precision(ground)
    yield from fused(ground)
    yield from compiled(ground)
    yield from layout(ground)
    yield from _diagnosed(ground)


def memory(ground: Ground) -> Iterator[Line]:
    """Saves memory first, at the price of some time."""
    yield from workers(ground, spare=True)
    yield from free_of_cost(ground)
    yield from precision(ground)
    yield from recomputed(ground)


def debug(ground: Ground) -> Iterator[Line]:
    """For finding a mistake: everything in one process, often told."""
    yield "num-workers", 0, "a fault in an item shows the script's own stack, and breakpoints work"
    if ground.frameworks:
        yield "log-every", 1, "every step is told"


PRESETS: Mapping[str, Callable[[Ground], Iterator[Line]]] = {
    "balanced": balanced,
    "speed": speed,
    "memory": memory,
    "debug": debug,
}


def propose(
    preset: str,
    host: Host,
    numerics: Mapping[str, Numerics],
    allowed: Collection[Numerics] = (),
    timeline: Timeline | None = None,
    diagnosis: Diagnosis | None = None,
) -> Proposal:
    """The preset on this ground. `numerics` are the knobs there are, by id; the later line on a knob counts."""
    settings: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    left_out: dict[str, Numerics] = {}
    ground = Ground(host, timeline, diagnosis)
    for knob, setting, reason in PRESETS[preset](ground):
        here = Numerics.STATISTICAL if knob == "num-workers" and ground.draws else numerics.get(knob)
        if here is None:
            continue
        if here in UNCHANGED or here in allowed:
            settings[knob], reasons[knob] = setting, reason
        else:
            left_out[knob] = here
    return Proposal(Plan(settings, None, reasons), left_out)


def _diagnosed(ground: Ground) -> Iterator[Line]:
    """The best fix of each finding: what was measured on the job outweighs what its host suggests."""
    taken: set[str] = set()
    for finding in ground.diagnosis.findings if ground.diagnosis else ():
        if finding.severity is Severity.NOTE or not finding.fixes:
            continue
        fix = finding.fixes[0]
        pays = fix.measured_gain is not None and fix.measured_gain >= _PAYS
        if pays and fix.knob not in taken:
            taken.add(fix.knob)
            gain = f"{share(fix.measured_gain or 0.0)} more throughput measured"
            yield fix.knob, fix.setting, f"the profile found {finding.cause}: {gain}"


# Lines of presets on computing: precision, compiler, optimizer, layout, and memory given up for time.


def free_of_cost(ground: Ground) -> Iterator[Line]:
    yield "set-to-none", True, "gradients are dropped instead of filled with zeros"
    yield "debug-mode-off", True, "switches for finding faults cost time at every step"
    if ground.gpu is not None:
        yield "cudnn-benchmark", True, "cuDNN tries its kernels once and keeps the fastest"
        if ground.gpu.tf32:
            yield "tf32", True, "fp32 matrix products on the tensor cores of this GPU"


def precision(ground: Ground) -> Iterator[Line]:
    gpu, host = ground.gpu, ground.host
    if gpu is not None and gpu.bf16:
        yield "precision", "bf16-mixed", f"{gpu.name} computes bf16 on tensor cores, and needs no scaling"
    elif gpu is not None and gpu.tensor_cores:
        yield "precision", "16-mixed", f"{gpu.name} has tensor cores for fp16 but no bf16"
    elif gpu is None and host.cpu_bf16:
        yield "precision", "bf16-mixed", "this CPU has bf16 instructions"


def fused(ground: Ground) -> Iterator[Line]:
    where = "kernel on the GPU" if ground.gpu is not None else "loop"
    yield "fused-optimizer", "fused", f"one {where} for all parameters instead of one for each"


def compiled(ground: Ground) -> Iterator[Line]:
    """Where there is a compiler; its stronger modes take memory and need a large GPU."""
    host = ground.host
    if host.compiler is None or host.python_headers is False:
        return
    if ground.gpu is None:
        yield "compile", "default", f"{host.compiler} is there to build fused loops"
    elif "triton" in host.versions:
        mode = {24: "max-autotune", 16: "reduce-overhead"}.get(ground.gpu_class, "default")
        room = f"{ground.gpu_class} GB of GPU memory or more" if ground.gpu_class else "little GPU memory"
        yield "compile", mode, f"Triton is there to build fused kernels, with {room}"


def layout(ground: Ground) -> Iterator[Line]:
    if ground.gpu is not None and ground.gpu.tensor_cores:
        yield "channels-last", True, "convolutions on tensor cores read this layout without a copy"


def recomputed(ground: Ground) -> Iterator[Line]:
    """Where memory is plenty, time is worth more."""
    if ground.gpu is not None and ground.gpu_class < 24:
        have = f"{ground.gpu_class} GB class" if ground.gpu_class else "less than 8 GB"
        yield "grad-checkpointing", True, f"activations are computed again instead of kept ({have})"
    elif ground.gpu is None:
        yield "grad-checkpointing", True, "activations are computed again instead of kept in memory"


# The facts that a preset stands on.


Line = tuple[str, object, str]
"""A knob, its setting, and why."""

GIB = 1 << 30
_FRAMEWORKS = ("lightning", "transformers", "accelerate", "mmengine")


@dataclass(frozen=True)
class Ground:
    """The host, and what a stored profile knows of the job; without one the host alone speaks."""

    host: Host
    timeline: Timeline | None = None
    diagnosis: Diagnosis | None = None

    @property
    def gpu(self) -> Gpu | None:
        """The smallest GPU, if the job trains on one: what fits there fits on all."""
        seen = self.timeline
        if (
            seen is not None and seen.model is not None and not seen.on_cuda
        ):  # the host knows of no other ones
            return None
        return min(self.host.gpus, key=lambda gpu: gpu.memory_bytes, default=None)

    @property
    def gpu_class(self) -> int:
        """8, 16 or 24: gigabytes that the smallest GPU has at least; 0 without one, or where it has less."""
        gigabytes = round(self.gpu.memory_bytes / GIB) if self.gpu else 0
        return next((size for size in (24, 16, 8) if gigabytes >= size), 0)

    @property
    def ranks(self) -> int:
        """Training processes that share the host: one for each GPU unless a profile knows better."""
        if self.timeline is not None:
            return max(1, self.timeline.world)
        return max(1, len(self.host.gpus))

    @property
    def loader(self) -> LoaderFacts | None:
        """The loader that training waits for, as a profile saw it."""
        training = [each for each in self.timeline.loaders if each.training] if self.timeline else []
        return max(training, key=lambda each: each.batches, default=None)

    @property
    def draws(self) -> bool:
        """Whether items are known to draw random numbers, which other workers would draw differently."""
        return self.loader is not None and self.loader.dataset.draws_random is True

    @property
    def draws_are_known(self) -> bool:
        return self.loader is not None and self.loader.dataset.draws_random is not None

    @property
    def frameworks(self) -> bool:
        """Whether a trainer may be there to take its options."""
        if self.timeline is not None:
            return self.timeline.runtime.framework != "plain"
        return any(name in self.host.versions for name in _FRAMEWORKS)


# Lines of presets on input: how many workers a host can feed, and how batches reach its device.


_MOST_WORKERS = 8
"""For one training process; more rarely pays, and each takes memory. A profile may ask for more."""
_WORKER_BYTES = GIB
"""Of a worker with torch imported, the libraries of its items and its share of batches: a careful guess."""
_TINY_SHM = GIB // 2
"""Docker grants 64 MiB; workers that hand over batches through less than this die of a bus error."""


def workers(ground: Ground, *, generous: bool = False, spare: bool = False) -> Iterator[Line]:
    """Workers and what hangs on them. `generous` looks further ahead, `spare` keeps few batches in memory."""
    host, loader = ground.host, ground.loader
    if host.system == "Windows":
        yield (
            "num-workers",
            0,
            "Windows starts each worker by importing the script anew: ask for more by --set",
        )
        if ground.ranks > 1 and ground.frameworks:
            yield "ddp-spawn", True, "Windows cannot start the ranks by running the script's command again"
        return
    if loader is not None and loader.iterable:
        return  # a stream that does not divide itself would give every row once for each worker
    if host.shm_free_bytes is not None and host.shm_free_bytes < _TINY_SHM:
        return
    count, reason = _count(ground)
    if spare and count > 2:
        count, reason = 2, f"few, as each holds batches and memory of its own ({reason})"
    if count < 1:
        return
    if not ground.draws_are_known:
        reason += "; statistical where items draw random numbers, which the run then says"
    yield "num-workers", count, reason
    yield "persistent-workers", True, "workers live on between epochs instead of starting anew"
    if generous:
        yield "prefetch-factor", 4, "twice the usual look ahead evens out items of uneven cost"
    elif spare:
        yield "prefetch-factor", 2, "no more batches ahead than two for each worker"


def transfer(ground: Ground) -> Iterator[Line]:
    if ground.gpu is not None:
        yield "pin-memory", True, "batches go to the GPU from page-locked memory, without a copy on the host"
        yield "non-blocking", True, "the host goes on while a batch is on its way to the GPU"


def _count(ground: Ground) -> tuple[int, str]:
    host = ground.host
    cores = host.cores // ground.ranks
    if ground.gpu is not None:
        wanted, reason = cores - 1, f"one core of {host.cores} is left to each training process"
    else:
        # On the CPU the model computes on the same cores: half of them, where there are enough to share.
        wanted, reason = (
            cores // 2 if cores >= 4 else 0,
            f"half of {host.cores} cores, the model computes on the others",
        )
    if wanted > _MOST_WORKERS:
        wanted, reason = _MOST_WORKERS, f"enough for most items, with {host.cores} cores"
    room = int(host.ram_free_bytes / 2 / _WORKER_BYTES / ground.ranks)
    if room < wanted:
        wanted, reason = room, f"no more, with {size(host.ram_free_bytes)} of memory free"
    return max(0, wanted), reason


# A plan that is only asked: one setting of every knob, to find out which of them could act on a job.


_AS_IT_IS = ("off", "32")  # words that ask for nothing
_SMALL = 2


def asking_plan(knobs: Mapping[str, Knob]) -> Plan:
    """Knobs that exclude each other stand side by side: each is taken back before the next is asked."""
    values = {key: asked_value(knob.values) for key, knob in knobs.items()}
    return Plan({key: value for key, value in values.items() if value is not None})


def asked_value(values: Values) -> Any:
    """A setting that would change something; None for values that only their knob understands."""
    if isinstance(values, Flag):
        return True
    if isinstance(values, Choice):
        return next((word for word in reversed(values.words) if word not in _AS_IT_IS), values.words[-1])
    if isinstance(values, Whole):
        return min(max(values.low, _SMALL), values.high)
    return 1 / _SMALL if isinstance(values, Share) else None
