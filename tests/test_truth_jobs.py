"""The jobs of bench/truth.py: every script renders, knows its place, and runs. What hotlap answers is the bench's."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import hotlap.knobs
from hotlap.facts.diagnosis import HEALTHY, Cause

BENCH = Path(__file__).parents[1] / "bench"
NEW_CAUSES = {"element-loop"}  # planted before a rule knows them


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    sys.path.insert(0, str(BENCH))
    try:
        import truth
    finally:
        sys.path.remove(str(BENCH))
    return truth


@pytest.fixture(scope="module")
def jobs(truth):
    return truth.catalogue()


def test_there_are_enough_of_them_and_no_two_alike(jobs):
    assert len(jobs) >= 120
    assert len({job.name for job in jobs}) == len(jobs)
    assert len({job.script.text for job in jobs}) == len(jobs)
    assert 0.4 < sum(job.sealed for job in jobs) / len(jobs) < 0.6


def test_they_span_families_frameworks_sizes_and_threads(jobs):
    assert len({job.family for job in jobs}) >= 12
    assert {job.framework for job in jobs} == {"raw", "Lightning", "HF Trainer", "Accelerate", "mmengine"}
    assert {job.size for job in jobs} == {0, 1, 2}
    assert {job.threads for job in jobs} == {1, 2}
    assert Counter(len(job.causes) for job in jobs).keys() == {0, 1, 2}


def test_every_script_compiles_and_carries_no_mark(jobs):
    for job in jobs:
        for text in [job.script.text, *(job.mended(cause).text for cause in job.causes)]:
            ast.parse(text, job.name)
            assert not any(mark in text for mark in ("# PLANT", "# FIRST", "# @", "$")), job.name


def test_a_remedy_changes_the_script_or_its_environment(jobs):
    for job in jobs:
        for cause in job.causes:
            mended = job.parts(without=cause)
            changed = job.mended(cause).text != job.script.text
            assert changed or mended.environment != job.parts().environment, job.name


def test_places_are_lines_of_the_script(jobs):
    for job in jobs:
        lines = job.script.text.splitlines()
        assert bool(job.places) == bool(job.first and job.first.placed), job.name
        for low, high in job.places:
            assert 1 <= low <= high <= len(lines), job.name
            assert lines[low - 1].strip(), job.name


def test_causes_and_knobs_are_known_names(jobs):
    known = {*Cause, HEALTHY, *NEW_CAUSES}
    knobs = {path.stem.replace("_", "-") for path in Path(hotlap.knobs.__file__).parent.glob("*.py")}
    for job in jobs:
        assert job.accepted <= known, job.name
        assert set(job.plan) <= knobs, job.name


def view(cause: str, line: int, severity: str = "critical") -> dict:
    where = {"file": "train.py", "line": line}
    return {
        "verdict": cause if severity != "note" else HEALTHY,
        "findings": [{"cause": cause, "severity": severity, "where": where, "fixes": []}],
    }


def test_an_answer_is_scored_by_cause_and_by_line(truth, jobs):
    job = next(job for job in jobs if job.answer == "gc-pauses" and len(job.causes) == 1)
    line = job.places[0][0]
    right = truth.read_answer(job, 0, view("gc-pauses", line))
    beside = truth.read_answer(job, 0, view("gc-pauses", line - 1))
    wrong = truth.read_answer(job, 0, view("host-sync", line))
    assert (right.right(job), right.placed(job)) == (True, True)
    assert (beside.right(job), beside.placed(job)) == (True, False)
    assert (wrong.right(job), wrong.placed(job)) == (False, None)


def test_a_healthy_job_may_be_told_notes_only(truth, jobs):
    job = next(job for job in jobs if not job.causes)
    assert truth.read_answer(job, 0, view("uncompiled", 3, "note")).right(job)
    assert not truth.read_answer(job, 0, view("uncompiled", 3, "warning")).right(job)


def test_sealed_results_are_totals_without_names(truth, jobs, tmp_path):
    sealed = [job for job in jobs if job.sealed]
    results = truth.Results(str(tmp_path / "out.jsonl"))
    for job in sealed:
        results.add(truth.read_answer(job, 0, view("host-sync", 1)))
    again = truth.Results(str(tmp_path / "out.jsonl"))
    assert again.answers == results.answers
    text = "\n".join(truth.totals(sealed, again))
    assert "first finding right: 0 of" in text
    assert not any(job.name in text for job in sealed)


def test_shown_gains_are_read_from_experiments_and_fixes(truth):
    fixes = [{"knob": "compile", "setting": "default", "measured_gain": 0.2, "interval": None}]
    shown = view("uncompiled", 3) | {
        "experiments": [
            {"knob": "precision", "setting": "bf16-mixed", "gain": 0.3, "state": "faster", "interval": None},
            {"knob": "sdpa", "setting": "true", "gain": -0.1, "state": "no-gain", "interval": None},
        ]
    }
    shown["findings"][0]["fixes"] = fixes
    found = [each["settings"] for each in truth.truth_advice.claims(shown)]
    assert found == [{"precision": "bf16-mixed"}, {"compile": "default"}]


def some_open(seed: int = 20) -> list[str]:
    sys.path.insert(0, str(BENCH))
    try:
        from truth_jobs import catalogue
    finally:
        sys.path.remove(str(BENCH))
    plain = [job.name for job in catalogue() if not job.sealed and job.answer != "uncompiled"]
    return random.Random(seed).sample(plain, 3)


@pytest.mark.parametrize("name", some_open())
def test_some_of_them_run(jobs, name, tmp_path):
    job = next(job for job in jobs if job.name == name)
    (tmp_path / "train.py").write_text(job.script.text, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py", "--max-steps", "5"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-1000:]
