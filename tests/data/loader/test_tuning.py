"""Live tuning, mostly on machines whose speed is known by construction, where no clock is involved."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import count

import pytest
import torch
from torch.utils.data import TensorDataset

from hotlap.data.budget import Budget, free_ram, usable_cores
from hotlap.data.loader import Loader
from hotlap.data.loader_fetch import Fetched
from hotlap.data.tuning import (
    IN_PROCESS,
    PROCESSES,
    THREADS,
    Setting,
    Story,
    Tuner,
    TuningLimits,
    chosen_by_user,
    measured,
)


@dataclass
class Machine:
    """Batches of `wall_s`, `cpu` of it on one of two cores; a consumer that takes `gap_s`.

    Every `burst_every`-th batch takes `burst_s` instead, without the CPU. `device`: the gap is a queue's doing, which
    fetching hides behind.
    """

    wall_s: float
    cpu: float = 1.0
    gap_s: float = 0.0
    gil_free: bool = False
    burst_every: int = 0
    burst_s: float = 0.0
    device: bool = False
    cores: int = 2
    number: count = field(default_factory=count)
    before_s: float = 0.0  # how long the consumer waited for the last batch

    def fetch_s(self, setting: Setting, wall_s: float) -> float:
        busy = self.cpu * setting.workers
        if setting.way == THREADS and not self.gil_free:
            return wall_s * max(1.0, busy)
        return wall_s * max(1.0, busy / self.cores) if setting.workers else wall_s

    def lap(self, setting: Setting, hold_s: float) -> tuple[float, float, Fetched]:
        burst = self.burst_every and next(self.number) % self.burst_every == self.burst_every - 1
        wall = self.burst_s if burst else self.fetch_s(setting, self.wall_s)
        if setting.way == IN_PROCESS:
            wait = wall + hold_s
            gap = max(self.gap_s - self.before_s, 1e-5) if self.device else self.gap_s
        else:
            hidden = self.gap_s * (setting.ahead - 1) if burst else 0.0
            steady = self.fetch_s(setting, self.wall_s) / setting.workers
            wait = max(0.0, (wall if burst else steady) - max(hidden, self.gap_s)) + 2e-4
            gap = self.gap_s
        self.before_s = wait
        size = 1 << 20
        cpu = 0.0 if burst else self.wall_s * self.cpu
        return wait + gap, wait, Fetched(None, [], int(wall * 1e9), int(cpu * 1e9), size)


def run(machine, limits, batches=200, strategy=measured):
    story = Story()
    tuner = Tuner(strategy(limits, story))
    for _ in range(batches):
        lap, wait, fetched = machine.lap(tuner.setting, tuner.hold_s)
        tuner.note(tuner.setting, lap, wait, fetched)
    return tuner.setting, "\n".join(story.lines)


@pytest.fixture
def limits():
    return TuningLimits(Budget(ram=1 << 30, cores=2))


def test_items_that_hold_the_gil_get_a_process_for_each_core(limits):
    setting, story = run(Machine(0.03), limits)
    assert (setting.way, setting.workers) == (PROCESSES, 2)
    assert "Two threads fetch 0.99x as much as one" in story
    assert "items need the CPU and 2 cores may be used" in story


def test_items_that_let_go_of_the_gil_get_threads(limits):
    setting, story = run(Machine(0.03, gil_free=True), limits)
    assert (setting.way, setting.workers) == (THREADS, 2)
    assert "1.97x as much as one: items are such that they let go of the GIL" in story


def test_a_machine_that_gets_quicker_does_not_look_like_freedom_from_the_gil(limits):
    class Relieved(Machine):
        def lap(self, setting, hold_s):
            self.wall_s = 0.03 if next(self.number) < 12 else 0.01
            return super().lap(setting, hold_s)

    setting, story = run(Relieved(0.03), limits)
    assert "they hold the GIL" in story
    assert setting.way != THREADS


def test_waiting_for_the_gil_before_a_batch_begins_is_noticed(limits):
    class Queueing(Machine):
        """Such waiting is in no batch's time: each seems to take what it takes alone."""

        def lap(self, setting, hold_s):
            lap, wait, fetched = super().lap(setting, hold_s)
            fetched.wall_ns = int(self.wall_s * 1e9)
            return lap, wait, fetched

    setting, story = run(Queueing(0.03), limits)
    assert "Two threads fetch 0.99x as much as one: items are such that they hold the GIL" in story
    assert (setting.way, setting.workers) == (PROCESSES, 2)


def test_one_worker_has_more_than_the_next_batch_to_go_on_with():
    data = TensorDataset(torch.arange(8))
    assert Loader(data, num_workers=1)._running.tuner.setting == Setting(PROCESSES, 1, 4)
    assert Loader(data, num_workers=2)._running.tuner.setting == Setting(PROCESSES, 2, 4)
    assert Loader(data, num_workers=1, prefetch=2)._running.tuner.setting == Setting(PROCESSES, 1, 2)


