"""`hotlap diagnose`: the stored timeline under today's rules, without running anything."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence

import pytest

from hotlap.facts import codec
from hotlap.facts.arrow import read_timelines
from hotlap.facts.diagnosis import Interval
from hotlap.facts.experiment import Experiment, Experiments, ExperimentState
from hotlap.facts.timeline import Runtime, Steps


def test_the_same_timeline_gives_the_same_diagnosis(hotlap, stored):
    before = json.loads((stored / "diagnosis.json").read_text())
    said = hotlap("diagnose", "last")
    assert said.code == 0 and said.out.startswith("hotlap   python train.py")
    assert json.loads((stored / "diagnosis.json").read_text()) == before


def test_it_looks_at_the_timeline_and_not_at_the_old_diagnosis(hotlap, stored, change_timeline):
    change_timeline(runtime=Runtime(threads=1, debug=("detect_anomaly",)))
    hotlap("diagnose", "last")
    assert "debug-mode-on" in (stored / "diagnosis.json").read_text()
    assert "debug-mode-on" in (stored / "report.html").read_text(encoding="utf-8")
    assert "debug-mode-on" in hotlap("report", "last", "--format", "json").out


@pytest.mark.parametrize(
    "damage", ["", "{", '{"schema": 1, "findings": [{"cause": "from the future"}]}', None]
)
def test_it_mends_a_missing_or_damaged_diagnosis(hotlap, stored, damage):
    (stored / "diagnosis.json").unlink()
    if damage is not None:
        (stored / "diagnosis.json").write_text(damage)
    assert hotlap("report", "last", "--format", "json").code == 2
    assert hotlap("diagnose", "last").code == 0
    assert hotlap("report", "last", "--format", "json").code == 0


def test_json_is_the_view_of_the_run(hotlap, folder):
    said = hotlap("diagnose", "last", "--json", "-")
    assert said.out == hotlap("report", "last", "--format", "json").out
    assert hotlap("diagnose", "last", "--json", "facts.json").out.startswith("hotlap ")
    assert (folder / "facts.json").read_text() == said.out


def test_stored_experiments_are_shown_again(hotlap, stored):
    tried = Experiment("precision", "bf16", ExperimentState.FASTER, 0.38, Interval(0.31, 0.45), "rounding")
    codec.write_json(stored / "experiments.json", Experiments((tried,), 5.0, "all are decided"))
    for words in (("diagnose", "last"), ("report", "last", "--format", "terminal")):
        shown = hotlap(*words).out
        assert "\nTried on this job\n" in shown and "+38 % (31 to 45)  faster  rounding" in shown
        assert "\n  hotlap run --set precision=bf16 train.py\n" in shown
    (row,) = json.loads(hotlap("diagnose", "last", "--json", "-").out)["experiments"]
    assert (row["state"], row["interval"]) == ("faster", {"low": 0.31, "high": 0.45})
    (stored / "experiments.json").write_text("{")
    assert hotlap("report", "last", "--format", "json").code == 2


def test_no_steady_step_no_diagnosis(hotlap, stored, change_timeline):
    change_timeline(steady_from=10**6)
    said = hotlap("diagnose", "last")
    assert said.code == 2 and "holds no steady step" in said.err


def test_the_script_is_not_run(hotlap, folder):
    (folder / "train.py").unlink()
    assert hotlap("diagnose", "last").code == 0


def test_the_time_grows_no_faster_than_the_run(hotlap, stored, change_timeline):
    def seconds(count: int) -> float:
        (timeline,) = read_timelines(stored / "timeline.arrow")
        change_timeline(steps=repeated(timeline.steps, count))
        begin = time.process_time()
        assert hotlap("diagnose", "last", "--json", "-").code == 0
        return time.process_time() - begin

    seconds(100)  # imports
    short, long = seconds(10_000), seconds(100_000)
    assert long < 30 * short, "ten times the steps, thirty times the time: something looks at steps in pairs"
    assert (stored / "report.html").stat().st_size < 6_000_000


def repeated(steps: Steps, count: int) -> Steps:
    def column(values: Sequence[int]) -> list[int]:
        return [values[index % len(values)] for index in range(count)]

    wall = column(steps.wall)
    start = list(itertools.accumulate(wall[:-1], initial=0))
    stages = {stage: column(values) for stage, values in steps.stages.items()}
    rest = (column(values) for values in (steps.samples, steps.tokens, steps.padded, steps.micro))
    return Steps(start, wall, stages, *rest)
