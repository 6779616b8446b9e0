"""Threads are used only where they bring something and change nothing."""

from __future__ import annotations

import gc
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.data.budget import Budget
from hotlap.data.loader import Loader
from hotlap.data.loader_fetch import hazard


class Sleeping(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.tensor(index)


class Shared(Sleeping):
    """Two threads at once disturb each other, without an open file that would show it."""

    def __getitem__(self, index):
        self.current = index
        super().__getitem__(index)
        return torch.tensor(self.current)


def test_items_that_wait_are_fetched_by_threads(same):
    loader = Loader(Sleeping(), 4)
    same(list(DataLoader(range(400), 4)), list(loader))
    assert "they let go of the GIL" in loader.explain()
    assert loader._running.tuner.setting.way == "threads"
    gc.collect()
    assert not [
        thread for thread in threading.enumerate() if thread.name == "hotlap-fetch" and thread.is_alive()
    ]


def test_items_that_disturb_each_other_are_found_out(same):
    loader = Loader(Shared(), 4, budget=Budget(cores=1))
    found = [batch for batch, _ in zip(loader, range(40), strict=False)]
    same(list(DataLoader(range(160), 4)), found)
    assert "items that several threads fetch at once come out differently" in loader.explain()


@pytest.mark.parametrize("held", [True, False])
def test_an_open_file_is_seen_from_outside(tmp_path, held):
    class Reader:
        def __init__(self):
            self.inner = {"path": tmp_path}
            if held:
                self.part = type("Part", (), {})()
                self.part.file = (tmp_path / "x").open("wb")

    reader = Reader()
    assert ("open file" in hazard(reader)) == held
    if held:
        reader.part.file.close()


def test_threads_can_be_forbidden():
    loader = Loader(Sleeping(), 4, threads=False)
    next(iter(loader))
    assert loader._running.limits.no_threads == "they were not allowed"
