"""All monitors beside a real training: by hooks and step by step, within their budget, changing nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from hotlap.probe import boundary
from hotlap.watch import TrainingMonitor
from hotlap.watch.monitors import Gravity
from hotlap.watch.training import HostCopy


@pytest.fixture(autouse=True)
def no_faults():
    yield
    faults = [*boundary.faults]
    boundary.faults.clear()
    assert not faults


def trained(steps=60, spoil=lambda step, loss: loss, **words):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, **words)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        x = torch.randn(16, 4)
        spoil(step, (net(x) - x.sum(1, keepdim=True)).square().mean()).backward()
        optimizer.step()
    return net


def test_a_healthy_training_gets_good_words_from_all():
    with TrainingMonitor("100%") as monitor:
        trained(200)
    words = monitor.words()
    assert set(words) == {"loss-spike", "not-finite", "gradient-norm", "throughput-drift", "memory-growth"}
    assert all(word.gravity is Gravity.OK for word in words.values())
    assert monitor.steps == 200 and words["not-finite"].figures["looks"] > 200
    assert words["gradient-norm"].figures["norm"] > 0 and words["memory-growth"].figures["used"] > 2**24


def test_a_loss_that_is_not_finite_is_told_with_its_step():
    with TrainingMonitor("100%") as monitor:
        trained(60, lambda step, loss: loss * (math.nan if step >= 40 else 1.0))
    word = monitor.words()["not-finite"]
    assert (word.state, word.since, word.figures["what"]) == ("not-finite", 40, "loss")


def test_a_loss_that_the_budget_let_wait_still_has_its_step():
    """Each look at the clock takes a second of it: most blocks are more than one percent allows."""
    seconds = iter(range(1, 10**6))
    with TrainingMonitor("20%", clock=lambda: float(next(seconds))) as monitor:
        trained(60, lambda step, loss: loss * (math.nan if step >= 40 else 1.0))
    word = monitor.words()["not-finite"]
    assert monitor.budget.left_out > 5
    assert (word.state, word.since, word.figures["what"]) == ("not-finite", 40, "loss")


def test_gradients_that_are_not_finite_behind_a_finite_loss_are_told():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * math.inf

    with TrainingMonitor("100%") as monitor:
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        for _ in range(30):
            optimizer.zero_grad()
            Bad.apply(net(torch.ones(2, 4))).mean().backward()
            optimizer.step()
    assert monitor.words()["not-finite"].figures["what"] == "gradient"


def test_the_scale_of_a_gradient_scaler_is_no_part_of_the_loss():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=20)
    with TrainingMonitor("100%") as monitor:
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(120):
            optimizer.zero_grad()
            scaler.scale((net(torch.ones(8, 4)) - 1).square().mean() + 1.0).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() > 2.0**17
    word = monitor.words()["loss-spike"]
    assert word.state == "calm" and 0.5 < word.figures["usual"] < 3.0


def test_of_several_optimizers_the_one_that_steps_most_counts():
    with TrainingMonitor("100%") as monitor:
        one, two = (torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(2))
        for step in range(20):
            one.param_groups[0]["params"][0].square().sum().backward()
            one.step()
            if step % 5 == 0:
                two.step()
    assert monitor.steps == 20


def test_it_can_be_told_step_by_step():
    monitor = TrainingMonitor("100%")
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.full((3,), 2.0)
    for _ in range(20):
        monitor.step(1.5, [parameter])
    monitor.close()
    assert monitor.words()["gradient-norm"].figures["norm"] == pytest.approx(math.sqrt(12))
    assert monitor.steps == 20


def test_everything_is_put_back_and_nothing_was_changed():
    before = torch.autograd.backward, torch.amp.GradScaler.scale
    alone = trained(30)
    with TrainingMonitor("100%"):
        watched = trained(30)
    assert (torch.autograd.backward, torch.amp.GradScaler.scale) == before
    assert all(a.equal(b) for a, b in zip(alone.parameters(), watched.parameters(), strict=True))


def test_off_hooks_nothing():
    before = torch.autograd.backward
    with TrainingMonitor("off") as monitor:
        assert torch.autograd.backward is before
        trained(5)
    assert monitor.steps == 0


def test_the_budget_thins_the_dear_monitors_first():
    now = 0.0

    def clock():
        nonlocal now
        now += 0.001  # every look at the clock takes a millisecond: monitors are dear here
        return now

    monitor = TrainingMonitor("5%", clock)
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    for _ in range(5000):
        now += 0.01
        monitor.step(1.0, [parameter])
    assert 0.01 < monitor.budget.spent_share < 0.055
    assert monitor.steps == 5000


def test_memory_does_not_grow_with_the_run():
    monitor = TrainingMonitor("100%", clock=lambda: monitor_time[0])
    monitor_time = [0.0]

    def held():
        import pickle

        return len(
            pickle.dumps(
                {key: value for key, value in vars(monitor).items() if key not in ("budget", "_clock")}
            )
        )

    sizes = []
    for step in range(40_000):
        monitor_time[0] += 0.5
        monitor.step(1.0 + step % 7)
        if step in (10_000, 39_999):
            sizes.append(held())
    assert sizes[1] < 1.3 * sizes[0]


def test_a_figure_of_a_device_is_read_when_it_is_there():
    """Without a GPU, a stand-in for its event: what matters is that nobody waits."""

    class Event:
        done = False

        def query(self):
            return self.done

        def synchronize(self):
            raise AssertionError("nobody waits")

    reading = HostCopy(torch.tensor([1.0, 2.0]))
    assert reading.ready and reading.values() == [1.0, 2.0]
    reading._event = Event()
    assert not reading.ready
    monitor = TrainingMonitor("100%")
    monitor._pending.append((1, "loss", reading))
    monitor._collect()
    assert monitor.words()["not-finite"].figures["looks"] == 0
