"""The host stops to read a value from the device.

What it is
    `.item()`, `.cpu()`, `float(t)`, `if tensor:` and printing a tensor wait until the device has computed
    it. Meanwhile nothing new is started, and afterwards the device waits for work. On the CPU nothing is in
    flight, but each such call still costs some microseconds, which adds up when it is made for each
    element.
How it is recognised
    The time inside such calls, outside validation and checkpoints, is at least 2 % of a steady step. A line
    that synchronises eight times a step or more is a loop over elements, and counts as a whole. With a
    GPU, no more counts than the GPU was idle: a wait for a device that is busy all the time costs nothing.
What to do
    Read values every so many steps, keep sums on the device, and decide on the device (`torch.where`)
    rather than with `if`.
Evidence
    `sync_ms`: a step, in such calls and on lines that loop over them
    `syncs`: a step
    `call`: the dearest
    `lines`: that synchronise
"""

from __future__ import annotations

from hotlap.diagnose.compute import gpu_busy
from hotlap.diagnose.severity import Evidence, finding
from hotlap.diagnose.syncs import in_training, looped_share, steps_run
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import SyncPoint
from hotlap.ports.rule import Rule, Sight


class HostSync(Rule):
    cause = Cause.HOST_SYNC
    outranks = frozenset({Cause.LOGGING_HEAVY, Cause.MONITORING_HEAVY})

    def examine(self, sight: Sight) -> Finding | None:
        timeline, step_ms = sight.timeline, sight.summary.step_ms
        points = in_training(timeline)
        if not points or not step_ms:
            return None
        steps = steps_run(timeline)
        inside_ms = sum(point.seconds for point in points) * 1e3 / steps
        sync_ms = max(inside_ms, looped_share(timeline, sight.summary) * step_ms)
        dearest: SyncPoint = max(points, key=lambda point: point.seconds)
        evidence: Evidence = {
            "sync_ms": sync_ms,
            "syncs": sum(point.count for point in points) / steps,
            "call": dearest.call,
            "lines": len({(point.place.file, point.place.line) for point in points}),
        }
        busy = gpu_busy(timeline.gauges)
        share = min(sync_ms / step_ms, 1.0 if busy is None else 1.0 - busy)
        return finding(self.cause, share, evidence, dearest.place)
