"""Several settings within one process: what surely brings nothing is dropped, what surely pays goes on together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hotlap.facts.blocks import Schedule
from hotlap.facts.counting import count_for
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.facts.verdict import Gain, Ruling
from hotlap.judge.gain import LEAST, LOOKING, as_gain, rule
from hotlap.measure.duel import InterruptedSearch, Told
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Bench
from hotlap.measure.screen import pairs, ratios, refusals
from hotlap.ports.knob import Knob
from hotlap.ports.target import Seam
from hotlap.propose.search import Candidate, Key, composed, side_by_side

_MOST = 6  # candidates for one process
_DUEL = 4  # trials of a candidate in processes of its own: on a restless machine one round is seldom enough
_BLOCK_S, _LOADER_BLOCK_S = 0.12, 0.5  # workers must start, and their queues fill
_BLOCKS_S = 6.0  # of all blocks, where steps are short
_LEAST_TURNS, MOST_TURNS = 2, 6  # in one process
MORE_TURNS = 2  # times, for those that are not decided: blocks of steps tell more for less than processes do
_ENOUGH_TURNS = 6  # in all


@dataclass
class Screening:
    """What blocks of steps have shown of each setting beside the present incumbent."""

    gains: dict[Key, Gain] = field(default_factory=dict)
    refused: dict[Key, str] = field(default_factory=dict)
    pairs: dict[Key, list[float]] = field(default_factory=dict)
    asked: set[Key] = field(default_factory=set)
    apart: bool = False  # what seemed to go together did not

    def forget(self) -> None:
        """Another incumbent stands: what was measured beside the old one is no longer known."""
        self.gains.clear()
        self.pairs.clear()
        self.refused.clear()
        self.asked.clear()
        self.apart = False

    def suited(
        self, offered: Sequence[Candidate], plan: Plan, knobs: Mapping[str, Knob], last: Trial | None
    ) -> list[Candidate]:
        """Candidates for one process; none where processes of their own cost less. Loaders are switched apart from
        the others: their blocks are longer."""
        live = [each for each in offered if each.key not in self.asked and _switches(each, plan, knobs)]
        if not live or last is None or last.figures is None:
            return []
        alike = [each for each in live if _is_loader(each, knobs) == _is_loader(live[0], knobs)][:_MOST]
        return alike if takes_s(plan, alike, knobs, last.figures) < _DUEL * len(alike) * last.seconds else []

    def undecided(self, several: Sequence[Candidate]) -> list[Candidate]:
        """More turns would tell, and no other setting of their knob is surely worth it."""
        rulings = {each.key: rule(self.gains[each.key]) for each in several if each.key in self.gains}
        sure = {each.knob for each in several if rulings.get(each.key) is Ruling.KEEP}
        return [
            each for each in several if each.knob not in sure and rulings.get(each.key) is Ruling.UNDECIDED
        ]

    def hopeless(self, candidate: Candidate) -> bool:
        """It surely brings too little, or no more than so many turns can tell from noise; runs scatter more."""
        gain = self.gains.get(candidate.key)
        if gain is None or gain.value >= LEAST:
            return False
        return rule(gain) is Ruling.DROP or gain.trials >= _ENOUGH_TURNS

    def winners(self, several: Sequence[Candidate], plan: Plan, knobs: Mapping[str, Knob]) -> list[Candidate]:
        """What is surely worth its setting, the best first."""
        shown = [each for each in several if rule(self.gains.get(each.key)) is Ruling.KEEP]
        found = side_by_side(sorted(shown, key=lambda one: -self.gains[one.key].value), plan, knobs)
        return found[:1] if self.apart else found

    def measure(
        self,
        bench: Bench,
        ledger: Ledger,
        plan: Plan,
        chosen: Sequence[Candidate],
        knobs: Mapping[str, Knob],
        told: Told,
        step_ms: float,
    ) -> None:
        """What could not be switched, or ended the process, has no gain afterwards: it is tried on its own."""
        self.asked.update(each.key for each in chosen)
        schedule = _schedule(plan, chosen, knobs, step_ms)
        screened = bench.screen(ledger.next_number, schedule)
        if screened.trial.status is Status.INTERRUPTED:
            raise InterruptedSearch
        ledger.add(screened.trial)
        told(screened.trial)
        keys = [each.key for each in chosen]
        if screened.seen:
            counts = count_for([ledger.figures(plan)]) or bench.counts
            more = pairs(schedule, screened.blocks, screened.seen[0], counts)
            self.learn({keys[number - 1]: each for number, each in more.items()})
        self.refused |= {keys[number - 1]: why for number, why in refusals(screened.blocks).items()}

    def learn(self, more: Mapping[Key, Sequence[float]]) -> None:
        """Ratios of blocks beside those of the incumbent."""
        for key, each in more.items():
            self.pairs.setdefault(key, []).extend(each)
        known = ratios(self.pairs, LOOKING)
        self.gains |= {key: as_gain(found, len(self.pairs[key])) for key, found in known.items()}


def _switches(candidate: Candidate, plan: Plan, knobs: Mapping[str, Knob]) -> bool:
    after = composed(plan, candidate, knobs).settings
    keys = plan.settings.keys() | after.keys()
    changed = [key for key in keys if plan.settings.get(key) != after.get(key)]
    return all(knobs[key].live for key in changed)


def takes_s(plan: Plan, several: Sequence[Candidate], knobs: Mapping[str, Knob], last: Figures) -> float:
    """Seconds for one process with all of them in turn, by the figures of a trial of the incumbent."""
    schedule = _schedule(plan, several, knobs, last.step_ms)
    return last.startup_s + len(schedule.order) * _block_s(schedule, last.step_ms)


def _schedule(plan: Plan, chosen: Sequence[Candidate], knobs: Mapping[str, Knob], step_ms: float) -> Schedule:
    """As many turns as there is time for; long steps have fewer."""
    plans = tuple(dict(each.settings) for each in (plan, *(composed(plan, each, knobs) for each in chosen)))
    block_s = _LOADER_BLOCK_S if _is_loader(chosen[0], knobs) else _BLOCK_S
    once = Schedule(plans, turns=1, block_s=block_s)
    turns = int(_BLOCKS_S / (2 * len(chosen) * _block_s(once, step_ms)))
    return replace(once, turns=max(_LEAST_TURNS, min(MOST_TURNS, turns)))


def _block_s(schedule: Schedule, step_ms: float) -> float:
    return max(schedule.block_s, schedule.least_steps * step_ms / 1e3)


def _is_loader(candidate: Candidate, knobs: Mapping[str, Knob]) -> bool:
    return knobs[candidate.knob].seam is Seam.LOADER
