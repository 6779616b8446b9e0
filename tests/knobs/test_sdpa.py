"""Attention in one operator: a model of Hugging Face's shape switches, anything else is told why it cannot.

That the real ones switch is seen in the test on frameworks.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import nn

from hotlap.knobs.sdpa import Sdpa


class Model(nn.Linear):
    """As far as the knob looks at a model of transformers."""

    both = True

    def __init__(self, attention="eager", **words):
        super().__init__(8, 4)
        self.config = SimpleNamespace(_attn_implementation=attention, **words)

    def set_attn_implementation(self, name):
        if self.both:  # else transformers warns and leaves it as it is
            self.config._attn_implementation = name


class Eager(Model):
    both = False


def only(records):
    (record,) = records
    return record


def test_it_switches_and_switches_back(fit_compute, train):
    fitter = fit_compute(sdpa=True)
    net = train(Model, steps=1).net
    assert net.config._attn_implementation == "sdpa"
    assert only(fitter.fitted).numerics == "rounding"
    fitter.undo()
    assert net.config._attn_implementation == "eager"


def test_dropout_on_the_scores_draws_other_masks(fit_compute, train):
    fitter = fit_compute(sdpa=True)
    train(lambda: Model(attn_pdrop=0.1), steps=1)
    assert only(fitter.fitted).numerics == "statistical"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Model("sdpa"), "its attention is sdpa already"),
        (lambda: Model(output_attentions=True), "asks for attention weights"),
        (Eager, "Eager has one attention only, eager"),
        (lambda: nn.Linear(8, 4), "cannot be replaced from outside"),
        (lambda: nn.TransformerEncoderLayer(8, 2, 8), "use scaled_dot_product_attention already"),
    ],
)
def test_who_cannot_is_told(fit_compute, train, make, reason):
    fitter = fit_compute(sdpa=True)
    train(lambda: nn.Sequential(make(), nn.LazyLinear(4)), steps=1)
    assert reason in only(fitter.fitted).reason


def test_attention_weights_are_the_scripts_to_ask_for(fit_compute, train):
    class Own(nn.MultiheadAttention):
        def __init__(self):
            super().__init__(8, 2)

        def forward(self, x):
            return super().forward(x, x, x)[0]

    fitter = fit_compute(sdpa=True)
    train(Own, steps=1)
    assert "need_weights=False" in only(fitter.fitted).reason


def test_where_it_is_worth_a_try(compute_host, compute_timeline):
    knob, host = Sdpa(), compute_host()
    assert knob.settings(host, compute_timeline(ops=("aten::_softmax", "aten::bmm"))) == (True,)
    fused = ("aten::_softmax", "aten::_scaled_dot_product_flash_attention")
    assert knob.settings(host, compute_timeline(ops=fused)) == ()
    assert knob.settings(host, compute_timeline(ops=("aten::_log_softmax", "aten::conv2d"))) == ()  # a loss
    assert knob.settings(host, compute_timeline()) == ()
    assert knob.ceiling(compute_timeline(), host) == pytest.approx(0.8)
