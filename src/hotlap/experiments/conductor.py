"""Leads experiments from outside: asks the job for rounds of blocks until all is decided or the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hotlap.experiments.analysis import (
    LEAST_TURNS,
    ORIGINAL,
    Change,
    ChangeTrial,
    LabelledBlock,
    ratio_of,
    ratios,
)
from hotlap.facts.experiment import (
    ALL_DECIDED,
    HELD,
    READY,
    Experiment,
    Experiments,
    ExperimentState,
    Round,
    StepBlock,
    read_blocks,
    read_failure,
    write_round,
)
from hotlap.facts.rewrite import shown_setting

TIME_IS_UP = "the time for experiments was up"
NOT_READY, ENDED_IT = "it was not ready in time", "the job ended while it was tried"
ENDED_EARLY, SCRIPT_FAILED = "the script ended as its experiments began", "the script failed with"
SMALLER_FIRST = "a smaller one has to pay first"
CROWDED = "other processes used the cores whose use it changes"
_OF_CORES = ("compute-threads", "num-workers", "worker-threads")  # what they bring depends on free cores
_BLOCK_S = 0.25  # of measured steps
_FEW, _MANY = 6, 400  # steps of a block, where they are long and short
_SLOW_S, _FEW_SLOW = 0.3, 3  # where steps are so long, so many make a block
_WITH_SETTLING = 1.5  # times what is measured
_IN_A_ROUND = 4  # changes
_CUT_AFTER = 4.0  # times as long as the original's block
_FOR_LAST = 0.45  # of the time is kept for what comes last
_BUILDING_S = 12.0  # must be left for a change that is built
_GRACE_S = 5.0  # at the end, for a block that is under way, and for the word to end to reach every rank
_LEAD_S = 3.0  # that a round needs to reach every rank


@dataclass(frozen=True)
class MeasuredJob:
    """What is known of the job when its window is measured. `beside_ns`: see `analysis.ratios`. `epoch_steps`: an epoch
    is as long, where that is known; workers are started in each."""

    pid: int
    world: int
    step_s: float
    beside_ns: float
    changes: tuple[Change, ...]
    epoch_steps: float = 0.0
    crowded: bool = False  # other processes keep the cores busy


class Conductor:
    """Called several times a second while the job runs. `look` tells of the job once its window is measured.

    With `one_turn_each` the time is extended so that each change can take a turn.
    """

    def __init__(
        self,
        folder: Path,
        seconds: float,
        look: Callable[[], MeasuredJob | None],
        made: Callable[[], int],
        say: Callable[[str], None],
        *,
        one_turn_each: bool = False,
    ) -> None:
        self._one_turn_each = one_turn_each
        self._folder, self._seconds, self._look, self._made, self._say = folder, seconds, look, made, say
        self._job: MeasuredJob | None = None
        self._trials: list[ChangeTrial] = []
        self._began = 0.0
        self._round = 0
        self._asked: list[tuple[int, ChangeTrial | None]] = []  # of the round under way: its variants
        self._order: tuple[int, ...] = ()
        self._seen: list[LabelledBlock] = []
        self._read = 0  # blocks
        self._dropped: set[int] = set()
        self._ended = ""

    @property
    def begun(self) -> bool:
        """The window is measured, and the job is asked for rounds."""
        return self._job is not None

    @property
    def overdue(self) -> bool:
        """The job does not come back from what it was asked: it has to be ended."""
        return bool(self._began) and not self._ended and self._left < -self._grace_s

    def tick(self) -> None:
        if self._ended:
            return
        if self._job is None:
            self._begin()
        elif self._round_is_over():
            self._next()

    def results(self) -> Experiments | None:
        """None where the window was not measured."""
        failed = read_failure(self._folder)
        if self._job is None:
            why = f"{SCRIPT_FAILED} {failed}" if failed else ENDED_EARLY
            return Experiments(ended=why) if failed or any(self._folder.glob(f"*.{HELD}")) else None
        self._round_is_over()
        under_way = next((trial for _, trial in self._asked if trial is not None and not self._ended), None)
        ended = f"{SCRIPT_FAILED} {failed}" if failed else self._ended
        if under_way is not None:
            shown = shown_setting(under_way.change.knob, under_way.change.setting)
            late = self._left < 0
            if failed:
                ended = f"{SCRIPT_FAILED} {failed} under {shown}"
            else:
                ended = (
                    f"{shown} was not ready when the time was up" if late else f"the job ended under {shown}"
                )
            if under_way.state is ExperimentState.NOT_TRIED:
                under_way.refused = NOT_READY if late else ENDED_IT
        tried = [trial.result(self._needless(trial) or ended or TIME_IS_UP) for trial in self._trials]
        if self._job.crowded:
            tried = [_doubted(each) for each in tried]
        tried.sort(key=lambda each: -(each.gain if each.gain is not None else -9.0))
        return Experiments(tuple(tried), time.monotonic() - self._began, ended)

    # -- rounds ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not any(self._folder.glob(f"*.{READY}")):
            return
        self._job = self._look()
        if self._job is None:  # there is no steady step to hold anything against
            self._end("no steady step was seen")
            return
        self._began = time.monotonic()
        self._trials = [ChangeTrial(change) for change in self._job.changes]
        if self._one_turn_each:
            self._seconds = max(self._seconds, self._block_s + len(self._trials) * self._turn_s)
        self._next()

    def _next(self) -> None:
        chosen = self._choose()
        if not chosen:
            left = any(trial.pending and not self._needless(trial) for trial in self._trials)
            self._end(TIME_IS_UP if left else ALL_DECIDED)
            return
        assert self._job is not None
        self._round += 1
        self._asked = [(ORIGINAL, None), *((self._trials.index(trial), trial) for trial in chosen)]
        self._order = (0, *(each for position in range(1, len(self._asked)) for each in (position, 0)))
        for trial in chosen:
            trial.asked += 1
        names = ", ".join(shown_setting(each.change.knob, each.change.setting) for each in chosen)
        self._say(f"experiments: {names} ({max(0.0, self._left):.0f} s left)")
        several = self._job.world > 1
        write_round(
            self._folder,
            self._round,
            Round(
                ({}, *(dict(trial.change.settings) for trial in chosen)),
                self._order,
                self._steps,
                0.0 if several else _CUT_AFTER * self._block_s,
                self._begin_at,
                self._done(),
            ),
        )

    def give_up(self, why: str) -> None:
        """The job is to end, whatever is under way."""
        if not self._ended:
            self._end(why)

    def _end(self, why: str) -> None:
        self._ended = why
        write_round(self._folder, self._round + 1, Round(last=True, begin=self._begin_at))

    @property
    def _begin_at(self) -> int:
        """Several ranks must hear of a round before the step with which it begins."""
        if self._job is None or self._job.world < 2:
            return 0
        return self._made() + 1 + int(_LEAD_S / max(self._job.step_s, 1e-4))

    def _done(self) -> tuple[dict[str, object], ...]:
        """Variants that take no more turns."""
        over = {number for number, trial in enumerate(self._trials) if trial.asked and not trial.pending}
        new = over - self._dropped
        self._dropped |= over
        return tuple(dict(self._trials[number].change.settings) for number in sorted(new))

    def _round_is_over(self) -> bool:
        """Reads what has come since; True when all blocks of the round have."""
        if self._job is None:
            return False
        blocks = read_blocks(self._folder, self._job.pid)
        for block in blocks[self._read :]:
            self._take(block)
        new = len(blocks) > self._read
        self._read = len(blocks)
        if new:
            self._judge()
        return not self._order

    def _take(self, block: StepBlock) -> None:
        if block.round != self._round or block.variant >= len(self._asked):
            return
        number, trial = self._asked[block.variant]
        if trial is not None and block.refused:
            trial.refused = block.refused
            self._order = tuple(each for each in self._order if each != block.variant)
            return
        if trial is not None:
            trial.numerics = block.numerics or trial.numerics
            trial.settling_ns.append(block.settling_ns)
        each_ns = round(block.start_ns / self._job.epoch_steps) if self._job and self._job.epoch_steps else 0
        walls = tuple(wall + each_ns for wall in block.walls)
        self._seen.append(LabelledBlock(number, replace(block, walls=walls)))
        at = self._order.index(block.variant) if block.variant in self._order else -1
        self._order = self._order[:at] + self._order[at + 1 :] if at >= 0 else self._order

    def _judge(self) -> None:
        assert self._job is not None
        found, scatter = ratios(self._seen, self._job.beside_ns)
        for number, several in found.items():
            self._trials[number].ratios = several
            self._trials[number].ratio = ratio_of(several, scatter)

    # -- what comes next ----------------------------------------------------------------------------------------

    def _choose(self) -> list[ChangeTrial]:
        """Changes of the next round, as many as there is time for."""
        pending = [trial for trial in self._trials if trial.pending and not self._needless(trial)]
        first = [trial for trial in pending if not trial.change.comes_last]
        last = [trial for trial in pending if trial.change.comes_last]
        kept_s = _FOR_LAST * self._seconds if last else 0.0
        untried = [trial for trial in first if not trial.asked]
        rest = sorted((trial for trial in first if trial.asked), key=lambda trial: -trial.promise)
        chosen = self._affordable([*untried, *rest][:_IN_A_ROUND], kept_s if not untried else kept_s / 2)
        if chosen or not last:
            return chosen
        # A build may take all that is left: what is half measured is decided before it.
        last.sort(key=lambda trial: (trial.asked >= LEAST_TURNS, trial.change.comes_last))
        return self._affordable(last[:1], 0.0)

    def _needless(self, trial: ChangeTrial) -> str:
        """Why it is not tried: a larger batch after one that brought nothing, or a build that takes longer than there
        is time."""
        change = trial.change
        if change.knob == "compile" and not trial.asked and self._left < _BUILDING_S:
            return TIME_IS_UP
        smaller = [
            other
            for other in self._trials
            if other.change.knob == change.knob == "batch-size" and other.change.setting < change.setting
        ]
        return "" if all(other.state is ExperimentState.FASTER for other in smaller) else SMALLER_FIRST

    def _affordable(self, several: Sequence[ChangeTrial], kept_s: float) -> list[ChangeTrial]:
        count = int((self._left - kept_s - self._block_s) / self._turn_s)
        return list(several[: max(0, count)])

    @property
    def _turn_s(self) -> float:
        """A block of a change, and one of the original beside it."""
        return 2 * self._block_s * _WITH_SETTLING

    @property
    def _grace_s(self) -> float:
        return min(_GRACE_S, self._seconds / 2)

    @property
    def _left(self) -> float:
        return self._began + self._seconds - self._grace_s - time.monotonic()

    @property
    def _steps(self) -> int:
        assert self._job is not None
        step_s = max(self._job.step_s, 1e-6)
        return max(_FEW_SLOW if step_s > _SLOW_S else _FEW, min(_MANY, int(_BLOCK_S / step_s)))

    @property
    def _block_s(self) -> float:
        assert self._job is not None
        return self._steps * self._job.step_s


def _doubted(each: Experiment) -> Experiment:
    """Under foreign load fewer threads may win by far, and lose on a quiet machine."""
    if each.knob not in _OF_CORES or each.state is not ExperimentState.FASTER:
        return each
    return replace(each, state=ExperimentState.UNDECIDED, reason=CROWDED)
