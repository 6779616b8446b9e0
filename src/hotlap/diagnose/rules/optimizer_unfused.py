"""The optimizer walks over the parameters tensor by tensor.

What it is
    Without `fused=True` each parameter tensor costs several small operators, and each of them passes
    through memory. `foreach` joins the small ones, `fused` does all in one pass.
How it is recognised
    Hypothesis: an optimizer that has a fused form (Adam, AdamW, SGD, Adagrad) runs without it. It becomes a
    finding when an experiment with the fused or the foreach form wins. The time attacked is `optimizer`, in
    proportion to the tensors that are updated without it.
What to do
    Build it with `fused=True`. Results differ in the last bit or two; sparse gradients are not supported.
Evidence
    `optimizer`: its class
    `optimizer_ms`: a step
    `tensors`: that it updates
    `mode`: loop or foreach
"""

from __future__ import annotations

from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import OptimizerFacts, Stage
from hotlap.ports.rule import Rule, Sight

FUSABLE = frozenset({"Adam", "AdamW", "Adagrad", "SGD"})


class OptimizerUnfused(Rule):
    cause = Cause.OPTIMIZER_UNFUSED
    explains = frozenset({Cause.BATCH_TOO_SMALL})
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        unfused = [each for each in sight.timeline.optimizers if each.kind in FUSABLE and not each.fused]
        everyone = sum(each.parameters * max(1, each.steps) for each in sight.timeline.optimizers)
        if not unfused or not everyone:
            return None
        largest = max(unfused, key=lambda each: each.parameters)
        evidence: Evidence = {
            "optimizer": largest.kind,
            "optimizer_ms": sight.summary.ms(Stage.OPTIMIZER),
            "tensors": largest.parameters,
            "mode": "loop" if _loops(largest) else "foreach",
        }
        part = sum(each.parameters * max(1, each.steps) for each in unfused) / everyone
        return finding(self.cause, sight.summary.share(Stage.OPTIMIZER) * part, evidence, largest.place)


def _loops(optimizer: OptimizerFacts) -> bool:
    """torch takes foreach by itself on an accelerator (MPS has none), and the loop on a CPU."""
    return optimizer.device.startswith(("cpu", "mps")) if optimizer.foreach is None else not optimizer.foreach
