"""hotlap on jobs whose answers are known, on the device that is here: what `hotlap selftest` runs and judges.

Each job is a process under the commands that a user types. What they write as JSON is compared with what the job
planted and saw itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hotlap.facts import codec
from hotlap.facts.experiment import ExperimentState
from hotlap.facts.host import Host
from hotlap.host.interpreter import job_python
from hotlap.host.machine import inspect_host
from hotlap.stats.compare import ratio

DELAYS = {"data": 30.0, "forward": 36.0, "log": 42.0, "validate": 48.0, "checkpoint": 54.0}  # ms of each step
TRANSFER, TRANSFER_MS = "transfer", 33.0
WITHIN_SHARE, WITHIN_MS = 0.05, 0.3  # of a planted delay: one or the other, as in bench/attribution.py
MOST_OVERHEAD = 0.05  # of a step: missed only where the whole interval is above it
STEPS = 30  # about 18 of them are warm-up
MANY_STEPS = 100_000  # hotlap ends the job after its experiments
EXPERIMENTS = "20s"
RELIEF = ("num-workers", "cache-dataset")  # either takes the sleep of items from the step
PLAN = {"num-workers": 2, "fused-optimizer": "foreach"}
JOB_SECONDS, ENDING_SECONDS = 120.0, 15.0
_ROOT = Path(__file__).parents[2]  # where hotlap is imported from
_JOB = Path(__file__).with_name("selftest_job.py")
_ANSWERS, _VIEW, _REASON_LENGTH = "answers.json", "view.json", 200

Say = Callable[[str], None]


class CheckState(StrEnum):
    """What a check came to. `not-run` has a reason and is no failure."""

    REACHED = "reached"
    MISSED = "missed"
    NOT_RUN = "not-run"


@dataclass(frozen=True)
class SelftestCheck:
    """`family` names the check's words, `figures` fill them; `reason` says why it was not run or has no figures."""

    family: str
    state: CheckState
    figures: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    detail: str = ""


class _JobError(Exception):
    """A job or hotlap itself ended otherwise than it should; what it printed last."""

    def __init__(self, said: str, reason: str = "failed") -> None:
        super().__init__(said)
        self.reason = reason


def selftest(version: str, say: Say) -> dict[str, Any]:
    """All checks on this machine, as the plain data that `--json` prints. `say` gets the family that runs."""
    begun = time.monotonic()
    host = inspect_host()
    with tempfile.TemporaryDirectory(prefix="hotlap-selftest-") as folder:
        bench = _Bench(Path(folder))
        checks = [check for part in _PARTS for check in _attempted(part, bench, say)]
        about = bench.about
    return {
        "schema": codec.SCHEMA,
        "kind": "selftest",
        "hotlap": version,
        "device": about.get("device"),
        "device_name": about.get("name"),
        "host": _shown(host),
        "versions": {**host.versions, **({"torch": about["torch"]} if about else {})},
        "checks": [asdict(check) for check in checks],
        "missed": sum(check.state is CheckState.MISSED for check in checks),
        "seconds": time.monotonic() - begun,
    }


def _shown(host: Host) -> str:
    return f"{host.system}, {host.named}"


