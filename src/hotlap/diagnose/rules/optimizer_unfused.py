"""The optimizer walks over the parameters tensor by tensor.

What it is
    Without `fused=True` each parameter tensor costs several small operators, and each of them passes
    through memory. `foreach` joins the small ones, `fused` does all in one pass.
How it is recognised
    An optimizer that has a fused form (Adam, AdamW, SGD, Adagrad) runs without it. Of the time in
    `optimizer` that part is counted which the fused form saved when measured on a CPU: of Adam 75 % of a
    loop and 50 % of foreach, of SGD 40 % and 20 %. On a GPU 70 % of a loop and 30 % of foreach.
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
from hotlap.facts.timeline import Optimizer, Stage
from hotlap.ports.rule import Rule, Sight

# Class -> part saved on a CPU, from a loop and from foreach.
SAVED = {"Adam": (0.75, 0.5), "AdamW": (0.75, 0.5), "Adagrad": (0.75, 0.5), "SGD": (0.4, 0.2)}
SAVED_ON_CUDA = (0.7, 0.3)


class OptimizerUnfused(Rule):
    cause = Cause.OPTIMIZER_UNFUSED

    def examine(self, sight: Sight) -> Finding | None:
        unfused = [each for each in sight.timeline.optimizers if each.kind in SAVED and not each.fused]
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
        saved = sum(_saved(each) * each.parameters * max(1, each.steps) for each in unfused) / everyone
        return finding(self.cause, sight.summary.share(Stage.OPTIMIZER) * saved, evidence, largest.place)


def _loops(optimizer: Optimizer) -> bool:
    """torch takes foreach by itself on a GPU, and the loop on a CPU."""
    return "cuda" not in optimizer.device if optimizer.foreach is None else not optimizer.foreach


def _saved(optimizer: Optimizer) -> float:
    from_loop, from_foreach = SAVED_ON_CUDA if "cuda" in optimizer.device else SAVED[optimizer.kind]
    return from_loop if _loops(optimizer) else from_foreach
