"""Puts our way of running in place of torch's in a DataLoader that somebody else has built."""

from __future__ import annotations

import functools
import pickle
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch.multiprocessing
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader

from hotlap.data.loader_claim import TakenOver
from hotlap.data.loader_fetch import Fetched, FetchSpec, alike
from hotlap.data.loader_iter import LoaderIter, LoaderTuning, Wishes, no_processes
from hotlap.data.ring import SlotPool
from hotlap.data.workers import Staffing, WorkerLostError, Workers

PROOF_S = 30.0  # a batch of a few items that takes longer is not proved
PROOF_RING = 1 << 30


def take_over(
    loader: DataLoader[Any], volatile: Sequence[str] = (), lower: Callable[[str], None] = lambda _: None
) -> Callable[[], None]:
    """From its next pass on; returns the undo. No threads: a script that has none may not be made for them.

    `volatile`: what fetching an item changes of the dataset the first time, see `Dependencies`. `lower` is called
    with a reason where its batches turn out to be audited only.
    """
    running = LoaderTuning(loader, Wishes(threads=False))
    running.taken_over = TakenOver(loader, running.source, volatile, lower)
    loader.__dict__["_get_iterator"] = functools.partial(LoaderIter, loader, running)
    loader.__dict__["explain"] = running.explain
    alive = weakref.ref(loader)  # whoever keeps the undo should not keep the loader

    def undo() -> None:
        taken = alive()
        if taken is not None:
            taken.__dict__.pop("_get_iterator", None)
            taken.__dict__.pop("explain", None)

    return undo


def not_the_same(source: FetchSpec, keys: Sequence[Any]) -> str:
    """Why a batch of these items is not the same in two processes that are seeded differently; "" where it is.

    Both are processes of their own, so that nothing of the look stays in the training process.
    """
    hindrance = no_processes()
    if hindrance:
        return hindrance
    context = torch.multiprocessing.get_context()
    staffing = Staffing(source, context, base_seed=1234, timeout=PROOF_S)
    try:
        workers = Workers(staffing, 2, SlotPool(PROOF_RING))
    except (OSError, TypeError, AttributeError, pickle.PicklingError) as fault:
        return f"worker processes could not be started ({type(fault).__name__}: {fault})"
    try:
        for number in (0, 1):
            workers.submit(number, list(keys) if source.batched else keys[0], True)
        one, two = workers.collect(0), workers.collect(1)
    except WorkerLostError as loss:
        return loss.what
    finally:
        workers.close()
    return _difference(one, two)


def _difference(one: Fetched | ExceptionWrapper, two: Fetched | ExceptionWrapper) -> str:
    for each in (one, two):
        if isinstance(each, ExceptionWrapper):
            last = each.exc_msg.strip().splitlines()[-1]
            return f"an item could not be fetched in a worker process ({last})"
    assert isinstance(one, Fetched) and isinstance(two, Fetched)
    if not alike(one.data, two.data):
        return "a batch fetched twice, in two processes with different seeds, was not the same"
    return ""