class _Bench:
    """A folder in which jobs run, one after the other; `about` is what they say of the device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: Mapping[str, Any] = {}
        shutil.copy(_JOB, folder)

    def alone(self, *arguments: str) -> dict[str, Any]:
        """The answers of a job without hotlap; where it fails, that is no fault of hotlap's."""
        try:
            return self.unwatched(*arguments)
        except _JobError as fault:
            raise _JobError(str(fault), "failed-alone") from None

    def unwatched(self, *arguments: str) -> dict[str, Any]:
        """Of a job that no command of hotlap starts."""
        return self._answers([job_python(), _JOB.name, *arguments])

    def under(self, command: Sequence[str], *arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The answers of a job under a command of hotlap, and what the command wrote."""
        answers = self._answers(self._hotlap(command, arguments))
        return answers, self.written(_VIEW)

    def ended(self, command: Sequence[str], *arguments: str) -> dict[str, Any]:
        """What a command wrote that ends its job, which therefore has no answers."""
        self.run(self._hotlap(command, arguments))
        return self.written(_VIEW)

    def _hotlap(self, command: Sequence[str], arguments: Sequence[str]) -> list[str]:
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        (self.folder / _VIEW).unlink(missing_ok=True)
        words = [sys.executable, "-m", "hotlap", *command, "--out", "run", "--json", _VIEW]
        return [*words, _JOB.name, *arguments]

    def profiled(self, *arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of a whole run under the probe."""
        return self.under(["profile", "--full"], *arguments)

    def written(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / name).read_text()))
        except OSError:
            raise _JobError(f"{name} was not written") from None

    def _answers(self, command: Sequence[str]) -> dict[str, Any]:
        (self.folder / _ANSWERS).unlink(missing_ok=True)
        self.run(command)
        answers = self.written(_ANSWERS)
        self.about = answers
        return answers

    def run(self, command: Sequence[str]) -> None:
        """A group of its own: Ctrl-C comes here first, and is passed on once."""
        job = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": _python_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            _, printed = job.communicate(timeout=JOB_SECONDS)
        except subprocess.TimeoutExpired:
            raise _JobError(f"it had not ended after {JOB_SECONDS:.0f} s") from None
        finally:
            if job.poll() is None:
                _end(job)
        if job.returncode:
            last = next((line for line in reversed(printed.splitlines()) if line.strip()), "")
            raise _JobError(f"exit code {job.returncode}: {last.strip()[:_REASON_LENGTH]}")


def _python_path() -> str:
    """Absolute, since jobs run in another folder."""
    given = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(str(Path(each).absolute()) for each in given.split(os.pathsep) if each)


