"""Runs made in code: what a probe would have seen of them, without a probe or a clock; and golden files."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hotlap.facts.diagnosis import Basis, Cause, Diagnosis, Finding, Fix, Interval, Severity
from hotlap.facts.experiment import FREE_INPUT, Experiment, Experiments, ExperimentState
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.timeline import (
    Cadence,
    DatasetFacts,
    Ending,
    Gauge,
    HotLine,
    LoaderFacts,
    ModelFacts,
    OptimizerFacts,
    Pauses,
    ProbeCost,
    Runtime,
    SourceLine,
    Stage,
    Steps,
    SyncPoint,
    Timeline,
    Warmup,
    WorkerFacts,
)
from hotlap.report.view import profile_view

MS = 1_000_000
MIB = 2**20
NO_FINDINGS = Diagnosis()
GOLDEN = Path(__file__).parent.parent / "golden"
CWD = "/home/ada/printer"
RUN = ".hotlap/runs/20261116-101500-train"
SCALER = SourceLine(f"{CWD}/dataset.py", 366, "__getitem__", "        x = self.scaler.transform(x)")
SUMMED = SourceLine(f"{CWD}/train.py", 120, "main", "total += loss.item()")
BUILT = SourceLine(f"{CWD}/train.py", 88, "main", "    loader = DataLoader(dataset, batch_size=512)")
MIXES = {
    "data-bound": {
        "data": 29.0,
        "transfer": 0.2,
        "forward": 4.1,
        "backward": 6.2,
        "optimizer": 1.1,
        "other": 0.4,
    },
    "healthy": {"data": 0.4, "forward": 12.3, "backward": 22.4, "optimizer": 3.0, "log": 0.2, "other": 0.3},
}


def make_steps(mix: dict[str, float], count: int, stall_every: int = 0) -> Steps:
    """Steps whose stages scatter by a few percent; every so many steps the first stage stalls."""
    dice = random.Random(7)
    stages = {}
    for name, ms in mix.items():
        stages[Stage(name)] = [round(ms * MS * dice.uniform(0.95, 1.05)) for _ in range(count)]
    if stall_every:
        first = next(iter(stages.values()))
        for index in range(stall_every, count, stall_every):
            first[index] *= 20
    wall = [sum(column) for column in zip(*stages.values(), strict=True)]
    start = [0]
    for each in wall[:-1]:
        start.append(start[-1] + each)
    unseen = [-1] * count
    return Steps(start[:count], wall, stages, [512] * count, unseen, unseen, [1] * count)


def make_gauges(steps: Steps, growth: int = 3 * MIB) -> tuple[Gauge, ...]:
    end = sum(steps.wall)
    return tuple(
        Gauge(round(end * part), round(812 * MIB + growth * part), 1.21, 0.62, 0.05, 0.003, (0.97, 0.86))
        for part in (index / 40 for index in range(41))
    )


def make_timeline(mix: dict[str, float], count: int = 212, **changes: Any) -> Timeline:
    steps = make_steps(mix, count, changes.pop("stall_every", 0))
    given: dict[str, Any] = {
        "rank": 0,
        "world": 1,
        "pid": 4242,
        "ending": Ending.WINDOW,
        "steps": steps,
        "steady_from": min(12, count),
        "warmup": Warmup(3.21, 12, 1.4, 0.9, 2),
        "runtime": Runtime(threads=2),
        "probe": ProbeCost(18e-6, 0.0004, 14, 48_000),
        "gauges": make_gauges(steps),
    }
    return Timeline(**{**given, **changes})


def make_host(**changes: Any) -> Host:
    given: dict[str, Any] = {
        "system": "Linux 6.1",
        "cpu": "AMD EPYC 7B13",
        "cores": 2,
        "physical_cores": 1,
        "ram_bytes": 24 * 2**30,
        "ram_free_bytes": 20 * 2**30,
        "shm_bytes": None,
        "shm_free_bytes": None,
        "start_method": "fork",
        "cpu_flags": ("avx2",),
        "versions": {"python": "3.11.2", "torch": "2.13.0"},
    }
    return Host(**{**given, **changes})


def starved() -> Timeline:
    """Items that spend their time in one line, in two workers."""
    dataset = DatasetFacts("WindowDataset", 46_000, SCALER, 9_600, True, False)
    loader = LoaderFacts(
        dataset, 512, 2, 2, False, False, True, place=BUILT, epochs=3, batches=212, startup_s=0.31
    )
    return make_timeline(
        MIXES["data-bound"],
        stall_every=50,
        model=ModelFacts("TCN", 1_200_000, 41, 33.0, ("float32",), ("cpu",), place=BUILT),
        loaders=(loader,),
        workers=(
            WorkerFacts(0, 0, 106, 54_272, 3.9, 3.8, 0.12, 0.2, 3, 0.15),
            WorkerFacts(0, 1, 106, 54_272, 3.8, 3.7, 0.12, 0.3, 3, 0.16),
        ),
        optimizers=(OptimizerFacts("Adam", 64, 1_200_000, steps=212),),
        lines=(
            HotLine(SCALER, "scaler.transform", Stage.DATA, 0.71, 640, "worker"),
            HotLine(
                SourceLine(f"{CWD}/dataset.py", 370, "__getitem__", "return torch.from_numpy(x)"),
                "torch.from_numpy",
                Stage.DATA,
                0.12,
                108,
                "worker",
            ),
            HotLine(BUILT, "", Stage.OTHER, 0.6, 9),
        ),
        syncs=(SyncPoint(SUMMED, ".item()", 212, 0.04),),
        cadences=(Cadence(Stage.VALIDATE, 3, 0.9, 70.0, BUILT),),
        pauses=Pauses(4, 0.05, 0.021),
        inferred=(Stage.OPTIMIZER,),
        epochs=3,
    )


def starved_diagnosis() -> Diagnosis:
    evidence = {
        "item_ms": 0.072,
        "item_cpu_ms": 0.07,
        "items": 512,
        "workers": 2,
        "cores": 2,
        "callee": "scaler.transform",
        "line_share": 0.71,
    }
    fixes = (
        Fix("cache-dataset", "memory", interval=Interval(1.2, 1.7), measured_gain=1.45),
        Fix("num-workers", "1"),
    )
    sync = {"sync_ms": 0.19, "syncs": 1, "call": ".item()", "lines": 1}
    return Diagnosis(
        (
            Finding(Cause.ITEM_CPU_BOUND, Severity.CRITICAL, 0.59, evidence, SCALER, fixes, Basis.EXPERIMENT),
            Finding(Cause.HOST_SYNC, Severity.NOTE, 0.004, sync, SUMMED),
        ),
        (Finding(Cause.LOGGING_HEAVY, Severity.NOTE, 0.02, {}, SUMMED, (Fix("log-every", "50"),)),),
    )


def experiment(
    knob: str, setting: str, gain: float, half: float, state: ExperimentState, **more: Any
) -> Experiment:
    """A change whose interval is as wide to both sides."""
    return Experiment(knob, setting, state, gain, Interval(gain - half, gain + half), blocks=12, **more)


def starved_experiments() -> Experiments:
    """Of all states: two faster ones, many without a gain, one undecided, a bound, and some that were not tried."""
    no_gain = [("prefetch-factor", "4"), ("num-workers", "1"), ("fused-optimizer", "fused"), ("tf32", "True")]
    return Experiments(
        (
            Experiment(FREE_INPUT, "replayed", ExperimentState.FASTER, 2.31, Interval(2.1, 2.5), blocks=8),
            Experiment("compile", "default", ExperimentState.FASTER, 0.12, Interval(0.08, 0.15), "rounding", "", 9,
                       build_s=21.4),
            experiment("cache-dataset", "memory", 1.45, 0.25, ExperimentState.FASTER, numerics="bitwise"),
            *(experiment(*each, -0.004 * (number + 1), 0.02, ExperimentState.NO_GAIN, numerics="bitwise")
              for number, each in enumerate(no_gain)),
            experiment("batch-size", "1024", 0.04, 0.05, ExperimentState.UNDECIDED, numerics="statistical",
                       beside={"scale-lr": "linear"}),
            Experiment("log-every", "50", ExperimentState.REFUSED, reason="nothing asked for it"),
            Experiment("persistent-workers", "True", ExperimentState.NOT_TRIED,
                       reason="the time for experiments was up"),
            Experiment("precision", "bf16", ExperimentState.NOT_TRIED, reason="the time for experiments was up"),
        ),
        48.2,
        "the time for experiments was up",
    )  # fmt: skip


def healthy_experiments() -> Experiments:
    """Eleven changes, none of which brings anything."""
    knobs = ("num-workers", "prefetch-factor", "precision", "compile", "fused-optimizer", "tf32", "channels-last",
             "sdpa", "keep-memory", "pin-memory", "worker-threads")  # fmt: skip
    tried = [
        experiment(knob, "on", 0.004 * number - 0.02, 0.009, ExperimentState.NO_GAIN, numerics="bitwise")
        for number, knob in enumerate(knobs)
    ]
    bound = Experiment(
        FREE_INPUT, "replayed", ExperimentState.NO_GAIN, 0.008, Interval(0.001, 0.015), blocks=8
    )
    return Experiments((bound, *tried), 31.0, "all are decided")


def two_ranks() -> list[Timeline]:
    """Rank 1 loads its data more slowly; rank 0 waits for it inside its backward pass."""
    slow = {"data": 14.0, "forward": 10.0, "backward": 20.0, "optimizer": 2.0, "other": 0.5}
    fast = {"data": 1.0, "forward": 10.0, "backward": 33.0, "optimizer": 2.0, "other": 0.5}
    return [
        make_timeline(slow, rank=1, world=2, pid=4243, comm_s=0.3),
        make_timeline(fast, rank=0, world=2, comm_s=2.9),
    ]


def two_ranks_diagnosis() -> Diagnosis:
    evidence = {"rank": 1, "ranks": 2, "own_ms": 46.5, "others_ms": 33.5, "stage": "data"}
    return Diagnosis((Finding(Cause.STRAGGLER_RANK, Severity.WARNING, 0.28, evidence),))


def job(cwd: str = CWD) -> Job:
    return Job(("/usr/bin/python3", "train.py", "--epochs", "3"), cwd, "train")


def nothing() -> Timeline:
    return make_timeline(
        {"data": 30.0, "forward": 3.0},
        3,
        steady_from=3,
        gauges=(),
        ending=Ending.CRASHED,
        warmup=Warmup(2.0, 3, 0.1),
    )


@pytest.fixture(scope="session")
def views() -> dict[str, dict[str, Any]]:
    """The views that golden files are drawn from, by name."""
    host = make_host()
    healthy = make_timeline(MIXES["healthy"], ending=Ending.FINISHED)
    return {
        "data-bound": profile_view(job(), host, [starved()], starved_diagnosis(), RUN, starved_experiments()),
        "healthy": profile_view(job(), host, [healthy], Diagnosis(), RUN, healthy_experiments()),
        "multi-rank": profile_view(job(), host, two_ranks(), two_ranks_diagnosis(), RUN),
        "nothing-measured": profile_view(job(), host, [nothing()], Diagnosis(), RUN),
    }


@pytest.fixture
def timeline_of() -> Callable[..., Timeline]:
    """Makes a timeline: `timeline_of({"data": 3.0}, count=100, rank=1)`."""
    return make_timeline


@pytest.fixture
def view_of() -> Callable[..., dict[str, Any]]:
    """Makes a view of timelines, with a diagnosis and the folder that the job ran in."""

    def make(
        *timelines: Timeline,
        diagnosis: Diagnosis = NO_FINDINGS,
        cwd: Path | str = CWD,
        experiments: Experiments | None = None,
        **host: Any,
    ):
        return profile_view(job(str(cwd)), make_host(**host), timelines, diagnosis, RUN, experiments)

    return make


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with a file of tests/golden; HOTLAP_REGOLD=1 writes the file instead."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("HOTLAP_REGOLD"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name} changed; HOTLAP_REGOLD=1 accepts it"

    return check
