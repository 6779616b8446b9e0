"""Memory is used again only where nobody can see it."""

from __future__ import annotations

import threading

import numpy as np
import torch

from hotlap.data.spans import KEPT, LEAST_BYTES, Recycler

SHAPE, DTYPE = (LEAST_BYTES // 4, 2), np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_what_was_let_go_is_used_again():
    recycler = Recycler()
    first = recycler.empty(SHAPE, DTYPE)
    place = address(first)
    del first
    assert address(recycler.empty(SHAPE, DTYPE)) == place
    assert recycler.empty(SHAPE, np.dtype(np.int32)).dtype == np.int32


def test_what_someone_holds_in_any_way_is_not():
    recycler = Recycler()
    holders = [
        lambda array: array,
        lambda array: array[3:5, :1],
        lambda array: torch.from_numpy(array)[7],
        lambda array: memoryview(array),
        lambda array: {"deep": [array.reshape(-1)]},
        lambda array: torch.utils.data.default_convert(array),
    ]
    held, places = [], set()
    for hold in holders:
        array = recycler.empty(SHAPE, DTYPE)
        assert address(array) not in places
        places.add(address(array))
        held.append(hold(array))
        del array
    assert len(places) == len(holders)


def test_only_a_few_large_ones_are_kept():
    recycler = Recycler()
    held = [recycler.empty(SHAPE, DTYPE) for _ in range(10)]
    assert len(recycler._kept) == KEPT
    del held
    recycler.empty((3,), DTYPE)
    assert all(array.nbytes >= LEAST_BYTES for array in recycler._kept)


def test_threads_never_get_the_same_array():
    recycler, wrong = Recycler(), []

    def work(number: int) -> None:
        for _ in range(300):
            array = recycler.empty(SHAPE, DTYPE)
            array[:16] = number
            array[-16:] = number
            if not (array[:16] == number).all() or not (array[-16:] == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
