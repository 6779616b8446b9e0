"""A Python loop reads tensors element by element.

What it is
    `tensor[i].item()`, `float(t)`, `if t[i] > 0:` in a loop makes a tensor, or a Python number, for each element.
    That takes microseconds each, whatever the device, where one operator over the whole tensor takes as long as
    a single read.
How it is recognised
    A line of training reads values from tensors at least eight times a step, and the time on it fits to that:
    at most 0.2 ms for each read. The share is the time that the stack sampler met these lines, outside of input,
    validation and checkpoints. What reading waits for a device is host-sync.
What to do
    Compare and sum whole tensors (`(output.argmax(1) == labels).sum()`), index with a mask, or convert once with
    `.tolist()` before the loop.
Evidence
    `line_ms`: a step, on these lines
    `reads`: a step
    `call`: that reads
    `line_share`: of the samples of its stage on the dearest line
"""

from __future__ import annotations

from hotlap.diagnose.compute import element_lines, in_training, steps_run
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import HotLine
from hotlap.ports.rule import Rule, Sight


class ElementLoop(Rule):
    cause = Cause.ELEMENT_LOOP
    outranks = frozenset({Cause.MONITORING_HEAVY, Cause.LOGGING_HEAVY})

    def examine(self, sight: Sight) -> Finding | None:
        lines, step_ms = element_lines(sight.timeline, sight.summary), sight.summary.step_ms
        if not lines or not step_ms:
            return None
        dearest = max(lines, key=lambda line: line.share * sight.summary.share(line.stage))
        spent_ms = sum(line.share * sight.summary.ms(line.stage) for line in lines)
        if sight.timeline.on_accelerator:
            spent_ms -= _waited_ms(sight, lines)
        here = (dearest.place.file, dearest.place.line)
        calls = [each for each in in_training(sight.timeline) if (each.place.file, each.place.line) == here]
        evidence: Evidence = {
            "line_ms": spent_ms,
            "reads": sum(lines.values()),
            "call": max(calls, key=lambda each: each.count).call,
            "line_share": dearest.share,
        }
        return finding(self.cause, spent_ms / step_ms, evidence, dearest.place)


def _waited_ms(sight: Sight, lines: dict[HotLine, float]) -> float:
    """A step, inside the calls of these lines."""
    places = {(line.place.file, line.place.line) for line in lines}
    points = [each for each in in_training(sight.timeline) if (each.place.file, each.place.line) in places]
    return sum(each.seconds for each in points) * 1e3 / steps_run(sight.timeline)
