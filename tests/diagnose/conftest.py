"""A small builder of timelines: a steady job by default, and one change at a time."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hotlap.facts.diagnosis import Interval
from hotlap.facts.experiment import LEAST_GAIN, Experiment, Experiments, ExperimentState
from hotlap.facts.host import Gpu, Host
from hotlap.facts.timeline import (
    Cadence,
    DatasetFacts,
    Ending,
    Gauge,
    HotLine,
    LoaderFacts,
    ModelFacts,
    ProbeCost,
    Runtime,
    SourceLine,
    Stage,
    Steps,
    Timeline,
    Warmup,
    WorkerFacts,
)
from hotlap.ports.rule import Sight

GIB = 2**30
MS = 1_000_000
WARM = 5
# What is left of a step goes to these, in these parts.
COMPUTE = {Stage.FORWARD: 0.35, Stage.BACKWARD: 0.6, Stage.OPTIMIZER: 0.05}


class Make:
    """Builds facts; every method takes changes to what it would build by itself."""

    def host(self, **changes: Any) -> Host:
        plain = Host(
            system="Linux",
            cpu="a cpu",
            cores=4,
            physical_cores=4,
            ram_bytes=64 * GIB,
            ram_free_bytes=48 * GIB,
            shm_bytes=8 * GIB,
            shm_free_bytes=8 * GIB,
            start_method="fork",
            compiler="g++",
        )
        return replace(plain, **changes)

    def gpu_host(self, **changes: Any) -> Host:
        gpu = Gpu("a gpu", 24 * GIB, (8, 0), bf16=True, tf32=True, tensor_cores=True)
        return self.host(gpus=(gpu,), **changes)

    def timeline(
        self,
        step_ms: float = 40.0,
        shares: Mapping[Stage, float] | None = None,
        columns: Mapping[Stage, Sequence[float]] | None = None,
        count: int = 200,
        **changes: Any,
    ) -> Timeline:
        """`shares` are the same in each step; `columns` come on top: milliseconds for each steady step."""
        steps = self.steps(step_ms, shares or {}, columns or {}, count)
        plain = Timeline(
            rank=0,
            world=1,
            pid=4711,
            ending=Ending.WINDOW,
            steps=steps,
            steady_from=WARM,
            warmup=Warmup(startup_s=2.0, steps=WARM, seconds=sum(steps.wall[:WARM]) / 1e9),
            runtime=Runtime(threads=2, operator_us=25.0),
            probe=ProbeCost(per_step_s=2e-5, share=0.001, marks_per_step=11, bytes=40_000),
            model=self.model(calls_per_step=min(20.0, step_ms)),
        )
        return replace(plain, **changes)

    def steps(
        self,
        step_ms: float,
        shares: Mapping[Stage, float],
        columns: Mapping[Stage, Sequence[float]],
        count: int,
    ) -> Steps:
        left = 1.0 - sum(shares.values())
        level = {stage: left * part for stage, part in COMPUTE.items()}
        for stage, share in shares.items():
            level[stage] = level.get(stage, 0.0) + share
        draw = random.Random(0)
        wobble = [draw.uniform(0.97, 1.03) for _ in range(WARM + count)]
        stages = {
            stage: [int(level.get(stage, 0.0) * step_ms * MS * each) for each in wobble] for stage in Stage
        }
        for stage, column in columns.items():
            for index, extra in enumerate(column):
                stages[stage][WARM + index] += int(extra * MS)
        walls = [sum(parts) for parts in zip(*stages.values(), strict=True)]
        starts = [sum(walls[:index]) for index in range(len(walls))] if count <= 1000 else [0] * len(walls)
        empty = [-1] * len(walls)
        return Steps(starts, walls, stages, [64] * len(walls), empty, empty, [1] * len(walls))

    def model(self, **changes: Any) -> ModelFacts:
        """By default calls are so long that starting them does not matter; each is one operator."""
        changes.setdefault("operators_per_step", changes.get("calls_per_step"))
        plain = ModelFacts(
            "Net", 1_000_000, 20, 20.0, ("float32",), ("cpu",), place=self.place("model.py", 12)
        )
        return replace(plain, **changes)

    def place(self, file: str = "train.py", line: int = 7) -> SourceLine:
        return SourceLine(file, line)

    def loader(self, **changes: Any) -> LoaderFacts:
        dataset = DatasetFacts("Windows", 20_000, self.place("dataset.py", 30), item_bytes=10_000)
        plain = LoaderFacts(
            dataset=dataset,
            batch_size=64,
            num_workers=0,
            prefetch_factor=None,
            persistent_workers=False,
            pin_memory=False,
            place=self.place("train.py", 20),
            epochs=1,
            batches=205,
            batch_bytes=64 * 1000,
        )
        return replace(plain, **changes)

    def work(
        self, batch_ms: float, cpu: float = 1.0, collate: float = 0.0, idle: float = 0.0, number: int = -1
    ) -> WorkerFacts:
        """A worker that made 205 batches; `idle` is the share of its life between batches."""
        seconds = 205 * batch_ms / 1e3
        fetch = seconds * (1.0 - collate)
        waited = seconds * idle / (1.0 - idle)
        return WorkerFacts(0, number, 205, 205 * 64, fetch, fetch * cpu, seconds * collate, waited)

    def line(
        self, stage: Stage = Stage.DATA, share: float = 0.7, role: str = "main", file: str = "dataset.py"
    ) -> HotLine:
        return HotLine(self.place(file, 366), "scaler.transform", stage, share, 500, role)

    def fed(
        self,
        step_ms: float = 40.0,
        data: float = 0.6,
        cpu: float = 1.0,
        collate: float = 0.0,
        loader: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Timeline:
        """A job without workers that loads for `data` of its step."""
        return self.timeline(
            step_ms,
            {Stage.DATA: data},
            loaders=(self.loader(**(loader or {})),),
            workers=(self.work(step_ms * data, cpu, collate),),
            **changes,
        )

    def cadence(self, stage: Stage, count: int, every: float | None) -> Cadence:
        return Cadence(stage, count, count * 0.02, every)

    def gauges(self, count: int = 20, seconds: float = 8.0, **changes: Any) -> tuple[Gauge, ...]:
        """Looks spread over the run; a change that is a list gives one value for each."""
        built = []
        for index in range(count):
            own = {key: value[index] if isinstance(value, list) else value for key, value in changes.items()}
            plain = Gauge(int(index * seconds / count * 1e9), 2 * GIB, 1.0, 0.0, 0.0, 0.0)
            built.append(replace(plain, **own))
        return tuple(built)

    def sight(
        self, *timelines: Timeline, host: Host | None = None, experiments: Experiments | None = None
    ) -> Sight:
        return Sight(timelines, host or self.host(), experiments or Experiments())

    def tried(
        self, knob: str, setting: Any, gain: float | None, state: ExperimentState | None = None
    ) -> Experiment:
        """One experiment; it has won if it gained 3 %, within 2 % either side."""
        if gain is None:
            return Experiment(
                knob, str(setting), state or ExperimentState.NOT_TRIED, reason="no time was left"
            )
        decided = ExperimentState.FASTER if gain >= LEAST_GAIN else ExperimentState.NO_GAIN
        return Experiment(knob, str(setting), state or decided, gain, Interval(gain - 0.02, gain + 0.02))

    def experiments(self, *tried: Experiment) -> Experiments:
        return Experiments(tuple(sorted(tried, key=lambda each: -(each.gain or 0.0))), 20.0)


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()
