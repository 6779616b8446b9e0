"""The last good state: what it puts back, and when a new one is taken."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hotlap.seams import snapshot
from hotlap.seams.snapshot import Keeper, Snapshot


@pytest.fixture
def trained(train):
    done = train(lambda: nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)), steps=3)
    return done.net, done.optimizer


def spoil(tensor):
    with torch.no_grad():
        tensor.fill_(torch.nan)


def state(net, optimizer):
    values = [each.clone() for each in (*net.parameters(), *net.buffers())]
    return values + [v.clone() for held in optimizer.state.values() for v in held.values()]


def test_broken_parameters_bring_everything_back(trained):
    net, adam = trained
    good = Snapshot([net], [adam], 4)
    before = state(net, adam)
    x = torch.randn(32, 8)
    for _ in range(2):
        net(x).sum().backward()
        adam.step()
    spoil(net[0].weight)
    assert good.restore() is True
    assert all(mine.equal(theirs) for mine, theirs in zip(state(net, adam), before, strict=True))
    assert net[0].weight.grad is None


def test_a_broken_buffer_comes_back_alone(trained):
    net, adam = trained
    good = Snapshot([net], [adam], 4)
    with torch.no_grad():
        net[0].weight.add_(1.0)  # a step that was made since
    later = net[0].weight.clone()
    average = net[1].running_mean.clone()
    spoil(net[1].running_mean)
    assert good.restore() is False
    assert net[1].running_mean.equal(average)
    assert net[0].weight.equal(later)


def test_a_snapshot_can_be_used_twice(trained):
    net, adam = trained
    good = Snapshot([net], [adam], 4)
    for _ in range(2):
        spoil(net[0].weight)
        good.restore()
        net(torch.randn(32, 8)).sum().backward()
        adam.step()
    spoil(net[0].weight)
    good.restore()
    assert torch.isfinite(net[0].weight).all()


def test_a_graph_that_the_script_holds_can_still_pass_back(trained):
    net, adam = trained
    good = Snapshot([net], [adam], 4)
    loss = net(torch.randn(32, 8)).sum()
    spoil(net[1].running_mean.data)
    good.restore()
    loss.backward()


def test_one_is_taken_when_the_last_one_has_paid(trained):
    now = [0.0]

    def clock():
        now[0] += 0.5  # taking one lasts half a second, so it is worth 50
        return now[0]

    keeper, (net, adam) = Keeper(clock), trained
    taken = []
    for step in range(1, 200):
        keeper.look([net], [adam], step)
        keeper.confirm(step)
        if not taken or keeper.good is not taken[-1]:
            taken.append(keeper.good)
    # Each look takes half a second as well, so 50 seconds are 99 steps, with the two looks of a step that takes one.
    assert [each.step for each in taken] == [1, 100, 199]


def test_it_is_good_only_once_its_loss_is_known(trained):
    keeper, (net, adam) = Keeper(), trained
    keeper.look([net], [adam], 7)
    keeper.confirm(6)
    assert keeper.good is None
    keeper.confirm(7)
    assert keeper.good.step == 7
    keeper.forget()
    assert keeper.good.step == 7


def test_nothing_is_kept_where_memory_is_short(trained, monkeypatch):
    monkeypatch.setattr(snapshot, "_free_bytes", lambda device: 1000)
    keeper, (net, adam) = Keeper(), trained
    keeper.look([net], [adam], 1)
    keeper.confirm(1)
    assert keeper.good is None
