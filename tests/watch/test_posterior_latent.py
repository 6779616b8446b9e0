"""Figures of a posterior against what is known of normal distributions, and what looking leaves untouched."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from hotlap.watch import posterior


def noise_for(mu, seed=1):
    return torch.randn(mu.shape, generator=torch.Generator().manual_seed(seed))


def pairwise_information(mu, logvar, noise):
    """The definition, pair by pair, in 64 bits."""
    mu, logvar, noise = mu.double(), logvar.double(), noise.double()
    z = mu + (0.5 * logvar).exp() * noise
    rows = []
    for at in range(len(mu)):
        each = torch.distributions.Normal(mu, (0.5 * logvar).exp()).log_prob(z[at]).sum(1)
        rows.append(each[at] - torch.logsumexp(each, 0) + math.log(len(mu)))
    return torch.stack(rows).mean().item()


@pytest.mark.parametrize("logvar", [-12.0, -4.0, -1.0, 0.0, 1.0])
@pytest.mark.parametrize("spread", [0.01, 0.5, 3.0])
def test_the_matrix_products_agree_with_the_definition(logvar, spread):
    torch.manual_seed(0)
    mu = spread * torch.randn(64, 24) + 5.0
    logvars = logvar + 0.3 * torch.randn(64, 24)
    noise = noise_for(mu)
    found = posterior.mutual_information(mu, logvars, noise).item()
    expected = min(max(pairwise_information(mu, logvars, noise), 0.0), math.log(64))
    assert found == pytest.approx(expected, abs=2e-3)


def test_it_saturates_at_the_logarithm_of_the_rows_and_is_nothing_when_all_are_alike():
    apart = 100.0 * torch.randn(128, 8)
    narrow = torch.full((128, 8), -6.0)
    assert posterior.mutual_information(apart, narrow, noise_for(apart)).item() == pytest.approx(
        math.log(128)
    )
    alike = torch.zeros(128, 8)
    assert posterior.mutual_information(alike, alike, noise_for(alike)).item() == pytest.approx(0.0, abs=1e-5)


def test_divergence_and_variance_of_each_dimension():
    torch.manual_seed(0)
    mu = torch.randn(4096, 3) * torch.tensor([2.0, 0.05, 0.0])
    logvar = torch.tensor([-2.0, 0.0, 0.0]).expand(4096, 3)
    found = posterior.figures(mu, logvar, noise_for(mu))
    prior = torch.distributions.Normal(0.0, 1.0)
    exact = torch.distributions.kl_divergence(
        torch.distributions.Normal(mu, (0.5 * logvar).exp()), prior
    ).mean(0)
    assert found[:3] == pytest.approx(exact, rel=1e-4, abs=1e-6)
    assert found[3:6] == pytest.approx(mu.var(0), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("count", [2, 4, 64])
def test_every_row_is_decoded_from_another_rows_latent(count):
    z = torch.arange(float(count)).reshape(-1, 1)
    seen = []
    gap = posterior.shuffled_gap(lambda given: seen.append(given) or (given - z).abs(), z, torch.Generator())
    assert (seen[0] == z).all() and (seen[1] != z).all()
    assert sorted(seen[1].flatten().tolist()) == z.flatten().tolist()
    assert gap[0] == 0.0 and gap[1] > 0.0


def test_one_row_cannot_be_shuffled():
    assert posterior.shuffled_gap(lambda z: z, torch.zeros(1, 2), torch.Generator()) is None


def test_looking_draws_nothing_from_the_scripts_generators_and_trains_no_batch_norm():
    decoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
    decoder[3].eval()  # a part that the script has frozen
    modes = [each.training for each in decoder.modules()]
    before, state = torch.get_rng_state(), {k: v.clone() for k, v in decoder.state_dict().items()}

    def decode(z):
        torch.rand(3)  # a decoder that draws
        with posterior.evaluating(decoder):
            return decoder(z).square()

    gap = posterior.shuffled_gap(decode, torch.randn(8, 4, generator=torch.Generator()), torch.Generator())
    assert not gap.requires_grad
    assert torch.get_rng_state().equal(before)
    assert all(value.equal(state[key]) for key, value in decoder.state_dict().items())
    assert [each.training for each in decoder.modules()] == modes


def test_rows_of_sequences_and_of_half_precision():
    assert posterior.as_rows(torch.zeros(2, 3, 5, dtype=torch.bfloat16, requires_grad=True)).shape == (6, 5)
    assert posterior.as_rows(torch.zeros(2, 5, dtype=torch.float16)).dtype == torch.float32
