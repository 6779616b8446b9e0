"""Runs a job under a plan: passes the plan on to its processes, collects what became of it, and starts it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hotlap.facts import codec
from hotlap.facts.blocks import Schedule
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.launch import runfolder
from hotlap.launch.again import corrected, left_alone, settled, steps_down
from hotlap.launch.counter import counted
from hotlap.launch.environment import child_environment
from hotlap.launch.process import Outcome, Signals, run_job
from hotlap.probe import boundary
from hotlap.seams.plan_file import write_plan
from hotlap.seams.record import Record, StepDown, pace, read_records
from hotlap.seams.telling import told, wrapped

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


def pass_plan(
    folder: Path,
    plan: Plan,
    *,
    asking: bool = False,
    options: Mapping[str, Any] | None = None,
    schedule: Schedule | None = None,
) -> Path:
    """The file that `child_environment(plan=...)` names: JSON, as the training process may not have YAML.

    With a `schedule` its plans are put in place in turn, beginning with the first.
    """
    path = folder / _PASSED
    passed = {"settings": dict(plan.settings), "asking": asking, "options": dict(options or {})}
    if schedule is not None:
        passed["schedule"] = codec.to_plain(schedule)
    codec.write_text(path, json.dumps(passed))
    return path


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
            after = _after_the_run(plan, records)
            again = (
                None if outcome.interrupted or not outcome.exit_code else corrected(outcome, after, records)
            )
            if again is None or start == _MOST_STARTS:
                for line in wrapped(left_alone(outcome, after, records)):
                    say(line)
                return Ran(outcome, after, records, tuple(downs), start)
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


def _after_the_run(plan: Plan, records: tuple[Record, ...]) -> Plan:
    """The plan with what was replaced while the job ran."""
    changed = {down.knob: down.after for record in records[:1] for down in record.step_downs}
    return replace(plan, settings={**plan.settings, **changed}, proof=None) if changed else plan


def _forget(folder: Path) -> None:
    """What an earlier start of the job has left."""
    for pattern in ("*.fitted.json", "*.steps", "*.marks", "*.samples", "*.watch.json"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
