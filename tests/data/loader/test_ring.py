"""Slots come back when the last tensor that views them has died, and not before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hotlap.data.ring import Arena, DoesNotFitError, SlotPool, read, write


def new_ring():
    ring = SlotPool(64 << 20)
    ring.expect(1 << 20)
    return ring


def passed(ring, data):
    slot = ring.take()
    written = write(data, Arena(slot.memory))
    return slot, read(ring.lend(slot), written)


def test_everything_comes_through(same):
    ring = new_ring()
    tensor = torch.arange(24.0).view(2, 3, 4)
    data = {
        "plain": tensor,
        "channels last": tensor.permute(0, 2, 1),
        "part": tensor[:, ::2],
        "expanded": torch.ones(3, 1).expand(3, 5),
        "bfloat16": tensor.bfloat16(),
        "bool": tensor > 3,
        "complex": torch.view_as_complex(torch.randn(4, 2)),
        "nothing": torch.empty(0, 3),
        "scalar": torch.tensor(3),
        "array": np.arange(5000.0),
        "small array": np.arange(3),
        "words": ["a", b"b", None],
    }
    _, found = passed(ring, data)
    same(data, found)
    assert found["array"].flags.writeable
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(passed(ring, sparse)[1].to_dense(), torch.eye(3))
    grown = torch.ones(2, requires_grad=True)
    assert passed(ring, grown)[1].requires_grad


def test_what_is_saved_is_only_the_tensor():
    ring = new_ring()
    _, (small, _) = passed(ring, (torch.ones(4), torch.ones(10_000)))
    assert small.untyped_storage().nbytes() == 16


def test_a_slot_is_lent_as_long_as_anything_views_it():
    ring = new_ring()
    slot, batch = passed(ring, (torch.ones(100), np.ones(1000)))
    view = batch[0][3:].numpy()
    array = batch[1]
    del batch
    assert ring.lent == 1
    del array
    assert ring.lent == 1
    assert ring.take() is not slot
    del view
    assert ring.lent == 0
    assert ring.take() is slot


def test_a_slot_that_a_forked_process_sees_is_given_up():
    ring = new_ring()
    slot, batch = passed(ring, torch.ones(10))
    ring.retire_lent()
    del batch
    assert ring.lent == 0
    assert ring.take() is not slot


def test_slots_grow_and_small_ones_go():
    ring = new_ring()
    small = ring.take()
    with pytest.raises(DoesNotFitError) as miss:
        write([torch.ones(1 << 20), torch.ones(10)], Arena(small.memory))
    assert 4 << 20 < miss.value.need < 5 << 20
    ring.expect(miss.value.need)
    ring.give_back(small)
    large = ring.take()
    assert large.size >= miss.value.need
    write([torch.ones(1 << 20), torch.ones(10)], Arena(large.memory))
    assert ring.bytes == large.size


def test_the_budget_is_kept_unless_one_must_be_had():
    ring = SlotPool(3 << 20)
    ring.expect(1 << 20)
    taken = [ring.take(), ring.take()]
    assert None not in taken
    assert ring.take() is None
    assert ring.take(must=True) is not None
