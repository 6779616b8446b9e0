"""From blocks of steps to ratios."""

from __future__ import annotations

import random

import pytest

from hotlap.experiments.analysis import ORIGINAL, LabelledBlock, ratio_of, ratios
from hotlap.facts.experiment import StepBlock

MS = 1_000_000


def seen(change: int, step_ms: float, *, samples: int = 8, tokens: int = -1, steps: int = 8) -> LabelledBlock:
    walls = (round(step_ms * MS),) * steps
    return LabelledBlock(change, StepBlock(1, 0, walls, (samples,) * steps, (tokens,) * steps))


def test_a_change_is_held_against_the_originals_blocks_beside_it() -> None:
    # The machine becomes half as fast in the middle: blocks far away would say otherwise.
    blocks = [
        seen(ORIGINAL, 10),
        seen(0, 5),
        seen(ORIGINAL, 10),
        seen(ORIGINAL, 20),
        seen(1, 20),
        seen(ORIGINAL, 20),
    ]
    found, _ = ratios(blocks)
    assert found[0] == pytest.approx([2.0])
    assert found[1] == pytest.approx([1.0])


def test_twice_the_samples_in_the_same_time_are_twice_as_fast() -> None:
    found, _ = ratios([seen(ORIGINAL, 10), seen(0, 10, samples=16), seen(ORIGINAL, 10)])
    assert found[0] == pytest.approx([2.0])


def test_tokens_count_where_all_steps_show_them() -> None:
    found, _ = ratios(
        [seen(ORIGINAL, 10, tokens=100), seen(0, 10, samples=8, tokens=300), seen(ORIGINAL, 10, tokens=100)]
    )
    assert found[0] == pytest.approx([3.0])


def test_a_block_of_short_samples_is_no_faster_by_it() -> None:
    """10 ms and 1 ms for each 10 tokens, whatever the variant."""
    draw = random.Random(3)

    def block(change: int) -> LabelledBlock:
        tokens = tuple(draw.randint(10, 400) for _ in range(12))
        walls = tuple(round((10 + each / 10) * MS) for each in tokens)
        return LabelledBlock(change, StepBlock(1, 0, walls, (8,) * 12, tokens))

    found, _ = ratios([block(number % 2 - 1) for number in range(13)])
    assert found[0] == pytest.approx([1.0] * 6, rel=1e-6)


@pytest.mark.parametrize("padded", [False, True], ids=["by its tokens", "padded to one length"])
@pytest.mark.parametrize("counted", [True, False], ids=["tokens", "samples"])
def test_a_larger_batch_saves_the_part_that_any_step_takes(padded: bool, counted: bool) -> None:
    """10 ms a step, and the rest by size: two batches in one take 10 ms less, however much steps differ in tokens."""
    draw = random.Random(5)

    def block(change: int) -> LabelledBlock:
        batches = 2 if change == 0 else 1
        tokens = [sum(draw.randint(80, 120) for _ in range(batches)) for _ in range(40)]
        spent = [100 * batches if padded else each for each in tokens]
        walls = tuple(round((10 + each / 10) * MS) for each in spent)
        sizes = (8 * batches,) * 40 if counted else tuple(tokens)
        return LabelledBlock(change, StepBlock(1, 0, walls, sizes, tuple(tokens) if counted else (-1,) * 40))

    found, _ = ratios([block(number % 2 - 1) for number in range(13)])
    assert found[0] == pytest.approx([40 / 30] * 6, rel=0.06)


def test_what_does_not_occur_in_experiments_dilutes_a_gain() -> None:
    """Validation takes as long as the steps themselves: twice as fast steps save a quarter."""
    blocks = [seen(ORIGINAL, 10), seen(0, 5), seen(ORIGINAL, 10)]
    found, _ = ratios(blocks, beside_ns=10 * MS)
    assert found[0] == pytest.approx([20 / 15])


def test_the_originals_own_blocks_tell_how_much_ratios_scatter() -> None:
    quiet = [seen(ORIGINAL, 10), seen(0, 9.5)] * 6 + [seen(ORIGINAL, 10)]
    restless = [seen(ORIGINAL, 10 if at % 4 else 14) if at % 2 == 0 else seen(0, 9.5) for at in range(13)]
    widths = []
    for blocks in (quiet, restless):
        found, scatter = ratios(blocks)
        ratio = ratio_of(found[0], scatter)
        widths.append(ratio.high / ratio.low)
    assert widths[1] > 1.5 * widths[0]


def test_a_block_without_a_measured_step_says_nothing() -> None:
    empty = LabelledBlock(0, StepBlock(1, 1))
    found, _ = ratios([seen(ORIGINAL, 10), empty, seen(ORIGINAL, 10)])
    assert found == {}
