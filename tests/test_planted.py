"""The planted jobs: real scripts, each slow for one reason or for none, profiled as a user would do it.

A script says in its head what is expected of it: `# planted:` the cause that must come first, or `healthy`;
`# profile:` the options of `hotlap profile`; `# launcher:` what starts it, if not Python alone; `# needs:` what the
machine must be like. Where the cause has a place, the line carries `# <- here`. A cause
that only an experiment can show counts as right where it is listed as untested.

Every job runs with one thread (`OMP_NUM_THREADS=1`): two threads that wait for each other on a machine that is shared
with other work measure that work. Freed memory stays in the process, but for the job that plants the opposite: where a
page is dear, most jobs lose time by it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from hotlap.facts.diagnosis import HEALTHY, Basis, Cause
from hotlap.host.machine import inspect_host

FOLDER = Path(__file__).parent / "planted"
SOURCES = Path(__file__).parents[1] / "src"
pytestmark = pytest.mark.alone
RIGHT = 0.95  # of the catalogue
DISTURBED = 0.3  # cores in use by others: such a run is repeated once where it is wrong
HERE = "# <- here"
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34)}

FROM_TIMELINES_ONLY = {
    Cause.HOST_SYNC: "needs an accelerator: on a CPU nothing is in flight that a read could wait for",
    Cause.TRANSFER_EXPOSED: "needs a GPU: on a CPU nothing is copied to a device",
    Cause.PRECISION_UNUSED: "needs a GPU, or a CPU with units for bf16",
    Cause.MEMORY_HEADROOM: "would have to fill the memory of the machine that the tests run on",
}
"""Causes that no script plants. tests/diagnose/rules shows for each of them when it fires and when not."""


@dataclass(frozen=True)
class Job:
    """A planted script and what its head says."""

    script: Path
    expected: str
    options: tuple[str, ...]
    launcher: tuple[str, ...]
    needs: str

    @property
    def line(self) -> int | None:
        lines = self.script.read_text(encoding="utf-8").splitlines()
        return next((number for number, text in enumerate(lines, 1) if text.endswith(HERE)), None)


@dataclass(frozen=True)
class Outcome:
    """What `hotlap profile` made of it."""

    verdict: str
    found: str
    line: int | None
    share: float | None
    step_ms: float
    loud: tuple[str, ...]
    foreign: float
    untested: tuple[str, ...] = ()

    def right(self, job: Job) -> bool:
        """A change that was measured faster is no wrong answer on a healthy job. Where no experiment was made on a
        hypothesis, it must at least be suspected."""
        if job.expected == HEALTHY:
            return not self.loud
        return self.verdict == job.expected or job.expected in self.untested

    def place_right(self, job: Job) -> bool:
        return job.line is None or self.line == job.line or job.expected in self.untested


def read_job(script: Path) -> Job:
    heads = dict(re.findall(r"^# (\w+): (.+)$", script.read_text(encoding="utf-8"), flags=re.MULTILINE))
    return Job(
        script,
        heads["planted"],
        tuple(shlex.split(heads["profile"])),
        tuple(shlex.split(heads.get("launcher", ""))),
        heads.get("needs", ""),
    )


CATALOGUE = tuple(read_job(script) for script in sorted(FOLDER.glob("*.py")))
BF16 = inspect_host().cpu_bf16
RUNNABLE = tuple(job for job in CATALOGUE if not (job.needs and BF16))


def profile(job: Job, folder: Path) -> Outcome:
    command = [str(job.script)] if not job.launcher else ["--", *job.launcher, str(job.script)]
    # What experiments show depends on the machine's other work: bench/truth.py measures how often that is right.
    options = ("--experiments", "off", "--json", "out.json", *job.options)
    hotlap = [sys.executable, "-m", "hotlap", "profile", *options]
    search = os.pathsep.join([str(SOURCES), str(Path(sys.executable).parent)])
    environment = os.environ | {"PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1", "PATH": _path(search)}
    if job.expected != Cause.MEMORY_CHURN:
        environment |= KEPT_MEMORY
    done = subprocess.run(
        [*hotlap, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return read_outcome(json.loads((folder / "out.json").read_text(encoding="utf-8")))


def _path(first: str) -> str:
    return os.pathsep.join([first, os.environ.get("PATH", "")])


def read_outcome(view: dict) -> Outcome:
    first = view["findings"][0] if view["findings"] else None
    where = first["where"] if first else None
    foreign = (view["cpu"] or {}).get("foreign") or 0.0
    return Outcome(
        verdict=view["verdict"],
        found=first["cause"] if first else "",
        line=where["line"] if where else None,
        share=first["share"] if first else None,
        step_ms=view["step"]["ms_median"],
        loud=tuple(
            each["cause"]
            for each in view["findings"]
            if each["severity"] != "note" and each["basis"] != Basis.EXPERIMENT
        ),
        foreign=foreign,
        untested=tuple(each["cause"] for each in view.get("untested", ())),
    )


@cache
def outcome_of(job: Job, folder: Path) -> tuple[Outcome, int]:
    """The outcome and how many runs it took: one that others have disturbed is repeated once where it is wrong."""
    outcome = profile(job, _fresh(folder / job.script.stem))
    if _passes(job, outcome) or outcome.foreign < DISTURBED:
        return outcome, 1
    return profile(job, _fresh(folder / f"{job.script.stem}_again")), 2


def _passes(job: Job, outcome: Outcome) -> bool:
    return outcome.right(job) and outcome.place_right(job) and not _nagged(job, outcome)


def _nagged(job: Job, outcome: Outcome) -> tuple[str, ...]:
    """What a healthy job is told although no change was measured faster."""
    return outcome.loud if job.expected == HEALTHY else ()


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    return lambda job: outcome_of(job, folder)


@pytest.mark.parametrize("job", RUNNABLE, ids=lambda job: job.script.stem)
def test_it_is_profiled_to_its_end(job, outcomes):
    outcome, _ = outcomes(job)
    assert outcome.verdict == HEALTHY or outcome.found == outcome.verdict


def test_the_first_finding_is_right(outcomes):
    results = {job: outcomes(job) for job in RUNNABLE}
    print(table(results))
    wrong = [job.script.stem for job, (outcome, _) in results.items() if not outcome.right(job)]
    assert len(wrong) <= (1 - RIGHT) * len(results), wrong


def test_the_place_is_right_wherever_there_is_one(outcomes):
    placed = [job for job in RUNNABLE if job.line is not None and outcomes(job)[0].right(job)]
    wrong = {
        job.script.stem: outcomes(job)[0].line for job in placed if not outcomes(job)[0].place_right(job)
    }
    assert placed
    assert not wrong


def test_a_healthy_job_is_not_nagged(outcomes):
    healthy = [job for job in RUNNABLE if job.expected == HEALTHY]
    nagged = {job.script.stem: _nagged(job, outcomes(job)[0]) for job in healthy}
    assert len(healthy) >= 5
    assert not any(nagged.values()), nagged


def test_every_cause_is_planted_or_has_a_reason_not_to_be():
    planted = {job.expected for job in CATALOGUE} - {HEALTHY}
    assert planted | set(FROM_TIMELINES_ONLY) == set(Cause)
    assert not planted & set(FROM_TIMELINES_ONLY)


def test_steps_differ_by_more_than_ten_times(outcomes):
    steps = [outcomes(job)[0].step_ms for job in RUNNABLE]
    assert max(steps) > 10 * min(steps)


def table(results: dict[Job, tuple[Outcome, int]]) -> str:
    head = ("script", "expected", "first found", "place", "found at", "share", "step ms", "others' cores", "")
    rows = [head, *(_row(job, outcome, runs) for job, (outcome, runs) in results.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(["", *lines])


def _row(job: Job, outcome: Outcome, runs: int) -> tuple[str, ...]:
    notes = [*([] if _passes(job, outcome) else ["WRONG"]), *(["second run"] if runs > 1 else [])]
    return (
        job.script.stem,
        job.expected,
        outcome.verdict if outcome.verdict == HEALTHY else outcome.found,
        f":{job.line}" if job.line else "-",
        f":{outcome.line}" if outcome.line else "-",
        f"{outcome.share:.0%}" if outcome.share else "-",
        f"{outcome.step_ms:.1f}",
        f"{outcome.foreign:.2f}",
        ", ".join(notes),
    )
