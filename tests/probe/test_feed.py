"""Which loaders feed training is learnt in the window; what is replayed after it, and what is not."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from torch.utils.data import DataLoader

from hotlap.probe import boundary
from hotlap.probe.feed import Feed

TRAIN, VALIDATION = 0, 1


def learnt(batches_a_step: int = 1, steps: int = 10) -> Feed:
    """A feed that has seen steps, every fifth with a validation of three batches."""
    feed = Feed()
    for step in range(steps):
        give(feed, TRAIN, batches_a_step)
        if step % 5 == 4:
            give(feed, VALIDATION, 3)
        feed.step_made()
    feed.learns = False
    return feed


def give(feed: Feed, loader: int, count: int = 1, batch: Any = "batch") -> None:
    for _ in range(count):
        feed.gave(loader, batch)


def test_a_loader_that_gives_batches_in_most_steps_feeds_training():
    feed = learnt(batches_a_step=4)
    assert feed.usual(TRAIN) == 4
    assert feed.usual(VALIDATION) == 0
    assert Feed().usual(TRAIN) == 0, "before the first step nothing is known"


def test_a_batch_is_replayed_as_often_as_a_step_takes_one():
    feed = learnt(batches_a_step=2)
    assert feed.again(TRAIN) is None, "not before it is asked for"
    feed.replays = True
    assert feed.again(TRAIN) is None, "the first one is real"
    give(feed, TRAIN, 2, batch="kept")
    feed.step_made()
    assert not feed.step_was_free
    assert [feed.again(TRAIN) for _ in range(3)] == ["kept", "kept", None]
    feed.step_made()
    assert feed.step_was_free
    assert feed.again(TRAIN) == "kept"


def test_validation_gets_real_batches_and_its_step_is_not_free():
    feed = learnt()
    feed.replays = True
    give(feed, TRAIN)
    feed.step_made()
    assert feed.again(TRAIN) == "batch"
    assert feed.again(VALIDATION) is None
    give(feed, VALIDATION)
    assert feed.again(VALIDATION) is None, "else its loop would never end"
    feed.step_made()
    assert not feed.step_was_free


def test_a_step_in_which_a_loader_is_opened_is_not_free():
    feed = learnt()
    feed.replays = True
    give(feed, TRAIN)
    feed.step_made()
    feed.opened(0, DataLoader(range(4)))
    assert feed.again(TRAIN) == "batch"
    feed.step_made()
    assert not feed.step_was_free


def test_a_step_without_any_batch_is_not_free():
    feed = learnt()
    feed.replays = True
    feed.step_made()
    assert not feed.step_was_free


def test_batches_of_others_are_told():
    feed, told = learnt(), []
    feed.on_other_batch = lambda: told.append(1)
    give(feed, TRAIN)
    assert not told
    give(feed, TRAIN)
    give(feed, VALIDATION)
    assert len(told) == 2, "one more than a step takes, and one of another loader"


def test_a_listener_that_fails_does_not_reach_the_script():
    feed = learnt()
    feed.on_other_batch = lambda: 1 / 0
    give(feed, VALIDATION)
    assert "ZeroDivisionError" in boundary.faults.pop()


def test_what_is_learnt_stays_when_the_window_has_ended():
    feed = learnt()
    for _ in range(100):
        give(feed, VALIDATION, 9)
        feed.step_made()
    assert (feed.usual(TRAIN), feed.usual(VALIDATION)) == (1, 0)


class Pair(NamedTuple):
    inputs: Any
    targets: Any


@pytest.mark.parametrize("made", [dict, UserDict])
@pytest.mark.parametrize("pair", [Pair, lambda *parts: parts], ids=["named", "plain"])
def test_a_script_may_take_entries_out_of_a_batch(made, pair):
    feed = learnt()
    feed.replays = True
    batch = pair(made(labels=1), [2, 3])
    give(feed, TRAIN, batch=batch)
    for _ in range(3):
        first, second = batch
        assert first.pop("labels") == 1
        assert second.pop() == 3
        feed.step_made()
        batch = feed.again(TRAIN)
    assert type(batch) is type(pair(1, 2))


def test_a_script_may_change_a_batch_of_its_own_kind():
    @dataclass
    class Batch:
        images: Any

    feed = learnt()
    feed.replays = True
    batch = Batch("raw")
    give(feed, TRAIN, batch=batch)
    for _ in range(3):
        assert batch.images == "raw"
        batch.images = "moved"
        feed.step_made()
        batch = feed.again(TRAIN)


def test_nothing_is_held_once_it_is_over():
    feed = learnt()
    feed.replays = True
    give(feed, TRAIN)
    feed.step_made()
    feed.forget()
    feed.replays = True
    assert feed.again(TRAIN) is None
