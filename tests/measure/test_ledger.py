"""The ledger keeps every trial, survives a kill in mid-line, and never mixes jobs."""

from __future__ import annotations

import pytest

from hotlap.errors import FactError
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.measure.ledger import NAME, Ledger, fingerprint


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
    assert [each.number for each in Ledger(tmp_path, job).trials] == [1]


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
