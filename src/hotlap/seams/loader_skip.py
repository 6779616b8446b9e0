"""Leaves out samples that cannot be read, up to a number that the user allowed.

A batch is then smaller by them; one that would be empty is passed over. With more than one rank it is an error: the
others would wait for it. Samples are left out where reading them raises; one of a wrong shape fails in collate.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import fetch, pin_memory
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from hotlap.errors import visible
from hotlap.seams.fitter import Fitter

ENVIRONMENT = "HOTLAP_SKIP_BAD"
_MOST_TOLD = 20  # samples by index, in the run's record
Bad = tuple[Any, ExceptionWrapper]


def allowed(option: Any) -> int:
    """How many samples may be left out: by the command line, or the environment for whoever runs without it."""
    given = option if option is not None else os.environ.get(ENVIRONMENT, "")
    return max(0, int(given)) if str(given).strip().isdigit() else 0


def install(fitter: Fitter, most: int) -> None:
    fitter.wrap(fetch._MapDatasetFetcher, "fetch", _around_fetch)
    count = _Count(fitter, most)
    for kind in (_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter):
        fitter.wrap(kind, "_next_data", functools.partial(_around_next, count))


class Lessened:
    """A batch on its way from a worker, with what was left out of it."""

    def __init__(self, batch: Any, empty: bool, bad: list[Bad]) -> None:
        self.batch, self.empty, self.bad = batch, empty, bad

    def pin_memory(self, device: Any = None) -> Lessened:
        if not self.empty:
            self.batch = pin_memory.pin_memory(self.batch, device)  # type: ignore[no-untyped-call]
        return self


class _Count:
    """Of samples, not of times: one that is torn is met again in every epoch."""

    def __init__(self, fitter: Fitter, most: int) -> None:
        self._fitter, self._most = fitter, most
        self._met: dict[tuple[int, str], Any] = {}  # by dataset and index

    def add(self, lessened: Lessened, dataset: Any) -> None:
        for index, error in lessened.bad:
            key = id(dataset), repr(index)
            new = key not in self._met
            if (new and len(self._met) >= self._most) or (lessened.empty and _ranks() > 1):
                error.reraise()  # type: ignore[no-untyped-call]
            if new:
                self._met[key] = index
                self._tell(index, error)

    def _tell(self, index: Any, error: ExceptionWrapper) -> None:
        count = f"{len(self._met)} of at most {self._most}"
        why = f"{error.exc_type.__name__} while it was read"
        print(f"hotlap: sample {index} was left out ({count}): {visible(why)}", file=sys.stderr, flush=True)
        told = [each if isinstance(each, int) else str(each) for each in self._met.values()]
        self._fitter.note("skipped_samples", {"count": len(told), "first": told[:_MOST_TOLD]})


def _around_fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fetched(self: Any, index: Any) -> Any:
        try:
            return original(self, index)
        except Exception:
            lessened = _without_bad(self, index)
            if lessened is None:
                raise
            return lessened

    return fetched


def _without_bad(fetcher: Any, index: Any) -> Lessened | None:
    """Item by item; None where each of them can be read, so that something else has failed."""
    good: list[Any] = []
    bad: list[Bad] = []
    for each in index if fetcher.auto_collation else [index]:
        try:
            good.append(_item(fetcher.dataset, each))
        except Exception:
            error = ExceptionWrapper(where="while a sample was read")  # type: ignore[no-untyped-call]
            bad.append((each, error))
    if not bad:
        return None
    if not good:
        return Lessened(None, True, bad)
    return Lessened(fetcher.collate_fn(good if fetcher.auto_collation else good[0]), False, bad)


def _item(dataset: Any, index: Any) -> Any:
    at_once = getattr(dataset, "__getitems__", None)
    return at_once([index])[0] if callable(at_once) else dataset[index]


def _around_next(count: _Count, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def given(self: Any) -> Any:
        while isinstance(data := original(self), Lessened):
            count.add(data, self._dataset)
            if not data.empty:
                return data.batch
        return data

    return given


def _ranks() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
