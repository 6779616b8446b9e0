"""Runs the planted jobs, each alone and under the probe, on a clock that only moves by what is planted.

Both clocks of the process are the device's: `time.perf_counter_ns` is replaced before hotlap is imported. What the
probe then reports is printed as JSON, beside the device's counts of waits with the probe and without it.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clock_device as clock

clock.plan()
time.perf_counter_ns = clock.now

from jobs import JOBS, STEPS, Job, plan, train  # noqa: E402

from hotlap.diagnose.run import all_rules, sight_of  # noqa: E402
from hotlap.facts.host import Host  # noqa: E402
from hotlap.facts.summary import summarise  # noqa: E402
from hotlap.facts.timeline import Ending, Stage, Timeline  # noqa: E402
from hotlap.probe import boundary, control  # noqa: E402
from hotlap.probe.attach import attach  # noqa: E402
from hotlap.timeline.gather import read_recordings, timelines  # noqa: E402

WAITS = ("item", "copy", "stream", "event", "device", "size")


def library(folder: Path) -> Any:
    """A package of others that reads values: its files lie where packages lie."""
    path = folder / "site-packages" / "metrics_library.py"
    path.parent.mkdir()
    path.write_text("values = []\n\n\ndef record(value):\n    values.append(value.item())\n")
    spec = importlib.util.spec_from_file_location("metrics_library", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(job: Job, metrics: Any, end: Callable[[], None] = lambda: None) -> tuple[int, dict[str, int]]:
    """`end` is called while the model is still there."""
    plan(job)
    begun = clock.now()
    model = train(job, metrics)
    end()
    del model
    return clock.now() - begun, {name: clock.counts().get(name, 0) for name in WAITS}


def watched(job: Job, metrics: Any, folder: Path) -> tuple[int, dict[str, int], Timeline]:
    folder.mkdir()
    control.create(folder)
    plan(job)
    session = attach(folder, clock.now(), [])
    try:
        took = run(job, metrics, session.freeze)
    finally:
        session.detach()
    (timeline,) = timelines(read_recordings(folder), Ending.FINISHED, clock.now(), {})
    return *took, timeline


def found(timeline: Timeline) -> dict[str, float]:
    """The causes that the rules see, with their shares of the step."""
    host = Host("Linux", "a cpu", 4, 4, 1 << 34, 1 << 33, None, None, "fork")
    sight = sight_of([timeline], host)
    assert sight is not None
    seen = {cause: rule.examine(sight) for cause, rule in all_rules().items()}
    return {str(cause): finding.share for cause, finding in seen.items() if finding is not None}


def measured(timeline: Timeline) -> dict[str, Any]:
    summary = summarise(timeline)
    device = timeline.device
    step = summary.step_ms or 0.0
    return {
        "step": step,
        "stages": {str(stage): summary.ms(stage) for stage in Stage},
        "idle": None if device is None else sum(device.idle.values()) * step,
        "idle_by": None if device is None else {str(k): v * step for k, v in device.idle.items()},
        "syncs": [[point.place.file, point.call, point.count, point.seconds] for point in timeline.syncs],
        "accelerator": timeline.runtime.accelerator.kind if timeline.runtime.accelerator else None,
        "faults": list(timeline.probe.faults),
        "found": found(timeline),
    }


def main(folder: Path) -> None:
    metrics = library(folder)
    results = {}
    for job in JOBS:
        alone, alone_counts = run(job, metrics)
        boundary.faults.clear()
        took, counts, timeline = watched(job, metrics, folder / job.name)
        results[job.name] = {
            "alone_ns": alone, "watched_ns": took, "alone": alone_counts, "watched": counts, "steps": STEPS,
            "truth": job.truth, "waits": job.waits, "first_wait": job.first_wait,
            "reads": job.read, **measured(timeline),
        }  # fmt: skip
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
