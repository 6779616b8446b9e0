"""What has the right types and still cannot be is refused where it is read: no rate is negative."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hotlap.errors import FactError
from hotlap.facts.baseline import Baseline, MachineIdentity
from hotlap.facts.codec import from_plain, to_plain
from hotlap.facts.diagnosis import Interval
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Rate, Status, Trial
from hotlap.facts.verdict import Gain

RATES = {"samples": Rate(600.0, 0.05), "steps": Rate(1.2, None)}
FIGURES = Figures(600.0, "samples", 800.0, 700.0, 512.0, 1 << 29, 0.1, 0.0, 3.0, 0.0, 60, rates=RATES)
TRIAL = Trial(1, Plan(), Status.DONE, 3.0, FIGURES, stages={"data": 700.0})
GAIN = Gain(-0.5, Interval(-0.6, -0.4))
BASELINE = Baseline(
    "python train.py",
    MachineIdentity("AMD EPYC", 2, "x86_64"),
    "2026-11-16",
    (590.0, 600.0),
    (50.0, 51.0),
    FIGURES,
    by_count={"samples": (590.0, 600.0), "steps": (1.2, 1.3)},
)


@pytest.mark.parametrize("fact", [RATES["steps"], FIGURES, replace(FIGURES, rates={}), TRIAL, GAIN, BASELINE])
def test_what_hotlap_wrote_comes_back(fact):
    assert from_plain(type(fact), to_plain(fact)) == fact


@pytest.mark.parametrize(
    "fact",
    [
        Rate(0.0, None),
        Rate(math.nan, None),
        replace(FIGURES, throughput=-1.0),
        replace(FIGURES, throughput=math.inf),
        replace(FIGURES, counts="tokens"),
        replace(FIGURES, rates={"tokens": RATES["steps"]}, counts="tokens"),
        replace(FIGURES, memory_bytes=-1),
        replace(FIGURES, step_ms=math.nan),
        replace(TRIAL, number=0),
        replace(TRIAL, number=10**15),
        replace(TRIAL, seconds=math.inf),
        replace(TRIAL, stages={"data": math.nan}),
        replace(GAIN, value=-1.0),
        replace(GAIN, value=math.nan),
        replace(BASELINE, rates=(590.0, 0.0)),
        replace(BASELINE, paces=(-50.0, 51.0)),
        replace(BASELINE, by_count={"steps": (1.2,)}),
    ],
)
def test_what_cannot_be_is_refused_in_few_words(fact):
    with pytest.raises(FactError) as refused:
        from_plain(type(fact), to_plain(fact), "file.json")
    assert refused.value.exit_code == 2
    assert len(str(refused.value)) < 300
