"""Runs a job under a plan: passes the plan on to its processes, collects what became of it, and starts it again."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hotlap.facts import codec
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.rewrite import Rewriting, is_rewrite
from hotlap.launch import runfolder
from hotlap.launch.environment import child_environment, counted
from hotlap.launch.oom_retry import corrected, left_alone, settled, steps_down
from hotlap.launch.process import Outcome, Signals, run_job
from hotlap.plan.file import write_plan
from hotlap.plan.record import Record, StepDown, pace, read_records, told, wrapped
from hotlap.probe import boundary
from hotlap.sameness.breach import ENDING as BREACH_ENDING
from hotlap.sameness.breach import Breach
from hotlap.sameness.breach import read as read_breaches

_PASSED = "plan.json"
_MOST_STARTS = 12
"""A ladder has fewer rungs than this: a job that still fails fails for another reason."""


@dataclass(frozen=True)
class Ran:
    """How a job went under a plan. `records` are of its last start, `step_downs` of all of them."""

    outcome: Outcome
    plan: Plan
    records: tuple[Record, ...]
    step_downs: tuple[StepDown, ...] = ()
    starts: int = 1
    breaches: tuple[Breach, ...] = ()


def pass_plan(
    folder: Path,
    plan: Plan,
    *,
    asking: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Path:
    """The file that `child_environment(plan=...)` names: JSON, as the training process may not have YAML."""
    path = folder / _PASSED
    passed = {"settings": dict(plan.settings), "asking": asking, "options": dict(options or {})}
    home = passed["home"] = str(Path.cwd())  # which files of rewrites are relative to
    rewrites = {key: value for key, value in plan.settings.items() if is_rewrite(key)}
    if rewrites:
        passed["prepared"] = boundary.attempt(_prepared, rewrites, home) or {}
    codec.write_text(path, json.dumps(passed))
    return path


def _prepared(rewrites: Mapping[str, Any], home: str) -> dict[str, Any]:
    from hotlap.rewriting.hook import prepare

    return prepare([Rewriting.of(*each) for each in rewrites.items()], home)


def run_planned(
    job: Job,
    plan: Plan,
    run: Path,
    options: Mapping[str, Any],
    say: Callable[[str], None],
    *,
    quiet_stdout: bool = False,
    watch: str = "",
) -> Ran:
    """To its end, started again with a corrected plan as long as a setting is to blame.

    With `watch`, the name of a module, its monitors and the probe's taps are in place.
    """
    folder = runfolder.probe_folder(run)
    downs: list[StepDown] = []
    pending: list[StepDown] = []  # made for this start; what they have cost is known when it has run
    failed: tuple[Record, ...] = ()
    write_plan(run / runfolder.PLAN, plan)
    with Signals() as signals:
        for start in range(1, _MOST_STARTS + 1):
            _forget(folder)
            passed = pass_plan(folder, plan, options=options)
            environment = child_environment(folder, plan=passed, taps=bool(watch), watch=watch)
            outcome = run_job(job, environment, lambda _: True, signals, quiet_stdout=quiet_stdout)
            records = records_of(folder)
            downs += settled(pending, failed, records)
            downs += [down for record in records[:1] for down in record.step_downs]
            after = _after_the_run(plan, records, read_breaches(folder))
            again = (
                None if outcome.interrupted or not outcome.exit_code else corrected(outcome, after, records)
            )
            if again is None or start == _MOST_STARTS:
                for line in wrapped(left_alone(outcome, after, records)):
                    say(line)
                return Ran(outcome, after, records, tuple(downs), start, tuple(read_breaches(folder)))
            pending, failed = steps_down(after, again, records), records
            for line in told(pending):
                say(line)
            plan = again
    raise AssertionError("the loop above returns")


def keep(ran: Ran, plan: Plan, run: Path) -> None:
    """What became of the plan, into the run folder; the plan that held in the end, where it is another."""
    codec.write_json(run / runfolder.APPLIED, facts_of(ran))
    faults = [f"rank {record.rank}: {fault}" for record in ran.records for fault in record.faults]
    codec.write_text(run / "log.txt", "".join(f"{line}\n" for line in (*boundary.faults, *faults)))
    if ran.plan.settings != plan.settings:
        write_plan(run / runfolder.CORRECTED, ran.plan)


def facts_of(ran: Ran) -> dict[str, Any]:
    """For `--json` and applied.json: of the process that counts, which is the first rank's."""
    first = ran.records[0] if ran.records else None
    return {
        "schema": codec.SCHEMA,
        "exit_code": ran.outcome.exit_code,
        "starts": ran.starts,
        "steps": first.steps if first else None,
        "steps_per_s": pace(first) if first else None,
        "fitted": codec.to_plain(first.fitted) if first else [],
        "step_downs": codec.to_plain(ran.step_downs),
        "breaches": [asdict(each) for each in ran.breaches],
        "settings": dict(ran.plan.settings),
    }


def records_of(folder: Path) -> tuple[Record, ...]:
    """With the steps that each process has counted, also those since it wrote."""
    steps = counted(folder)
    known = [
        replace(record, steps=steps[record.pid].steps, seconds=steps[record.pid].seconds)
        if record.pid in steps
        else record
        for record in read_records(folder)
    ]
    return tuple(sorted(known, key=lambda each: (not each.steps, each.rank, -each.steps)))


def _after_the_run(plan: Plan, records: tuple[Record, ...], breaches: Sequence[Breach]) -> Plan:
    """The plan with what was replaced while the job ran, and without what served other data."""
    changed = {down.knob: down.after for record in records[:1] for down in record.step_downs}
    broken = {each.knob for each in breaches}
    if not changed and not broken & plan.settings.keys():
        return plan
    settings = {key: value for key, value in {**plan.settings, **changed}.items() if key not in broken}
    return replace(plan, settings=settings, proof=None)


def _forget(folder: Path) -> None:
    """What an earlier start of the job has left."""
    for pattern in ("*.fitted.json", "*.steps", "*.marks", "*.samples", "*.watch.json", f"*{BREACH_ENDING}"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


# Runs a job for its first steps only, to ask where the settings of a plan could act; nothing of it stays applied.


_PATIENCE_S = 30.0
"""After its last step a job may write a checkpoint; one that goes on for longer caught the word to stop."""


def ask(job: Job, plan: Plan) -> tuple[Outcome, tuple[Record, ...]]:
    """How the job ended, and what was found out; what the script prints goes to standard error."""
    with tempfile.TemporaryDirectory(prefix="hotlap-knobs-") as name, Signals() as signals:
        folder = Path(name)
        environment = child_environment(folder, plan=pass_plan(folder, plan, asking=True), taps=False)
        tick = _Patience(folder).tick
        outcome = run_job(job, environment, tick, signals, quiet_stdout=True, ends_with_us=True)
        return outcome, records_of(folder)


class _Patience:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps, self._since = 0, time.monotonic()

    def tick(self, _: int) -> bool:
        """Whether to let the job go on: the steps end it by themselves, long ones one after the other."""
        steps = max((each.steps for each in counted(self._folder).values()), default=0)
        if steps != self._steps or not steps:
            self._steps, self._since = steps, time.monotonic()
        return steps < 2 or time.monotonic() - self._since < _PATIENCE_S
