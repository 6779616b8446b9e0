"""Where scripts keep their posterior."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.distributions import Normal

from hotlap.watch.posterior import posterior_at, posterior_in

MU, LOGVAR = torch.randn(4, 2), torch.randn(4, 2)


@pytest.mark.parametrize(
    "value",
    [
        (MU, LOGVAR),
        [MU, LOGVAR],
        {"loss": torch.zeros(()), "mu": MU, "logvar": LOGVAR},
        {"mean": MU, "log_var": LOGVAR},
        {"z_mean": MU, "z_log_var": LOGVAR},
        SimpleNamespace(mu=MU, logvar=LOGVAR),
        Normal(MU, (0.5 * LOGVAR).exp()),
        {"loc": MU, "scale": (0.5 * LOGVAR).exp()},
    ],
    ids=lambda value: type(value).__name__,
)
def test_all_these_are_posteriors(value):
    found = posterior_in(value)
    assert found.mu.equal(MU) and torch.allclose(found.logvar, LOGVAR, atol=1e-6) and found.decode is None


@pytest.mark.parametrize(
    "value",
    [None, 3.0, torch.zeros(3), (MU,), (MU, 1.0), {"loss": MU}, {"mu": MU}, {"mu": 1, "logvar": 2}, {}],
)
def test_and_these_are_none(value):
    assert posterior_in(value) is None


def test_a_decoder_comes_with_it():
    assert posterior_in({"mu": MU, "logvar": LOGVAR, "decode": torch.sin}).decode is torch.sin
    assert posterior_in((MU, LOGVAR, torch.sin)).decode is torch.sin


def test_attributes_of_parts_and_functions():
    module = SimpleNamespace(
        encoder=SimpleNamespace(last=(MU, LOGVAR), make=lambda: {"mu": MU, "logvar": LOGVAR})
    )
    assert posterior_at(module, "encoder.last").mu is MU
    assert posterior_at(module, "encoder.make").logvar is LOGVAR
    assert posterior_at(module, "encoder.missing") is None and posterior_at(module, "no.such.path") is None