def test_items_that_wait_get_many_threads(limits):
    setting, story = run(Machine(0.03, cpu=0.02), limits)
    assert setting.way == THREADS and setting.workers == 32
    assert "items wait 98 % of their time" in story


def test_no_more_workers_than_the_consumer_needs(limits):
    setting, _ = run(Machine(0.03, cpu=0.02, gap_s=0.02), limits)
    assert setting.workers == 2


def test_cheap_items_get_nobody(limits):
    setting, story = run(Machine(0.0001, gap_s=0.01), limits)
    assert setting.way == IN_PROCESS
    assert "workers could bring 1.0 % at the most" in story


def test_fetching_that_a_device_hides_is_left_alone(limits):
    setting, story = run(Machine(0.0007, gap_s=0.002, device=True), limits)
    assert setting.way == IN_PROCESS
    assert "fetching is hidden already" in story
    setting, _ = run(Machine(0.007, gap_s=0.002, device=True), limits)  # a device that starves
    assert setting.way == PROCESSES


def test_little_slack_on_a_noisy_machine_is_enough_to_hide_behind(limits):
    class Noisy(Machine):
        """Fetching takes most of the device's time, a batch now and then far more than that."""

        draw = random.Random(0)

        def lap(self, setting, hold_s):
            self.wall_s = 0.02 if self.draw.random() < 0.05 else self.draw.uniform(0.0016, 0.0019)
            return super().lap(setting, hold_s)

    setting, story = run(Noisy(0.0018, gap_s=0.0022, device=True), limits, 3000)
    assert setting.way == IN_PROCESS
    assert "Two threads" not in story
    busy = Noisy(0.0018, gap_s=0.0022)  # the consumer itself takes as long: there is something to win
    assert run(busy, limits, 300)[0].way == PROCESSES


def test_workers_that_are_slower_in_the_end_are_let_go(limits):
    class Promising(Machine):
        """The first batches of processes come quickly."""

        def fetch_s(self, setting, wall_s):
            slow = setting.way == PROCESSES and next(self.number) > 60
            return super().fetch_s(setting, wall_s) * (3 if slow else 1)

    setting, story = run(Promising(0.03), limits, 300)
    assert setting.way == IN_PROCESS
    assert "the consumer's own thread gave 33" in story


def test_uneven_batches_are_fetched_further_ahead(limits):
    machine = Machine(0.0005, cpu=0.1, gap_s=0.004, burst_every=25, burst_s=0.06)
    setting, story = run(machine, limits)
    assert setting.ahead >= 16
    assert setting.workers <= 4
    assert "ahead" in story


def test_memory_bounds_what_is_under_way():
    setting, _ = run(Machine(0.03, cpu=0.02), TuningLimits(Budget(ram=16 << 20, cores=2)))
    assert setting.ahead * (1 << 20) <= 16 << 20
    assert setting.workers <= 8


def test_what_is_refused_is_not_tried(limits):
    limits.no_threads = "they were not allowed"
    setting, story = run(Machine(0.03, cpu=0.02), limits)
    assert setting.way == PROCESSES and setting.workers > 2
    assert "Threads are left out: they were not allowed." in story
    limits.no_processes = "this is a worker process itself"
    setting, story = run(Machine(0.03, cpu=0.02), limits)
    assert setting.way == IN_PROCESS
    assert "this is a worker process itself, and they were not allowed" in story


def test_workers_that_do_not_pay_are_let_go(limits):
    class Crowded(Machine):
        """Every other process slows the fetching down by as much as it helps."""

        def fetch_s(self, setting, wall_s):
            return wall_s * max(1, setting.workers) * 1.2

    setting, story = run(Crowded(0.03), limits, 120)
    assert setting.way == IN_PROCESS
    assert "not kept" in story


def test_batches_that_get_cheap_are_looked_at_anew(limits):
    class Caching(Machine):
        """A dataset that keeps what it has computed."""

        def lap(self, setting, hold_s):
            if next(self.number) > 150:
                self.wall_s = 1e-4
            return super().lap(setting, hold_s)

    setting, story = run(Caching(0.03), limits, 1200)
    assert setting.way == IN_PROCESS
    assert "A batch takes only 100 us by now" in story


def test_a_given_number_of_workers_stays(limits):
    def given(limits, story):
        return chosen_by_user(Setting(PROCESSES, 3, 6), limits, story)

    setting, story = run(Machine(0.03), limits, strategy=given)
    assert setting == Setting(PROCESSES, 3, 6)
    assert story == "Batches are fetched by 3 worker processes, as asked for."
    uneven = Machine(0.0005, cpu=0.1, gap_s=0.004, burst_every=25, burst_s=0.2)
    assert run(uneven, limits, 400, given)[0].ahead > 6
    limits.ahead = 6
    uneven = Machine(0.0005, cpu=0.1, gap_s=0.004, burst_every=25, burst_s=0.2)
    assert run(uneven, limits, 400, given)[0].ahead == 6


def test_the_budget_is_read_off_the_machine():
    assert usable_cores() >= 1
    assert 1 << 20 < free_ram() < 1 << 50
    assert Budget().ram < free_ram()