def _end(job: subprocess.Popen[str]) -> None:
    """hotlap ends its own job when it is interrupted; what is left after that is killed."""
    job.send_signal(signal.SIGINT)
    try:
        job.communicate(timeout=ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


@dataclass(frozen=True)
class _Part:
    """Checks that share their jobs, of one or more families."""

    families: tuple[str, ...]
    checks: Callable[[_Bench], Iterator[SelftestCheck]]


def _attempted(part: _Part, bench: _Bench, say: Say) -> Iterator[SelftestCheck]:
    """A part that fails is missed, with what was printed last; the others go on."""
    say(part.families[0])
    open_families = list(part.families)
    try:
        for check in part.checks(bench):
            open_families = [each for each in open_families if each != check.family]
            yield check
    except _JobError as fault:
        state = CheckState.MISSED if fault.reason == "failed" else CheckState.NOT_RUN
        for family in open_families:
            yield SelftestCheck(family, state, reason=fault.reason, detail=str(fault))


def _judged(reached: bool) -> CheckState:
    return CheckState.REACHED if reached else CheckState.MISSED


def _trained(bench: _Bench) -> Iterator[SelftestCheck]:
    """Attribution and sameness: the same job alone, under the probe, and under it with delays."""
    job = ("stages", "--steps", str(STEPS))
    alone, again = bench.alone(*job), bench.alone(*job)
    accelerated = alone["device"] != "cpu"
    delays = {**DELAYS, **({TRANSFER: TRANSFER_MS} if accelerated else {})}
    plain, plain_view = bench.profiled(*job)
    slowed, slowed_view = bench.profiled(*job, "--delays", json.dumps(delays))
    before, after = (_stages(view) for view in (plain_view, slowed_view))
    for stage, planted in slowed["planted"].items():
        booked = after.get(stage, 0.0) - before.get(stage, 0.0)
        right = abs(booked - planted) <= max(WITHIN_SHARE * planted, WITHIN_MS)
        figures = {"stage": stage, "planted": planted, "booked": booked}
        yield SelftestCheck("attribution", _judged(right), figures)
    if not accelerated:
        yield SelftestCheck("attribution", CheckState.NOT_RUN, {"stage": TRANSFER}, "no-accelerator")
    if alone["parameters"] != again["parameters"]:
        yield SelftestCheck("sameness", CheckState.NOT_RUN, {"steps": STEPS}, "not-repeatable")
        return
    same = plain["parameters"] == slowed["parameters"] == alone["parameters"]
    yield SelftestCheck("sameness", _judged(same), {"steps": STEPS, "same": "same" if same else "different"})


def _stages(view: Mapping[str, Any]) -> dict[str, float]:
    if not view.get("stages"):
        raise _JobError(f"the profile has no stages: {view.get('reason')}")
    return {stage: each["p50"] for stage, each in view["stages"].items()}


def _overhead(bench: _Bench) -> Iterator[SelftestCheck]:
    """With the probe and without in turns, in one process."""
    seconds = bench.unwatched("overhead", "--hotlap", str(_ROOT))
    found = ratio(seconds["without"], seconds["with"])
    figures = {
        "most": MOST_OVERHEAD,
        "step_ms": min(seconds["without"]) * 1e3,
        "cost": found.value - 1,
        "low": found.low - 1,
        "high": found.high - 1,
    }
    yield SelftestCheck("overhead", _judged(found.low - 1 <= MOST_OVERHEAD), figures)


def _experiment(bench: _Bench) -> Iterator[SelftestCheck]:
    """Items that sleep are found to be the brake, by experiments in the running job."""
    view = bench.ended(["profile", "--experiments", EXPERIMENTS], "workers", "--steps", str(MANY_STEPS))
    tried = view.get("experiments") or []
    known = [each for each in tried if each["knob"] in RELIEF and each["gain"] is not None]
    faster = [each for each in known if each["state"] == ExperimentState.FASTER]
    if faster:
        best = max(faster, key=lambda each: float(each["gain"]))
        times = {"times": 1 + best["gain"], **{side: 1 + each for side, each in best["interval"].items()}}
        figures = {"change": f"{best['knob']}={best['setting']}", **times}
        yield SelftestCheck("experiment", CheckState.REACHED, figures)
        return
    disturbed = next(
        (each for each in known if each["state"] == ExperimentState.UNDECIDED and each["reason"]), None
    )
    if disturbed is not None:
        yield SelftestCheck("experiment", CheckState.NOT_RUN, {}, "undecided", disturbed["reason"])
        return
    said = "; ".join(f"{each['knob']}={each['setting']}: {each['state']} {each['reason']}" for each in tried)
    yield SelftestCheck("experiment", CheckState.MISSED, {}, "none-faster", said[:_REASON_LENGTH])


def _knobs(bench: _Bench) -> Iterator[SelftestCheck]:
    """Settings of a plan act: applied.json says so, and so does what the job saw."""
    plan = "".join(f"  {knob}: {setting}\n" for knob, setting in PLAN.items())
    (bench.folder / "plan.yaml").write_text(f"hotlap: 1\nsettings:\n{plan}")
    answers, _ = bench.under(["run", "--plan", "plan.yaml"], "workers", "--steps", str(STEPS))
    applied = {each["knob"]: each for each in bench.written("run/applied.json")["fitted"]}
    seen = {"num-workers": answers["by_workers"] == answers["items"], "fused-optimizer": answers["foreach"]}
    for knob, setting in PLAN.items():
        fitted = applied.get(knob, {"acts": False, "reason": "applied.json does not list it"})
        acts, told = bool(fitted["acts"]), bool(seen[knob])
        figures = {"setting": f"{knob}={setting}", "applied": _yes(acts), "seen": _yes(told)}
        yield SelftestCheck("knob", _judged(acts and told), figures, detail=fitted["reason"])


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


_PARTS = (
    _Part(("attribution", "sameness"), _trained),
    _Part(("overhead",), _overhead),
    _Part(("experiment",), _experiment),
    _Part(("knob",), _knobs),
)
