"""Each monitor on series as trainings show them: what is wrong is told, what is usual is not, and memory is fixed."""

from __future__ import annotations

import math
import random

import pytest

from hotlap.watch.monitors import (
    GradientNorm,
    Gravity,
    LossSpike,
    MemoryGrowthMonitor,
    NotFinite,
    ThinnedSeries,
    ThroughputDrift,
    resident_bytes,
)

OK, WARNING, CRITICAL = Gravity.OK, Gravity.WARNING, Gravity.CRITICAL


def fed(monitor, values, from_step=1):
    """Feeds the values and returns every word that was said on the way, by state."""
    words = {}
    for step, value in enumerate(values, from_step):
        monitor.add(step, value)
        word = monitor.word()
        words.setdefault(word.state, word)
    return words


def losses(count, seed=0, start=5.0, end=0.5, tail=0.2):
    """A loss that falls, with the skewed scatter of small batches."""
    noise = random.Random(seed)
    return [
        end + (start - end) * math.exp(-3 * at / count) * noise.lognormvariate(0, tail) for at in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tail", [0.02, 0.2, 0.8])
def test_a_usual_loss_is_calm(seed, tail):
    assert set(fed(LossSpike(), losses(2000, seed, tail=tail))) == {"calm"}


def test_a_negative_log_likelihood_is_calm_too():
    assert set(fed(LossSpike(), [value - 20 for value in losses(500)])) == {"calm"}


def test_a_jump_is_told_with_its_step_and_then_forgotten():
    series = losses(1000)
    series[500] = 80.0
    words = fed(LossSpike(), series)
    assert set(words) == {"calm", "spiked"}
    assert (words["spiked"].since, words["spiked"].gravity) == (501, WARNING)
    assert words["spiked"].figures["worst"] == 80.0


def test_a_loss_that_leaves_for_good_diverges():
    monitor = LossSpike()
    words = fed(monitor, losses(500) + [60.0 + at for at in range(100)])
    assert words["diverges"].gravity is CRITICAL and words["diverges"].since == 501
    assert monitor.word().state == "diverges"


def test_a_new_level_is_usual_in_the_end():
    monitor = LossSpike()
    fed(monitor, losses(500) + [60.0 + random.Random(3).random() for _ in range(2000)])
    assert monitor.word().state == "calm"


def test_nan_and_infinity_are_told_at_once_and_forgiven_after_a_while():
    monitor = NotFinite()
    for step, value in enumerate([1.0] * 5 + [math.nan, math.inf], 1):
        monitor.add(step, "loss", value)
    word = monitor.word()
    assert (word.state, word.gravity, word.since) == ("not-finite", CRITICAL, 6)
    assert word.figures["bad"] == 2 and word.figures["what"] == "loss"
    for step in range(200):
        monitor.add(10 + step, "gradient", 1.0)
    assert (monitor.word().state, monitor.word().gravity) == ("recovered", OK)
    monitor.add(300, "gradient", -math.inf)
    assert (monitor.word().since, monitor.word().figures["what"]) == (300, "gradient")


@pytest.mark.parametrize(
    ("later", "state", "gravity"),
    [
        ([0.01] * 60, "steady", OK),
        ([500.0] * 10, "explodes", CRITICAL),
        ([1e-6] * 10, "vanishes", WARNING),
        ([0.0] * 10, "zero", CRITICAL),
        ([500.0, 1.0] * 10, "steady", OK),
    ],
)
def test_gradients(later, state, gravity):
    noise = random.Random(0)
    monitor = GradientNorm()
    fed(monitor, [noise.lognormvariate(0, 0.5) for _ in range(50)] + later)
    word = monitor.word()
    assert (word.state, word.gravity) == (state, gravity)
    assert (word.since is None) == (state == "steady")


def test_gradients_that_are_zero_from_the_start():
    monitor = GradientNorm()
    fed(monitor, [0.0] * 5)
    assert monitor.word().state == "zero"


def drifting(durations):
    monitor, moment, words = ThroughputDrift(), 0.0, {}
    for step, duration in enumerate(durations, 1):
        moment += duration
        monitor.add(step, moment)
        words.setdefault(monitor.word().state, monitor.word())
    return monitor, words


def test_a_run_that_becomes_slower_is_told():
    noise = random.Random(0)
    durations = [0.1 * noise.lognormvariate(0, 0.2) for _ in range(600)]
    monitor, words = drifting(durations + [each * 1.5 for each in durations])
    assert words["slower"].gravity is WARNING and 600 < words["slower"].since < 750
    assert monitor.word().figures["change"] == pytest.approx(-1 / 3, abs=0.08)
    assert monitor.word().figures["best"] == pytest.approx(10, rel=0.15)


def test_validation_compiling_and_a_passing_neighbour_are_no_drift():
    noise = random.Random(1)
    durations = [3.0] * 5 + [0.1 * noise.lognormvariate(0, 0.2) for _ in range(2000)]
    for at in range(100, 2000, 100):
        durations[at] = 5.0  # validation
    durations[700:720] = [0.3] * 20
    assert set(drifting(durations)[1]) == {"learning", "steady"}


def test_steps_may_be_told_in_blocks_and_with_gaps():
    monitor = ThroughputDrift()
    for block in range(1, 60):
        monitor.add(block * 20, block * 2.0)
    assert monitor.word().figures["now"] == pytest.approx(10.0)
    monitor.pause()
    monitor.add(99_000, 5000.0)
    monitor.add(99_020, 5002.0)
    assert monitor.word().figures["now"] == pytest.approx(10.0)


def grown(sizes):
    monitor = MemoryGrowthMonitor()
    for step, size in enumerate(sizes):
        monitor.add(step, 2.0 * step, int(size))
        if step % 10 == 0:
            monitor.judge()
    return monitor.word()


def test_memory_that_grows_is_told_with_its_rate():
    noise = random.Random(0)
    word = grown([2**30 + at * 2**20 + noise.random() * 2**19 for at in range(400)])
    assert (word.state, word.gravity) == ("grows", WARNING)
    assert word.figures["per_minute"] == pytest.approx(30 * 2**20, rel=0.05)
    assert 0 < word.since < 400


@pytest.mark.parametrize(
    "sizes",
    [
        [min(2**30, 2**28 + at * 2**22) for at in range(400)],  # caches fill
        [2**30 + (at % 20) * 2**24 for at in range(400)],  # a saw
        [2**30 + at * 2**10 for at in range(400)],  # next to nothing
        [2**30 + (2**28 if at > 350 else 0) for at in range(400)],  # a checkpoint is being written
        [2**30] * 10,
    ],
    ids=["fills", "saw", "little", "once", "few"],
)
def test_memory_that_does_not(sizes):
    assert grown(sizes).state == "steady"


def test_the_memory_of_this_process_is_known():
    import psutil

    assert resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


def test_a_series_covers_the_whole_run_in_a_fixed_memory():
    series = ThinnedSeries(most=64)
    for at in range(100_000):
        series.add(at, at)
        assert len(series.points) < 64
    xs = [x for x, _ in series.points]
    assert xs[0] == 0 and xs[-1] > 95_000 and len(xs) >= 32
