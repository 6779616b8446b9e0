"""After a job has failed: whether it is worth another start, with which plan, and what that start has cost.

Out of memory (an exception of the allocator, or a process killed by the kernel) the micro-batch shrinks by the factor
by which accumulation grows: to half, or to the next smaller part where a half would not be whole. The effective
batch stays as it was.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hotlap.facts.plan import Plan
from hotlap.launch.process import Outcome
from hotlap.plan.record import Record, StepDown
from hotlap.seams.faults import KILLED, OUT_OF_MEMORY

BATCH, ACCUMULATE = "batch-size", "accumulate"
_KILLED_CODE = 128 + signal.SIGKILL if hasattr(signal, "SIGKILL") else 137


def corrected(outcome: Outcome, plan: Plan, records: Sequence[Record]) -> Plan | None:
    """The plan to start the job again with, one step down; None where nothing in the plan is to blame."""
    what = _out_of_memory(outcome, records)
    return None if not what or _obstacle(plan, records) else _smaller(plan, records, what)


def left_alone(outcome: Outcome, plan: Plan, records: Sequence[Record]) -> str:
    """Why a job that ran out of memory is not started again; empty where it is, or where it failed otherwise."""
    failed = outcome.exit_code and not outcome.interrupted
    what = _out_of_memory(outcome, records) if failed else ""
    obstacle = _obstacle(plan, records) if what else ""
    return f"{what}, and it is not started again: {obstacle}" if obstacle else ""


def steps_down(before: Plan, after: Plan, records: Sequence[Record]) -> list[StepDown]:
    """What another start changes, to be told before it. A setting that the plan had not was the script's own."""
    own = {BATCH: _noted(records, "batch"), ACCUMULATE: 1}
    return [
        StepDown(
            key,
            before.settings.get(key, own.get(key)),
            value,
            after.reasons.get(key, ""),
            _steps(records) + 1,
        )
        for key, value in after.settings.items()
        if before.settings.get(key) != value
    ]


def settled(downs: Sequence[StepDown], failed: Sequence[Record], records: Sequence[Record]) -> list[StepDown]:
    """With the steps that were lost by a start that failed: known once the job has begun again, or not at all.

    A script that read a checkpoint before its first step has gone on from the last one that it saved.
    """
    made, saved = _steps(failed), _noted(failed, "saved")
    resumed = bool(_noted(records, "loaded"))
    return [replace(down, lost=made - saved if resumed and saved else made) for down in downs]


def _out_of_memory(outcome: Outcome, records: Sequence[Record]) -> str:
    """What happened, in words; empty where it was something else."""
    kinds = {(record.notes.get("fault") or {}).get("kind") for record in records}
    if OUT_OF_MEMORY in kinds:
        return "out of memory"
    if KILLED in kinds or outcome.exit_code == _KILLED_CODE:
        return "killed, as the kernel does when memory runs out"
    return ""


def _obstacle(plan: Plan, records: Sequence[Record]) -> str:
    """What stands against smaller batches with the same effective batch."""
    asked, batch, times = plan.settings.get(BATCH), _batch(plan, records), _times(plan)
    optimizers: list[str] = max(
        (record.notes.get("optimizers", []) for record in records), key=len, default=[]
    )
    if batch is None:
        return "no DataLoader gives batches that could be made smaller"
    if asked not in (None, batch):
        return f"its batches of {batch} are not those of the plan, as batch-size could not act"
    if len(optimizers) != 1 or "LBFGS" in optimizers:
        has = f"has {', '.join(optimizers)}" if optimizers else "has no optimizer of torch"
        return f"accumulate cannot keep the effective batch, as the script {has}"
    if _next_whole(batch * times, times) is None:
        return "batches of one sample cannot be made smaller; grad-checkpointing or precision may help"
    return ""


def _smaller(plan: Plan, records: Sequence[Record], what: str) -> Plan | None:
    batch, before = _batch(plan, records), _times(plan)
    times = _next_whole(batch * before, before) if batch else None
    if not batch or not times:
        return None
    changed = {BATCH: batch * before // times, ACCUMULATE: times}
    reasons = {
        BATCH: f"{what}; it starts again, and {_loss(records)}",
        ACCUMULATE: f"an optimizer step still takes {batch * before} samples",
    }
    return Plan({**plan.settings, **changed}, None, {**plan.reasons, **reasons})


def _batch(plan: Plan, records: Sequence[Record]) -> int | None:
    found = _noted(records, "batch") or plan.settings.get(BATCH)
    return found if isinstance(found, int) else None


def _times(plan: Plan) -> int:
    return int(plan.settings.get(ACCUMULATE, 1))


def _next_whole(effective: int, times: int) -> int | None:
    """The least accumulation, at least twice as long, that divides the effective batch; None for single samples."""
    return next((each for each in range(2 * times, effective + 1) if effective % each == 0), None)


def _loss(records: Sequence[Record]) -> str:
    made, saved = _steps(records), _noted(records, "saved")
    if not made:
        return "no step is lost"
    if not saved:
        return f"nothing was saved, so what it had trained is lost ({made} of its steps)"
    return f"the steps since it saved at step {saved} are lost ({made - saved}), or all {made} if it does not resume"


def _steps(records: Sequence[Record]) -> int:
    return records[0].steps if records else 0


def _noted(records: Sequence[Record], key: str) -> Any:
    return next((record.notes[key] for record in records if key in record.notes), None)
