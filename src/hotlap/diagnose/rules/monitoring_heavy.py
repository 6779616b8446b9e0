"""Code beside training, such as metrics or statistics of gradients, takes a noticeable part of each step.

What it is
    Norms of all gradients, histograms, confusion matrices, mutual information: monitors run on the training
    thread, in each step unless told otherwise, and are easily dearer than what they watch.
How it is recognised
    Time outside all named stages (`other`) is at least 2 % of the step and the stack sampler met a line
    there that holds at least a fifth of it. What host synchronisations and garbage collections explain is
    taken off. Lines that wait for other ranks in a collective are no monitors, nor are those in a model's
    `forward`, which a script may call by itself, nor the call of a framework's
    trainer. Where no line was seen, nothing is said: time without a name is no evidence.
What to do
    Run the monitor every so many steps, on a subset, vectorised (one matmul instead of pairs), or under a
    time budget.
Evidence
    `other_ms`: a step, outside all named stages
    `callee`: what the line calls
    `line_share`: of the samples there
"""

from __future__ import annotations

from hotlap.diagnose.compute import element_lines, of_a_model, steps_run
from hotlap.diagnose.inputs import calls_trainer, line_evidence
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import HotLine, Stage, Timeline
from hotlap.ports.rule import Rule, Sight

SAMPLES = 5  # fewer do not make a share
COLLECTIVE = "distributed_c10d."  # torch's module of collectives
NOTICED = 0.2  # of the samples: a line that holds less is not what to act on


class MonitoringHeavy(Rule):
    cause = Cause.MONITORING_HEAVY

    def examine(self, sight: Sight) -> Finding | None:
        looped = element_lines(sight.timeline, sight.summary)
        lines = [each for each in _lines(sight.timeline) if each not in looped and not _exchanges(each)]
        line = max(lines, key=lambda each: each.share, default=None)
        if line is None or line.share < NOTICED:
            return None
        held = sum(each.share for each in lines)
        share = (sight.summary.share(Stage.OTHER) - _explained(sight)) * min(1.0, held)
        evidence: Evidence = {"other_ms": sight.summary.ms(Stage.OTHER), **line_evidence(line)}
        return finding(self.cause, share, evidence, line.place)


def _lines(timeline: Timeline) -> list[HotLine]:
    """A script may call `model.forward(x)`, or a method of the model's own: no stage is seen then."""
    here = [line for line in timeline.lines if line.stage is Stage.OTHER and line.role == "main"]
    return [
        line
        for line in here
        if line.samples >= SAMPLES and not calls_trainer(line, timeline) and not of_a_model(line)
    ]


def _exchanges(line: HotLine) -> bool:
    return line.inner.startswith(COLLECTIVE) or line.callee in ("all_gather", "all_reduce", "barrier")


def _explained(sight: Sight) -> float:
    """What other causes say about `other`."""
    timeline, summary = sight.timeline, sight.summary
    if not summary.n or not summary.step_ms:
        return 0.0
    waiting = sum(point.seconds for point in timeline.syncs if point.stage is Stage.OTHER)
    return waiting * 1e3 / steps_run(timeline) / summary.step_ms + timeline.pauses.seconds / summary.seconds
