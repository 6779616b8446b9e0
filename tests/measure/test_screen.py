"""Several settings within one process: the order of blocks, what they show, and a real job that is switched live."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hotlap.facts.blocks import NOT_LIVE, Block, Schedule
from hotlap.facts.trial import Status
from hotlap.measure import screen
from hotlap.measure.screen import pairs, refusals

MS = 1_000_000
PLANS = ({}, {"num-workers": 2}, {"precision": "bf16-mixed"})


def ratios(schedule, blocks, seen, counts="samples"):
    return screen.ratios(pairs(schedule, blocks, seen, counts), 0.95)


def recording(*rates, steps=12, samples=8):
    """Blocks one after another with these steps a second; the first third of each is ten times slower."""
    starts, walls, blocks, now = [], [], [], 0
    for plan, rate in rates:
        begin = now
        for step in range(steps):
            wall = int(1000 * MS / rate) * (10 if step < steps // 3 else 1)
            starts.append(now)
            walls.append(wall)
            now += wall
        blocks.append(Block(plan, begin, now))
    columns = SimpleNamespace(start=starts, wall=walls, samples=[samples] * len(starts))
    return blocks, SimpleNamespace(steps=columns)


def test_the_incumbent_stands_on_both_sides_of_every_challenger():
    order = Schedule(PLANS, turns=2).order
    assert order == (0, 1, 0, 2, 0, 2, 0, 1, 0)


def test_a_drift_of_the_machine_is_no_gain():
    """Everything gets slower all the time; beside its neighbours the challenger is half as fast again."""
    rates = [(0, 100), (1, 142), (0, 90), (0, 90), (1, 127), (0, 80)]
    found = ratios(Schedule(PLANS), *recording(*rates))
    assert found.keys() == {1}
    assert found[1].value == pytest.approx(1.5, rel=0.01)
    assert found[1].low > 1.2


def test_steps_in_which_a_setting_settles_do_not_count():
    steady = ratios(Schedule(PLANS), *recording(*[(0, 100), (2, 100)] * 3, (0, 100)))
    assert steady[2].value == pytest.approx(1.0)
    assert steady[2].low < 1.0 < steady[2].high


def test_batches_count_by_samples():
    blocks, seen = recording(*[(0, 100), (1, 50)] * 2, (0, 100))
    seen.steps.samples = [
        16 if any(b.plan and b.begin <= s < b.end for b in blocks) else 8 for s in seen.steps.start
    ]
    assert ratios(Schedule(PLANS), blocks, seen)[1].value == pytest.approx(1.0)


def test_a_step_without_a_count_makes_all_blocks_count_by_steps():
    """Never steps of one plan against samples of the other, which would be eight times slower."""
    blocks, seen = recording(*[(0, 100), (1, 100)] * 2, (0, 100))
    seen.steps.samples[next(n for n, s in enumerate(seen.steps.start) if s >= blocks[1].begin) + 8] = -1
    assert ratios(Schedule(PLANS), blocks, seen)[1].value == pytest.approx(1.0)


def test_one_block_alone_says_nothing():
    assert ratios(Schedule(PLANS), *recording((0, 100), (1, 300), (0, 100))) == {}


def test_only_what_a_knob_itself_says_is_a_refusal():
    blocks = [Block(0, 0, 5), Block(1, 5, 5, "no convolution"), Block(2, 5, 5, NOT_LIVE)]
    assert refusals(blocks) == {1: "no convolution"}


@pytest.mark.alone
def test_a_real_job_is_switched_between_its_steps(bench):
    """Items that wait are shared by two workers in the middle of an epoch; the model has no convolution; a trainer's
    option cannot be switched."""
    plans = ({}, {"num-workers": 2}, {"channels-last": True}, {"log-every": 50}, {"fused-optimizer": "fused"})
    schedule = Schedule(plans, turns=2, block_s=0.3)
    screened = bench("waits.py").screen(1, schedule)
    assert screened.trial.status is Status.SCREENED, screened.trial.reason
    assert screened.trial.figures is None
    found = ratios(schedule, screened.blocks, screened.seen[0])
    assert found.keys() == {1, 4}
    assert found[1].value > 1.2
    assert refusals(screened.blocks) == {2: "it has no 2-D or 3-D convolution, and no 1-D one on a CPU"}
    assert not screened.seen[0].probe.faults


def test_a_job_that_dies_under_a_plan_leaves_what_was_measured(bench):
    """Workers that may not be started end the process: the blocks before are there, and none of the workers."""
    schedule = Schedule(({}, {"fused-optimizer": "fused"}, {"num-workers": 1}), turns=1, block_s=0.1)
    screened = bench("waits.py", "alone").screen(1, schedule)
    assert screened.trial.status is Status.DEAD
    assert "planted" in screened.trial.reason
    assert {block.plan for block in screened.blocks} == {0, 1}


def test_blocks_count_by_tokens_where_the_search_does():
    """Every second step is twice as long and holds twice as many; by samples the challenger drew the short ones."""
    blocks, seen = recording(*[(0, 100), (1, 200)] * 2, (0, 100))
    seen.steps.tokens = [round(wall / MS) for wall in seen.steps.wall]
    assert ratios(Schedule(PLANS), blocks, seen, "tokens")[1].value == pytest.approx(1.0)
    assert ratios(Schedule(PLANS), blocks, seen, "samples")[1].value == pytest.approx(2.0)
    seen.steps.tokens = [-1] * len(seen.steps.wall)
    assert ratios(Schedule(PLANS), blocks, seen, "tokens") == {}


@pytest.mark.parametrize(("any_step", "each"), [(100, 1), (100, 0), (0, 1)])
def test_a_block_that_has_met_short_batches_is_no_slower_for_it(any_step, each):
    """A step takes so many ms, and so many for each token; the challenger's blocks have the short batches, and it is
    as fast as the incumbent."""
    blocks, seen = recording(*[(0, 100), (1, 100)] * 3, (0, 100))
    lengths = {0: (300, 20, 120, 250), 1: (30, 10, 40, 20)}
    seen.steps.tokens, starts, walls, moved = [], [], [], []
    for block in blocks:
        tokens = [lengths[block.plan][step % 4] for step in range(12)]
        begin = starts[-1] + walls[-1] if starts else 0
        for count in tokens:
            starts.append(starts[-1] + walls[-1] if starts else 0)
            walls.append((any_step + each * count) * MS)
        moved.append(Block(block.plan, begin, starts[-1] + walls[-1]))
        seen.steps.tokens += tokens
    seen.steps.start, seen.steps.wall = starts, walls
    found = ratios(Schedule(PLANS), moved, seen, "tokens")[1]
    assert found.value == pytest.approx(1.0, abs=0.001)
