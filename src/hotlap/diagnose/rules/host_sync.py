"""The host stops to read a value from the device.

What it is
    `.item()`, `.cpu()`, `float(t)`, `if tensor:` and printing a tensor wait until the device has computed
    it. Meanwhile nothing new is started, and afterwards the device waits for work.
How it is recognised
    The time inside such calls, outside validation and checkpoints, is at least 2 % of a steady step, and the
    model computes on an accelerator: on the CPU nothing is in flight, so that nothing is waited for. No more
    counts than the device was idle, where that was measured: a wait for a device that is busy all the time costs
    nothing.
What to do
    Read values every so many steps, keep sums on the device, and decide on the device (`torch.where`)
    rather than with `if`.
Evidence
    `sync_ms`: a step, inside such calls
    `syncs`: a step
    `call`: the dearest
    `lines`: that synchronise
"""

from __future__ import annotations

from hotlap.diagnose.compute import device_busy, in_training, steps_run
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Stage, SyncPoint
from hotlap.ports.rule import Rule, Sight

_PARTS = (Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER)  # events at their borders see no break within


class HostSync(Rule):
    cause = Cause.HOST_SYNC
    outranks = frozenset({Cause.LOGGING_HEAVY, Cause.MONITORING_HEAVY})

    def examine(self, sight: Sight) -> Finding | None:
        timeline, step_ms = sight.timeline, sight.summary.step_ms
        points = in_training(timeline)
        if not points or not step_ms or not timeline.on_accelerator:
            return None
        steps = steps_run(timeline)
        sync_ms = sum(point.seconds for point in points) * 1e3 / steps
        dearest: SyncPoint = max(points, key=lambda point: point.seconds)
        evidence: Evidence = {
            "sync_ms": sync_ms,
            "syncs": sum(point.count for point in points) / steps,
            "call": dearest.call,
            "lines": len({(point.place.file, point.place.line) for point in points}),
        }
        within = any(point.stage in _PARTS for point in points)
        busy = device_busy(timeline, breaks=within)
        share = min(sync_ms / step_ms, 1.0 if busy is None else 1.0 - busy)
        return finding(self.cause, share, evidence, dearest.place)
