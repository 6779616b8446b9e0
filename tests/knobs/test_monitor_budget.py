"""Monitors under a budget, on classes like those of a framework and of its users."""

import time

import pytest

from hotlap.knobs.monitor_budget import CallbackTimeBudget, thin
from hotlap.ports.knob import CannotActError
from hotlap.seams.patches import PatchStack

HOOKS = ("on_batch", "on_start")


@pytest.fixture
def patches():
    made = PatchStack()
    yield made
    made.undo_all()


class Callback:
    """Of the framework."""

    def on_batch(self):
        return None

    def on_epoch(self):
        return None


class Checkpoint(Callback):
    """Of the framework, too."""


Callback.__module__ = Checkpoint.__module__ = "framework.callbacks"


class Monitor(Callback):
    def __init__(self, seconds):
        self.seconds = seconds
        self.batches = self.epochs = 0

    def on_batch(self):
        self.batches += 1
        time.sleep(self.seconds)
        return "looked"

    def on_epoch(self):
        self.epochs += 1


class Loud(Monitor):
    def on_batch(self):
        return super().on_batch().upper()


class BestCheckpoint(Checkpoint):
    calls = 0

    def on_batch(self):
        self.calls += 1


def run(callbacks, batches):
    for _ in range(batches):
        for each in callbacks:
            each.on_batch()
        time.sleep(0.001)


def test_costly_monitors_are_called_within_their_share(patches):
    monitor, best = Monitor(0.01), BestCheckpoint()
    thin([monitor, best], Callback, HOOKS, 0.1, patches.wrap)
    begin = time.perf_counter()
    while monitor.batches < 4:
        run([monitor, best], 1)
    elapsed = time.perf_counter() - begin
    # The last call overshoots; sleeping takes at least as long as asked for.
    assert (monitor.batches - 1) * 0.01 <= 0.1 * elapsed
    assert best.calls > 4
    monitor.on_epoch()
    assert monitor.epochs == 1


def test_cheap_monitors_are_always_called(patches):
    monitor = Monitor(0.0)
    thin([monitor], Callback, HOOKS, 1.0, patches.wrap)
    run([monitor], 20)
    assert monitor.batches == 20


def test_a_call_to_super_is_part_of_the_call(patches):
    loud = Loud(0.01)
    thin([loud], Callback, HOOKS, 0.5, patches.wrap)
    assert loud.on_batch() == "LOOKED"
    assert loud.on_batch() is None  # left out: the first one has taken all the time there was


def test_undo_calls_all_of_them_again(patches):
    monitor = Monitor(0.01)
    undo = thin([monitor], Callback, HOOKS, 0.01, patches.wrap)
    run([monitor], 5)
    undo()
    before = monitor.batches
    run([monitor], 5)
    assert monitor.batches == before + 5


def test_without_a_callback_of_the_users_own_it_cannot_act():
    with pytest.raises(CannotActError, match="no callback of the script's own"):
        thin([BestCheckpoint(), Callback()], Callback, HOOKS, 0.1, PatchStack().wrap)


def test_a_monitor_that_raises_raises_and_its_time_counts():
    budget = CallbackTimeBudget(0.5)

    def failing():
        time.sleep(0.01)
        raise ValueError("own fault")

    call = budget.around(failing)
    with pytest.raises(ValueError, match="own fault"):
        call()
    assert call() is None
    assert (budget.made, budget.left_out) == (1, 1)
