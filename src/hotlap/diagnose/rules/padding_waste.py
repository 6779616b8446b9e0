"""A large part of each batch is padding.

What it is
    Sequences of unlike lengths are filled up to the longest of the batch, or to a fixed length. The model
    computes the padding like everything else, and the loss throws it away.
How it is recognised
    Lengths or a mask were visible, and the padded positions that length buckets would save are at least 2 %
    of the step. Buckets over a pool of 50 batches leave about an eighth of the padding (77.6 % became 8.7
    %); forward and backward are taken to cost the same for each position, though attention costs more.
What to do
    Batch sequences of like length (buckets), or a fixed number of tokens instead of a fixed number of
    sequences. Do not pad to a fixed maximum.
Evidence
    `padding_share`: of the positions
    `after_share`: that length buckets would leave
    `tokens_per_s`: real ones
"""

from __future__ import annotations

from hotlap.cost.reading import training_loader
from hotlap.diagnose.compute import compute_share
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

LEFT = 1 / 8


class PaddingWaste(Rule):
    cause = Cause.PADDING_WASTE

    def examine(self, sight: Sight) -> Finding | None:
        padding = sight.summary.padding_share
        if padding is None or padding >= 1.0:
            return None
        after = padding * LEFT
        saved = 1.0 - (1.0 - padding) / (1.0 - after)
        evidence: Evidence = {
            "padding_share": padding,
            "after_share": after,
            "tokens_per_s": sight.summary.tokens_per_s,
        }
        found = training_loader(sight.timeline)
        return finding(self.cause, compute_share(sight) * saved, evidence, found[1].place if found else None)
