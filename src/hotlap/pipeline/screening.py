"""Several settings within one process, where start-up is most of a trial: what surely brings nothing is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hotlap.facts.blocks import Schedule
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Status, Trial
from hotlap.facts.verdict import Gain
from hotlap.judge.gain import as_gain
from hotlap.measure.duel import InterruptedSearch, Told
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Bench
from hotlap.measure.screen import ratios, refusals
from hotlap.ports.knob import Knob
from hotlap.propose.search import Candidate, Key, composed

_DOMINATES = 1.0  # times the steady steps: below that a process of its own costs little more
_LEAST, _MOST = 3, 6  # candidates for one process


@dataclass
class Screening:
    """What blocks of steps have shown of each setting beside the present incumbent."""

    gains: dict[Key, Gain] = field(default_factory=dict)
    refused: dict[Key, str] = field(default_factory=dict)
    asked: set[Key] = field(default_factory=set)

    def forget(self) -> None:
        """Another incumbent stands: what was measured beside the old one is no longer known."""
        self.gains.clear()
        self.refused.clear()
        self.asked.clear()

    def suited(
        self, offered: Sequence[Candidate], plan: Plan, knobs: Mapping[str, Knob], last: Trial | None
    ) -> list[Candidate]:
        """Candidates for one process; none where processes of their own are as cheap, or too few can be switched."""
        live = [each for each in offered if each.key not in self.asked and _switches(each, plan, knobs)]
        return live[:_MOST] if len(live) >= _LEAST and last is not None and _starts_long(last) else []

    def measure(
        self,
        bench: Bench,
        ledger: Ledger,
        plan: Plan,
        chosen: Sequence[Candidate],
        knobs: Mapping[str, Knob],
        told: Told,
    ) -> None:
        """What could not be switched, or ended the process, has no gain afterwards: it is tried on its own."""
        self.asked.update(each.key for each in chosen)
        plans = (plan, *(composed(plan, each, knobs) for each in chosen))
        schedule = Schedule(tuple(dict(each.settings) for each in plans))
        screened = bench.screen(ledger.next_number, schedule)
        if screened.trial.status is Status.INTERRUPTED:
            raise InterruptedSearch
        ledger.add(screened.trial)
        told(screened.trial)
        found = ratios(schedule, screened.blocks, screened.seen[0], bench.counts) if screened.seen else {}
        keys = [each.key for each in chosen]
        self.gains |= {keys[number - 1]: as_gain(each, schedule.turns) for number, each in found.items()}
        self.refused |= {keys[number - 1]: why for number, why in refusals(screened.blocks).items()}


def _switches(candidate: Candidate, plan: Plan, knobs: Mapping[str, Knob]) -> bool:
    after = composed(plan, candidate, knobs).settings
    keys = plan.settings.keys() | after.keys()
    changed = [key for key in keys if plan.settings.get(key) != after.get(key)]
    return all(knobs[key].live for key in changed)


def _starts_long(trial: Trial) -> bool:
    if trial.figures is None:
        return False
    steady_s = trial.figures.steps * trial.figures.step_ms / 1e3
    return trial.figures.startup_s >= _DOMINATES * steady_s
