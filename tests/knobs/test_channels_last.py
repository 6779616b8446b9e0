"""Images channel by channel: the layout comes, goes, and gives way to a forward that does not bear it."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from hotlap.knobs.channels_last import ChannelsLast
from hotlap.ports.knob import Numerics

SHAPE = (8, 3, 6, 6)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        # Without a bias: before a norm its gradient is rounding alone, which Adam would blow up.
        self.conv, self.norm = nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5)
        self.last = nn.Linear(5 * 16, 4)

    def forward(self, x):
        return self.last(torch.dropout(self.norm(self.conv(x)).flatten(1), 0.1, self.training))


class Viewing(Conv):
    """As many scripts write it: `view` wants the channels in front."""

    def forward(self, x):
        h = self.norm(self.conv(x))
        return self.last(torch.dropout(h.view(len(h), -1), 0.1, self.training))


def only(records):
    (record,) = records
    return record


def layout(net):
    return net.conv.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("build", [torch.optim.AdamW, lambda *a, **k: torch.optim.AdamW(*a, fused=True, **k)])
def test_the_same_training_by_rounding(fit_compute, train, build):
    plain = train(Conv, shape=SHAPE, build=build)
    fitter = fit_compute(channels_last=True)
    done = train(Conv, shape=SHAPE, build=build)
    assert layout(done.net) and only(fitter.fitted).numerics is Numerics.ROUNDING
    assert done.apart_from(plain) < 1e-4
    other = Conv()
    other.load_state_dict(done.net.state_dict())
    assert other.conv.weight.is_contiguous() and other.conv.weight.equal(done.net.conv.weight)
    fitter.undo()
    assert done.net.conv.weight.is_contiguous() and "_compiled_call_impl" not in vars(done.net)


def test_dropout_is_said_to_differ(fit_compute, train):
    fitter = fit_compute(channels_last=True)
    train(
        lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.Dropout(0.1), nn.Flatten(), nn.Linear(80, 4)),
        2,
        shape=SHAPE,
    )
    assert only(fitter.fitted).numerics is Numerics.STATISTICAL


def test_what_an_optimizer_has_kept_is_laid_out_alike(fit_compute, train):
    """A fused step walks over both in the order of memory."""
    resumed = train(Conv, shape=SHAPE, steps=2)
    plain = train(Conv, shape=SHAPE, steps=2)
    fit_compute(channels_last=True)
    for done in (resumed, plain):
        torch.manual_seed(1)
        adam = torch.optim.AdamW(done.net.parameters(), lr=0.01, fused=True)
        adam.load_state_dict(done.optimizer.state_dict())
        if done is plain:
            done.net.eval()  # in eval mode nothing is offered: this one stays as it is
            done.net.norm.train()
        x = torch.randn(SHAPE)
        done.net.conv(x) if done is plain else done.net(x)
        done.net.zero_grad()
        for parameter in done.net.parameters():
            parameter.grad = torch.ones_like(parameter)
        adam.step()
    assert layout(resumed.net)
    assert resumed.net.conv.weight.allclose(plain.net.conv.weight, atol=1e-6)


def test_a_forward_that_does_not_bear_it_is_redone(fit_compute, train):
    plain = train(Viewing, shape=SHAPE)
    fitter = fit_compute(channels_last=True)
    done = train(Viewing, shape=SHAPE)
    assert done.same_as(plain), "nothing is lost and nothing was done twice"
    down = only(fitter.step_downs)
    assert (down.knob, down.after) == ("channels-last", False)
    assert "view size is not compatible" in down.reason
    assert not layout(done.net)


def test_an_error_of_the_script_stays_its_own(fit_compute, train):
    fit_compute(channels_last=True)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        train(Conv, shape=(8, 3, 9, 9))


def test_without_convolutions_it_is_refused(fit_compute, train):
    fitter = fit_compute(channels_last=True)
    train(steps=1)
    assert only(fitter.fitted).reason == "it has no 2-D or 3-D convolution, and no 1-D one on a CPU"


class Causal(nn.Conv1d):
    """As scripts pad on the left: what is wrapped must be reached from a forward of their own."""

    def forward(self, signal):
        return super().forward(nn.functional.pad(signal, (2 * self.dilation[0], 0)))


class Rows(nn.Module):
    """Signals of 3 channels and 20 steps, by every way of padding that torch has."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                Causal(3, 4, 3, dilation=2, stride=2),
                nn.Conv1d(4, 4, 3, padding="same", groups=2),
                nn.Conv1d(4, 6, 5, padding=2, bias=False),
                nn.Conv1d(6, 6, 3, padding=1, padding_mode="circular"),
            ]
        )
        self.last = nn.Linear(60, 4)
        self.strides = []

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
            self.strides.append(x.stride())
        return self.last(x.flatten(1))


def test_signals_are_images_of_one_row(fit_compute, train):
    plain = train(Rows, shape=(8, 3, 20))
    own = nn.Conv1d._conv_forward
    fitter = fit_compute(channels_last=True)
    done = train(Rows, shape=(8, 3, 20))
    assert only(fitter.fitted).numerics is Numerics.ROUNDING
    assert done.apart_from(plain) < 1e-4
    assert [stride[1] for stride in done.net.strides[:3]] == [1, 1, 1], "channels stand side by side"
    assert done.net.layers[0](torch.ones(3, 20)).shape == (4, 10), (
        "one signal without a batch is left to torch"
    )
    torch.save(done.net, io.BytesIO())
    fitter.undo()
    assert nn.Conv1d._conv_forward is own


def test_a_forward_that_does_not_bear_signals_so_is_redone(fit_compute, train):
    class ViewingRows(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.Conv1d(3, 4, 3), nn.Linear(72, 4)

        def forward(self, x):
            return self.last(self.layer(x).view(len(x), -1))

    plain, own = train(ViewingRows, shape=(8, 3, 20)), nn.Conv1d._conv_forward
    fitter = fit_compute(channels_last=True)
    done = train(ViewingRows, shape=(8, 3, 20))
    assert done.same_as(plain) and "view size is not compatible" in only(fitter.step_downs).reason
    assert nn.Conv1d._conv_forward is own


def test_where_it_is_worth_a_try(compute_host, compute_timeline):
    knob, host = ChannelsLast(), compute_host()
    assert knob.settings(host, compute_timeline(ops=("aten::mkldnn_convolution",))) == (True,)
    assert knob.settings(host, compute_timeline(ops=("aten::addmm",))) == ()
    assert knob.settings(host, compute_timeline()) == ()
    assert knob.ceiling(compute_timeline(), host) == pytest.approx(0.8)
