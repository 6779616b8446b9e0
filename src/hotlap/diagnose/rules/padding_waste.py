"""A large part of each batch is padding.

What it is
    Sequences of unlike lengths are filled up to the longest of the batch, or to a fixed length. The model
    computes the padding like everything else, and the loss throws it away.
How it is recognised
    Hypothesis: lengths or a mask were visible, or rows of integers end in runs of one value that is hardly anywhere
    else, and the padded positions are at least 2 % of the step, where forward and backward cost the same for each
    position. It becomes a finding when an experiment with length buckets, or with trimmed padding, wins.
What to do
    Batch sequences of like length (buckets), or a fixed number of tokens instead of a fixed number of
    sequences. Do not pad to a fixed maximum.
Evidence
    `padding_share`: of the positions
    `tokens_per_s`: real ones
"""

from __future__ import annotations

from hotlap.cost.reading import training_loader
from hotlap.diagnose.compute import compute_share
from hotlap.diagnose.inputs import collate_line, line_place
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import SourceLine
from hotlap.ports.rule import Rule, Sight


class PaddingWaste(Rule):
    cause = Cause.PADDING_WASTE
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        padding = sight.summary.padding_share
        if padding is None or padding >= 1.0:
            return None
        evidence: Evidence = {
            "padding_share": padding,
            "tokens_per_s": sight.summary.tokens_per_s,
        }
        return finding(self.cause, compute_share(sight) * padding, evidence, _place(sight))


def _place(sight: Sight) -> SourceLine | None:
    """Where the script's own collate function pads; else where its loader is built."""
    found = training_loader(sight.timeline)
    if found is None:
        return None
    loader = found[1]
    own = loader.collate not in ("", "default_collate")
    return line_place(collate_line(sight.timeline, loader, mostly=True) if own else None, loader.place)
