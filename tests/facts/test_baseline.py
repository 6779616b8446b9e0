"""A baseline and the runs of today are held against each other in one count."""

from __future__ import annotations

import pytest

from hotlap.facts.baseline import Baseline, MachineIdentity, in_one_count
from hotlap.facts.trial import Figures, Rate


def baseline(counts, **rates):
    """Two runs each; the first is the one in the middle."""
    known = {name: Rate(runs[0], 0.1) for name, runs in rates.items()}
    figures = Figures(rates[counts][0], counts, 8.0, 2.0, 8.0, None, 0.75, 0.0, 1.0, 0.0, 60, rates=known)
    machine = MachineIdentity("cpu", 2, "x86_64")
    return Baseline("train.py", machine, "2026-11-16", rates[counts], (1.0, 1.0), figures, by_count=rates)


TOKENS = baseline("tokens", tokens=(900.0, 910.0), samples=(9.0, 11.0), steps=(1.0, 1.1))


def test_what_was_counted_is_counted_again():
    after = baseline("tokens", tokens=(950.0, 960.0), samples=(5.5, 5.6))
    assert in_one_count(TOKENS, after) == (TOKENS, after)


@pytest.mark.parametrize(
    "after",
    [
        baseline("samples", samples=(10.0, 10.5), steps=(1.0, 1.0)),
        baseline("tokens", tokens=(90.0, 91.0), samples=(10.0, 10.5)),
    ],
    ids=["tokens-are-gone", "tokens-are-another-thing"],
)
def test_where_the_job_has_changed_its_tokens_samples_are_counted(after):
    found = in_one_count(TOKENS, after)
    assert [each.rates for each in found] == [(9.0, 11.0), (10.0, 10.5)]
    assert [(each.figures.counts, each.figures.throughput) for each in found] == [
        ("samples", 9.0),
        ("samples", 10.0),
    ]


def test_where_nothing_was_counted_in_both_nothing_can_be_told():
    before = baseline("samples", samples=(9.0, 11.0))
    assert in_one_count(before, baseline("steps", steps=(1.0, 1.1))) is None
