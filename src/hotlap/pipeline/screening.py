"""Several settings within one process: what surely brings nothing is dropped, what surely pays goes on together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hotlap.facts.blocks import Schedule
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Status, Trial
from hotlap.facts.verdict import Gain, Ruling
from hotlap.judge.gain import as_gain, rule
from hotlap.measure.duel import InterruptedSearch, Told
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Bench
from hotlap.measure.screen import ratios, refusals
from hotlap.ports.knob import Knob
from hotlap.ports.target import Seam
from hotlap.propose.search import Candidate, Key, composed

_MOST = 6  # candidates for one process
_ROUND = 2  # trials in which a candidate would meet the incumbent in processes of their own
_BLOCK_S, _LOADER_BLOCK_S = 0.25, 0.5  # workers must start, and their queues fill


@dataclass
class Screening:
    """What blocks of steps have shown of each setting beside the present incumbent."""

    gains: dict[Key, Gain] = field(default_factory=dict)
    refused: dict[Key, str] = field(default_factory=dict)
    asked: set[Key] = field(default_factory=set)
    apart: bool = False  # what seemed to go together did not

    def forget(self) -> None:
        """Another incumbent stands: what was measured beside the old one is no longer known."""
        self.gains.clear()
        self.refused.clear()
        self.asked.clear()

    def suited(
        self, offered: Sequence[Candidate], plan: Plan, knobs: Mapping[str, Knob], last: Trial | None
    ) -> list[Candidate]:
        """Candidates for one process; none where processes of their own cost less."""
        live = [each for each in offered if each.key not in self.asked and _switches(each, plan, knobs)][
            :_MOST
        ]
        if not live or last is None or last.figures is None:
            return []
        schedule = _schedule(plan, live, knobs)
        block_s = max(schedule.block_s, schedule.least_steps * last.figures.step_ms / 1e3)
        takes_s = last.figures.startup_s + len(schedule.order) * block_s
        return live if takes_s < _ROUND * len(live) * last.seconds else []

    def winners(self, several: Sequence[Candidate], plan: Plan, knobs: Mapping[str, Knob]) -> list[Candidate]:
        """What is surely worth its setting, the best first; of each knob one, and none that clashes with another."""
        shown = [each for each in several if rule(self.gains.get(each.key)) is Ruling.KEEP]
        found: list[Candidate] = []
        for each in sorted(shown, key=lambda one: -self.gains[one.key].value):
            before = together(plan, found, knobs)
            if each.knob not in {other.knob for other in found} and (
                before.settings.items() <= composed(before, each, knobs).settings.items()
            ):
                found.append(each)
        return found[:1] if self.apart else found

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
        schedule = _schedule(plan, chosen, knobs)
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


def together(plan: Plan, group: Sequence[Candidate], knobs: Mapping[str, Knob]) -> Plan:
    """The plan with all of them."""
    for each in group:
        plan = composed(plan, each, knobs)
    return plan


def _schedule(plan: Plan, chosen: Sequence[Candidate], knobs: Mapping[str, Knob]) -> Schedule:
    plans = (plan, *(composed(plan, each, knobs) for each in chosen))
    loader = any(knobs[each.knob].seam is Seam.LOADER for each in chosen)
    block_s = _LOADER_BLOCK_S if loader else _BLOCK_S
    return Schedule(tuple(dict(each.settings) for each in plans), block_s=block_s)
