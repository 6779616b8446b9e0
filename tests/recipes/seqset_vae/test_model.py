"""The network: padding and order change nothing, losses are what they are called."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from hotlap_recipes.seqset_vae.data import Collate
from hotlap_recipes.seqset_vae.model import PRECISION, SIZES, Posterior, SeqSetVAE, chamfer, masked_mean
from hotlap_recipes.seqset_vae.module import Objective, inputs_of


@pytest.fixture
def model():
    torch.manual_seed(0)
    return SeqSetVAE(16, SIZES["tiny"])


def outcome(model, batch):
    """Posterior, losses and gradients, from the same draw of the latent."""
    torch.manual_seed(5)
    model.zero_grad()
    posterior, losses = model(**inputs_of(batch))
    (losses.mean() + posterior.divergence().sum()).backward()
    return posterior, losses.detach(), [each.grad.clone() for each in model.parameters()]


def test_padding_changes_nothing(model, items):
    tight, wide = (outcome(model, Collate(90, dynamic)(items)) for dynamic in (True, False))
    torch.testing.assert_close(tight, wide, rtol=1e-4, atol=1e-5)
    alone = outcome(model, Collate(90, True)(items[:1]))[0]
    torch.testing.assert_close(alone.mu[0], wide[0].mu[0], rtol=1e-4, atol=1e-5)
    assert all(each.isfinite().all() and each.any() for each in wide[2])


def test_what_stands_in_padded_places_is_never_read(model, items):
    batch = Collate(60, False)(items)
    spoiled = {name: each.clone() for name, each in batch.items()}
    there = batch["present"].any(-1)
    spoiled["minutes"][~there] = 1e5
    later = (
        ~batch["present"] & there[..., None]
    )  # places of real sets: a padded set is read, and then left out
    spoiled["events"][later] = 1e3
    for got, expected in zip(outcome(model, spoiled)[:2], outcome(model, batch)[:2], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_the_order_within_a_set_does_not_matter_and_the_time_of_a_set_does(model, items):
    batch = Collate(60, True)(items)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(0))
    turned = batch | {name: batch[name][:, :, order] for name in ("events", "present")}
    torch.testing.assert_close(outcome(model, turned), outcome(model, batch), rtol=1e-4, atol=1e-5)
    later = batch | {"minutes": batch["minutes"] + 700}
    assert not torch.allclose(outcome(model, later)[0].mu, outcome(model, batch)[0].mu, atol=1e-3)


def test_chamfer_is_the_distance_to_the_nearest_both_ways():
    draw = torch.Generator().manual_seed(0)
    seeds, events = torch.randn(2, 3, 4, 5, generator=draw), torch.randn(2, 3, 2, 5, generator=draw)
    present = torch.tensor([[[1, 1], [1, 0], [0, 0]], [[1, 0], [1, 1], [1, 1]]], dtype=torch.bool)
    found = chamfer(seeds, events, present)
    for row in range(2):
        sets = []
        for number in range(3):
            seen = events[row, number][present[row, number]]
            if len(seen):
                distance = torch.cdist(seen, seeds[row, number]).square() / 5
                sets.append(distance.amin(1).mean() + distance.amin(0).mean())
        assert float(found[row]) == pytest.approx(0.25 * PRECISION * float(sum(sets)) / len(sets), rel=1e-4)


def test_divergence_is_that_of_normal_distributions():
    mu, logvar = torch.randn(6, 3), torch.randn(6, 3)
    expected = kl_divergence(Normal(mu, (0.5 * logvar).exp()), Normal(0.0, 1.0)).mean(0)
    torch.testing.assert_close(Posterior(mu, logvar).divergence(), expected)
    draws = torch.stack([Posterior(mu, logvar).draw() for _ in range(4000)])
    torch.testing.assert_close(draws.mean(0), mu, rtol=0, atol=0.2)
    torch.testing.assert_close(draws.std(0), (0.5 * logvar).exp(), rtol=0.1, atol=0.0)


def test_half_precision_stays_near(model, items):
    batch = Collate(60, True)(items)
    with torch.autocast("cpu", torch.bfloat16):
        half = outcome(model, batch)
    whole = outcome(model, batch)
    torch.testing.assert_close(half[1], whole[1], rtol=0.02, atol=0.0)
    assert half[0].mu.dtype == torch.float32


def test_nothing_is_the_mean_of_nothing():
    values = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert masked_mean(values, torch.tensor([True, True])).tolist() == [2.0, 4.0]
    assert masked_mean(values, torch.tensor([False, True])).tolist() == [3.0, 6.0]
    assert masked_mean(values, torch.tensor([False, False])).tolist() == [0.0, 0.0]


def test_beta_is_warmed_up():
    objective = Objective(beta=4.0, warmup=10)
    assert [objective.weight(step) for step in (0, 4, 9, 50)] == [0.4, 2.0, 4.0, 4.0]
    assert Objective(beta=4.0, warmup=0).weight(0) == 4.0


def test_the_base_size_is_as_described():
    size = SIZES["base"]
    assert (size.width, size.latent, size.points, size.layers) == (256, 256, 16, 4)
