"""The ledger keeps every trial, survives a kill in mid-line, and never mixes jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.errors import FactError
from hotlap.facts.diagnosis import Interval
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Goal, Status, Trial
from hotlap.facts.verdict import Gain, Guarded, KnobVerdict, Ruling, Sameness
from hotlap.measure.ledger import NAME, Answered, Ledger, Ruled, fingerprint


@pytest.fixture
def job(tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    return Job(("python", "train.py"), str(tmp_path), "train")


def trial(number, rate, status=Status.DONE, **settings):
    figures = Figures(rate, "samples", 5.0, 1.0, 8.0, 1 << 20, 0.8, 0.0, 1.0, 0.1, 60)
    return Trial(
        number,
        Plan(settings),
        status,
        2.0,
        figures if status is Status.DONE else None,
        refused={"tf32": "no GPU"},
    )


def test_trials_are_read_back_as_they_were(tmp_path, job):
    kept = [trial(1, 10.0), trial(2, 20.0, precision="bf16-mixed"), trial(3, 0.0, Status.DEAD)]
    ledger = Ledger(tmp_path, job)
    for each in kept:
        ledger.add(each)
    again = Ledger(tmp_path, job)
    assert again.trials == kept
    assert again.next_number == 4


def test_rates_are_of_equal_settings_and_of_trials_that_ended_well(tmp_path, job):
    ledger = Ledger(tmp_path, job)
    for each in (
        trial(1, 10.0),
        trial(2, 11.0),
        trial(3, 30.0, compile="default"),
        trial(4, 0.0, Status.HUNG),
    ):
        ledger.add(each)
    assert ledger.rates(Plan()) == [10.0, 11.0]
    assert ledger.rates(Plan({"compile": "default"})) == [30.0]
    assert sorted(map(len, ledger.groups())) == [1, 2]


def test_a_line_that_a_kill_has_torn_is_left_out(tmp_path, job):
    Ledger(tmp_path, job).add(trial(1, 10.0))
    with (tmp_path / NAME).open("a") as file:
        file.write('{"schema": 1, "job": "')
    again = Ledger(tmp_path, job)
    assert [each.number for each in again.trials] == [1]
    again.add(trial(2, 11.0))
    assert [each.number for each in Ledger(tmp_path, job).trials] == [1, 2]


def test_a_line_torn_in_the_middle_is_refused(tmp_path, job):
    ledger = Ledger(tmp_path, job)
    ledger.add(trial(1, 10.0))
    path = tmp_path / NAME
    path.write_text("{torn\n" + path.read_text())
    with pytest.raises(FactError, match="line 1"):
        Ledger(tmp_path, job)


def test_the_ledger_of_another_job_is_refused(tmp_path, job):
    Ledger(tmp_path, job).add(trial(1, 10.0))
    other = Job((*job.argv, "--epochs", "3"), job.cwd, job.name)
    with pytest.raises(FactError, match="another job"):
        Ledger(tmp_path, other)


def test_an_edited_script_is_another_job(tmp_path, job):
    before = fingerprint(job)
    (tmp_path / "train.py").write_text("print(2)\n")
    assert fingerprint(job) != before


def test_verdicts_are_read_back_with_the_wish_they_were_made_for(tmp_path, job):
    gain = Gain(0.5, Interval(0.4, 0.6), 4)
    guard = Guarded(Sameness.SAME, "bitwise", "bit-equal", 24, 1)
    kept = KnobVerdict(
        "batch-size", 64, Ruling.KEEP, gain, guard=guard, beside={"scale-lr": "sqrt"}, bound=0.4
    )
    ledger = Ledger(tmp_path, job)
    ledger.add(trial(1, 10.0))
    ledger.rule(Ruled("speed", kept, {"batch-size": 64, "scale-lr": "sqrt"}))
    ledger.add(trial(2, 12.0))
    again = Ledger(tmp_path, job)
    assert again.ruled == [Ruled("speed", kept, {"batch-size": 64, "scale-lr": "sqrt"})]
    assert [each.number for each in again.trials] == [1, 2]


def test_what_the_guard_has_said_is_read_back(tmp_path, job):
    said = Answered({"batch-size": 64}, Guarded(Sameness.SAME, "statistical", "made up", 24, 8))
    Ledger(tmp_path, job).answer(said)
    assert Ledger(tmp_path, job).answered == [said]


def test_disturbed_trials_count_only_where_there_are_no_others(tmp_path, job):
    busy = trial(1, 5.0)
    busy = replace(busy, figures=replace(busy.figures, foreign_cores=1.5))
    ledger = Ledger(tmp_path, job)
    ledger.add(busy)
    assert ledger.rates(Plan()) == [5.0]
    ledger.add(trial(2, 10.0))
    assert ledger.rates(Plan()) == [10.0]


def test_compiling_takes_what_it_took_the_first_time(tmp_path, job):
    ledger = Ledger(tmp_path, job)
    for number, seconds in ((1, 30.0), (2, 1.5)):
        one = trial(number, 10.0, compile="default")
        ledger.add(replace(one, figures=replace(one.figures, compile_s=seconds)))
    assert ledger.compile_s(Plan({"compile": "default"})) == 30.0
    assert ledger.compile_s(Plan()) == 0.0


def test_what_trials_are_worth_is_for_the_goal_to_say(tmp_path, job):
    ledger = Ledger(tmp_path, job)
    small = trial(1, 10.0)
    ledger.add(small)
    large = trial(2, 14.0, compile="default")
    ledger.add(replace(large, figures=replace(large.figures, memory_bytes=2 << 20)))
    plans = Plan(), Plan({"compile": "default"})
    gains = {goal: ledger.rates(plans[1], goal)[0] / ledger.rates(plans[0], goal)[0] for goal in Goal}
    assert gains[Goal.SPEED] == pytest.approx(1.4)
    assert gains[Goal.BALANCED] == pytest.approx(1.4 / 2**0.5)
    assert gains[Goal.MEMORY] == pytest.approx(0.5)


def test_a_ledger_from_before_experiments_is_readable(tmp_path, job):
    """It has screened trials, and verdicts with predictions."""
    ledger = Ledger(tmp_path, job)
    ledger.rule(Ruled("speed", KnobVerdict("precision", "bf16-mixed", Ruling.DROP, reason="it is slower")))
    ledger.add(trial(1, 10.0))
    path = tmp_path / "ledger.jsonl"
    old = path.read_text().replace('"live": false', '"live": true, "predicted": 0.3, "beside_all": true')
    path.write_text(old.replace('"status": "done"', '"status": "screened"'))
    again = Ledger(tmp_path, job)
    assert [each.verdict.live for each in again.ruled] == [True]
    assert again.of(Plan()) == []
