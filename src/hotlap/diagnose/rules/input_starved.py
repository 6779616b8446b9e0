"""The step waits for its data, for a reason that no narrower cause explains.

What it is
    The training loop stands still until the next batch arrives. Usually a narrower cause says why (items
    that need the CPU, items that wait for a disk, too few workers ...) and is reported in its place.
How it is recognised
    The exposed time of `data` is at least 2 % of a steady step, and the narrower causes together leave most
    of it unexplained: no single one of them saves two fifths of it. A loop without a DataLoader ends here too. Where
    others keep the machine busy and the workers are mostly idle it is a note at most.
What to do
    Look at the line that holds the time. If the batch is made in the training process, move that work into
    a Dataset, so that workers can do it beside the training.
Evidence
    `data_ms`: a step waits for data, mean
    `step_ms`: mean step
    `waiting_share`: of the steps that waited for more than 5 % of a median step
    `callee`: optional, what the line calls
    `line_share`: optional, of the data samples on that line
"""

from __future__ import annotations

from hotlap.cost.reading import disturbed, training_loader
from hotlap.diagnose.inputs import data_line, input_of, line_evidence, line_place
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight
from hotlap.units import NS_PER_MS

NOTICED = 0.05  # of a median step: a wait that shortens nothing if it goes is no wait
IDLE = 0.5  # of the workers' life


class InputStarved(Rule):
    cause = Cause.INPUT_STARVED

    def examine(self, sight: Sight) -> Finding | None:
        summary, found = sight.summary, training_loader(sight.timeline)
        loader = found[1] if found else None
        line = data_line(sight.timeline, loader.num_workers if loader else 0)
        line = line or data_line(sight.timeline, 0)
        evidence: Evidence = {
            "data_ms": summary.ms(Stage.DATA),
            "step_ms": summary.step_ms,
            "waiting_share": _waiting(sight),
            **line_evidence(line),
        }
        where = line_place(line, loader.place if loader else None)
        at_most = Severity.NOTE if _by_others(sight) else Severity.CRITICAL
        return finding(self.cause, summary.share(Stage.DATA), evidence, where, at_most)


def _by_others(sight: Sight) -> bool:
    """Idle workers that wait for a core which foreign processes hold are no fault of the job."""
    seen = input_of(sight)
    return seen is not None and seen.busy < IDLE and disturbed(sight.timeline, sight.host)


def _waiting(sight: Sight) -> float:
    bound = NOTICED * (sight.summary.step_ms_median or 0.0) * NS_PER_MS
    waits = sight.timeline.steps.stages.get(Stage.DATA, ())[sight.timeline.steady_from :]
    return sum(wait > bound for wait in waits) / max(1, len(waits))
