"""The monitor as it is often written: the same figures as ours, dear, and blind to what never falls."""

from __future__ import annotations

import pytest
import torch

from hotlap.watch.posterior import mutual_information
from hotlap_recipes.seqset_vae.naive_monitor import NaiveMonitor, falls, pairwise_information


def test_its_mutual_information_is_that_of_the_matrix_product():
    draw = torch.Generator().manual_seed(1)
    mu, logvar = torch.randn(40, 6, generator=draw), torch.randn(40, 6, generator=draw) - 1.0
    noise = torch.randn(mu.shape, generator=torch.Generator().manual_seed(0))
    assert pairwise_information(mu, logvar) == pytest.approx(
        float(mutual_information(mu, logvar, noise)), rel=1e-4
    )


def test_it_sees_a_fall_and_misses_what_was_flat_from_the_start():
    falling = [8.0 * 0.7**look for look in range(20)]
    assert falls(falling)
    assert falls(falling, least=0.01)
    assert not falls([value / 1000 for value in falling], least=0.01)
    assert not falls([0.001] * 20)
    assert not falls([0.1 * look for look in range(20)])


def test_it_draws_what_it_has_seen(tmp_path):
    monitor = NaiveMonitor()
    for step in range(3):
        monitor.batches.append((torch.randn(8, 4), torch.zeros(8, 4)))
        monitor.look(step)
    monitor.plot(tmp_path / "plots")
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["step_000002.png"]
    assert monitor.figures["active units"] == [4.0] * 3
