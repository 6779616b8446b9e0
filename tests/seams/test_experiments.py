"""The blocks of steps in which variants take turns."""

from __future__ import annotations

from pathlib import Path
from threading import get_ident

import pytest
import torch

from hotlap.facts.experiment import Round, read_blocks, write_round
from hotlap.probe.feed import Feed
from hotlap.probe.session import Session
from hotlap.probe.taps.model import ModelTap, _around_train
from hotlap.seams.experiments import ExperimentPhase, Switches, _Steps

S = 1_000_000_000


def made(*walls: int, longest_s: float) -> _Steps:
    block = _Steps(1, 6, 4, longest_s, began=0)
    for wall in walls:
        assert not block.full
        block.add(wall, 8, -1, spoiled=False)
    return block


def test_a_variant_whose_single_steps_take_longer_than_a_block_ends_early() -> None:
    block = made(9 * S, 9 * S, 9 * S, longest_s=4.0)
    assert block.full
    assert block.seen(1, {}, "").walls == (9 * S,)


def test_the_first_steps_may_build() -> None:
    block = made(60 * S, 60 * S, S, S, longest_s=4.0)
    assert not block.full
    assert block.seen(1, {}, "").walls == ()


def test_ranks_that_go_in_step_end_their_blocks_with_the_same_one() -> None:
    assert not made(9 * S, 9 * S, 9 * S, 9 * S, longest_s=0.0).full


@pytest.mark.parametrize(("every", "steps"), [(False, 7), (True, 6)], ids=["rare", "with each step"])
def test_a_step_with_a_rare_validation_is_not_measured(tmp_path: Path, every: bool, steps: int) -> None:
    """One that belongs to each step is a part of it."""
    session = Session(tmp_path, 0)
    model = torch.nn.Linear(2, 2)
    phase = ExperimentPhase(session, Feed(), Switches({}, {}), {})
    session.eval_begins.append(phase._evaluate)
    tap = ModelTap(session)
    train = _around_train(tap, torch.nn.Module.train)
    session.thread = get_ident()
    write_round(tmp_path, 1, Round(({},), (0,), steps=3))
    made = 0
    while not read_blocks(tmp_path, session.pid):
        if every or made == 4:  # one before, two that settle, and one that is measured
            train(model, False)
            train(model, True)
        phase.step_made()
        made += 1
    assert made == steps
