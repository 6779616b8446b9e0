"""After a job has failed: whether it is worth another start, with which plan."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.facts.plan import Plan
from hotlap.launch.process import Outcome
from hotlap.seams.record import Record


def corrected(outcome: Outcome, plan: Plan, records: Sequence[Record]) -> Plan | None:  # noqa: ARG001
    """The plan to start the job again with, one step down; None where nothing in the plan is to blame."""
    return None
