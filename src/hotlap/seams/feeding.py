"""Which loader feeds training, how large its batches are, and how much larger than the script asked for."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter


class Feeding:
    """Installed outside of the loader seam, so that it sees what the script asked for and what it got.

    Frameworks build a loader anew around the same dataset (with a sampler for ranks, say): growth is kept by dataset.
    """

    def __init__(self, iterated: Callable[[], None] | None = None) -> None:
        self._told = iterated
        self._growth: dict[int, float] = {}  # by identity of the dataset
        self._latest: Callable[[], Any] = lambda: None  # the loader that was iterated last, while it lives

    def listen(self, fitter: Fitter, *, to_growth: bool) -> None:
        from torch.utils.data import DataLoader

        if to_growth:
            fitter.wrap(DataLoader, "__init__", self._around_init)
        fitter.wrap(DataLoader, "__iter__", self._around_iter)

    @property
    def batch_size(self) -> int | None:
        """Of the loader that was iterated last, which at a training step is the one that feeds it."""
        return _batch_size(self._latest())

    @property
    def growth(self) -> float:
        return self._growth.get(id(getattr(self._latest(), "dataset", None)), 1.0)

    def _around_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def built(loader: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
            sampler = kwargs.get("batch_sampler", args[2] if len(args) > 2 else None)
            asked = batch_size if sampler is None else getattr(sampler, "batch_size", None)
            original(loader, dataset, batch_size, *args, **kwargs)
            boundary.attempt(self._built, loader, dataset, asked)

        return built

    def _built(self, loader: Any, dataset: Any, asked: Any) -> None:
        got = _batch_size(loader)
        if isinstance(asked, int) and asked and got and got != asked:
            self._growth.setdefault(id(dataset), got / asked)

    def _around_iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def iterated(loader: Any) -> Any:
            self._latest = weakref.ref(loader)
            if self._told is not None:
                boundary.attempt(self._told)
            return original(loader)

        return iterated


def _batch_size(loader: Any) -> int | None:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None
