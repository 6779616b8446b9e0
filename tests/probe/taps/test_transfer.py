"""Copies to a device are marked; casts, no-ops and copies of other threads are not. `meta` stands in for a device."""

from __future__ import annotations

import threading

import pytest
import torch

from hotlap.probe.taps import transfer


@pytest.fixture(autouse=True)
def tap(session):
    transfer.install(session)


@pytest.fixture
def copies(written):
    """How many transfers were marked so far, each whole."""

    def count():
        names = [name for name, _ in written()]
        assert names == ["+TRANSFER", "-TRANSFER"] * (len(names) // 2)
        return len(names) // 2

    return count


ROWS = torch.zeros(8, 4)


@pytest.mark.parametrize(
    "move",
    [
        lambda: ROWS.to("meta"),
        lambda: ROWS.to(torch.device("meta")),
        lambda: ROWS.to(device="meta", non_blocking=True),
        lambda: ROWS.to("meta", torch.float64),
        lambda: ROWS.to(torch.empty(1, device="meta")),
        lambda: ROWS.to("cpu", copy=True),
    ],
)
def test_a_copy_to_a_device_is_a_transfer(move, copies):
    moved = move()
    assert moved.shape == ROWS.shape
    assert copies() == 1


@pytest.mark.parametrize(
    "leave",
    [
        lambda: ROWS.to("cpu"),
        lambda: ROWS.to(torch.float64),
        lambda: ROWS.to(torch.zeros(1, dtype=torch.float16)),
        lambda: ROWS.to(dtype=torch.int64),
        lambda: ROWS.to(torch.float32),
    ],
)
def test_casts_and_no_ops_are_none(leave, copies):
    leave()
    assert copies() == 0


def test_the_tensor_that_comes_back_is_the_one_that_torch_gives():
    assert ROWS.to("cpu") is ROWS
    assert ROWS.to(torch.float64).dtype is torch.float64
    assert ROWS.to("meta").device.type == "meta"


def test_it_lasts_as_long_as_the_copy(written):
    large = torch.zeros(1_000_000)
    large.to("cpu", copy=True)
    (_, started), (_, ended) = written()
    assert 0 < started < ended


def test_the_copy_of_a_prefetching_thread_is_not_on_the_critical_path(copies):
    thread = threading.Thread(target=lambda: ROWS.to("meta"))
    thread.start()
    thread.join()
    assert copies() == 0


def test_a_move_that_fails_says_what_torch_says(copies):
    with pytest.raises(RuntimeError, match="nowhere"):
        ROWS.to("nowhere")
    assert copies() == 0


def test_a_module_is_moved_by_its_tensors(copies):
    torch.nn.Linear(4, 4).to("meta")
    assert copies() == 2


def test_after_detaching_nothing_is_marked(session, copies):
    session.detach()
    ROWS.to("meta")
    assert copies() == 0
