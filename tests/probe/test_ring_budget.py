"""However long a run is, what is written stays bounded, and what is kept stays consecutive."""

from __future__ import annotations

import itertools
from array import array

import pytest

from hotlap.facts.arrow import write_timelines
from hotlap.facts.timeline import Ending, Stage
from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.ring import LIMIT_BYTES, FileSizeLimiter, Ring
from hotlap.timeline.gather import Recording, read_integers, timelines

STEPS = 1_000_000
STEP_NS = 5_000_000
LIMIT = 64_000_000


def test_a_short_run_is_kept_whole():
    budget = FileSizeLimiter(1 << 20)
    assert all(budget.admits(4096) for _ in range(40))


@pytest.mark.parametrize("offer", [8, 100, 4096, 70_000])
def test_a_run_of_any_length_stays_below_the_limit(offer):
    budget = FileSizeLimiter(1 << 20)
    for _ in range(20 * (1 << 20) // offer):
        budget.admits(offer)
    assert budget.written <= 1 << 20


def test_late_windows_are_still_admitted():
    budget = FileSizeLimiter()
    verdicts = [budget.admits(4096) for _ in range(100_000)]
    assert any(verdicts[-10_000:])


def test_slow_steps_are_kept_in_runs_of_consecutive_ones():
    """Each offer is less than one step: alternating them would leave no whole step."""
    budget = FileSizeLimiter(1 << 20)
    verdicts = [budget.admits(64) for _ in range(100_000)]
    changes = sum(one != other for one, other in itertools.pairwise(verdicts))
    assert not all(verdicts)
    assert sum(verdicts) / (changes / 2) > 100


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Ring:
    """A million steps of eleven marks through a real ring, flushed as often as the sampler does."""
    ring = Ring(tmp_path_factory.mktemp("run") / "1.marks")
    pattern = _step_marks()
    for number in range(STEPS // 50):
        first = number * 50
        ring.buffer.extend(
            array(
                "q",
                [
                    mark + (at * STEP_NS << 8) if timed else mark
                    for at in range(first, first + 50)
                    for mark, timed in pattern
                ],
            )
        )
        ring.flush()
    ring.close()
    return ring


def _step_marks() -> list[tuple[int, bool]]:
    spans = [(Kind.DATA, 0, 20), (Kind.FORWARD, 25, 45), (Kind.BACKWARD, 50, 80), (Kind.STEP, 85, 99)]
    found = []
    for kind, start, end in spans:
        found += [
            (start * 50_000 << 8 | marks.enter(kind), True),
            (end * 50_000 << 8 | marks.leave(kind), True),
        ]
        if kind is Kind.DATA:
            found += [(0 << 8 | marks.LOADER_ID, False), (32 << 8 | marks.SAMPLES, False)]
    return [*found, (0 << 8 | marks.OPTIMIZER_ID, False)]


def test_a_million_steps_stay_below_64_megabytes(million, tmp_path):
    assert million.count == STEPS * 11
    assert million.path.stat().st_size <= LIMIT_BYTES + 100_000
    raw = read_integers(million.path)
    (timeline,) = timelines([Recording(1, {"marks": million.count}, raw, array("q"))], Ending.FINISHED, 0, {})
    write_timelines(tmp_path / "timeline.arrow", [timeline])
    assert million.path.stat().st_size + (tmp_path / "timeline.arrow").stat().st_size < LIMIT
    steps = timeline.steps
    assert len(steps) + timeline.probe.dropped_steps == STEPS
    assert timeline.probe.dropped_steps > STEPS / 2
    assert set(steps.wall[1:]) == {STEP_NS}, "a kept step was whole"
    assert set(steps.stages[Stage.BACKWARD]) == {30 * 50_000}
    assert steps.start[-1] > 0.95 * STEPS * STEP_NS, "the end of the run is seen too"
    assert timeline.probe.marks_per_step == pytest.approx(11, abs=0.01)
