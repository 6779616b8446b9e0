"""Workers that die or hang, items that are damaged, loops that are left: nothing is lost, nothing stays behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hotlap.data.loader import Loader
from hotlap.data.workers import WorkerLostError
from hotlap.errors import HotlapError

pytestmark = pytest.mark.filterwarnings("ignore:.*worker processes in total")


class Uneven(Dataset):
    """Batches take from nothing to some milliseconds, and differ in size."""

    def __len__(self):
        return 240

    def __getitem__(self, index):
        if index % 5 == 0:
            time.sleep(0.002)
        return torch.full((1 + 500 * (index % 3),), index)


def varied(items):
    return torch.cat(items)


class Killer(threading.Thread):
    """Kills a worker at seeded moments, until it is told to stop."""

    def __init__(self, seed, kills, pause_s):
        super().__init__(daemon=True)
        self.random, self.left, self.pause_s = random.Random(seed), kills, pause_s
        self.killed = 0
        self.spared = set(self.children())  # those of others, such as multiprocessing's tracker

    @staticmethod
    def children():
        listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
        return [int(each) for each in listed.split()]

    def run(self):
        while self.left:
            time.sleep(self.random.uniform(0, self.pause_s))
            workers = [each for each in self.children() if each not in self.spared and _runs(each)]
            if workers:
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(self.random.choice(workers), signal.SIGKILL)
                    self.left, self.killed = self.left - 1, self.killed + 1


def test_a_hundred_kills(same):
    """At random moments, with the consumer waiting or at work, with workers idle, fetching or reporting."""
    expected = list(DataLoader(Uneven(), 4, collate_fn=varied))
    killed = replaced = seed = 0
    while killed < 100:
        seed += 1
        killer = Killer(seed, min(10, 100 - killed), 0.12)
        loader = Loader(Uneven(), 4, collate_fn=varied, num_workers=3, persistent_workers=seed % 2 == 0)
        killer.start()
        while killer.left:
            same(expected, list(loader))
        killer.join()
        if loader.persistent_workers:
            same(expected, list(loader))
        killed += killer.killed
        replaced += loader._running.replaced
    assert killed == 100
    assert replaced >= 30  # the others hit workers that were just ending


class Counting(IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        for index in range(40):
            time.sleep(0.001)
            yield worker, index, torch.rand(1)


def test_streams_go_on_where_they_were(same):
    torch.manual_seed(4)
    expected = list(DataLoader(Counting(), 4, num_workers=2))
    torch.manual_seed(4)
    found = []
    for batch in Loader(Counting(), 4, num_workers=2):
        found.append(batch)
        if len(found) in (3, 8):
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    same(expected, found)  # with what the items draw


def test_auto_recovers_too(same):
    class Busy(Uneven):
        def __getitem__(self, index):
            sum(range(100_000))
            return super().__getitem__(index)

    expected = list(DataLoader(Busy(), 4, collate_fn=varied))
    loader = Loader(Busy(), 4, collate_fn=varied, worker_init_fn=_nothing)
    found = []
    for batch in loader:
        found.append(batch)
        if len(found) % 15 == 5:
            os.kill(multiprocessing.active_children()[-1].pid, signal.SIGKILL)
    same(expected, found)
    assert "were replaced" in loader.explain()


def _nothing(worker):
    pass


class Deadly(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_a_batch_that_always_kills_is_named():
    batches = iter(Loader(Deadly(), 2, num_workers=2))
    assert [next(batches).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(WorkerLostError, match=r"signal 9.*at batch 3.*\[6, 7\]") as caught:
        next(batches)
    assert isinstance(caught.value, RuntimeError)  # what torch raises when it loses a worker


class Hangs(Dataset):
    """The first worker to fetch item 5 hangs; with `always`, each of them."""

    def __init__(self, flag, always=False):
        self.flag, self.always = flag, always

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 5 and (self.always or not self.flag.exists()):
            self.flag.touch()
            time.sleep(600)
        return index


def test_a_hung_worker_is_replaced(tmp_path):
    loader = Loader(Hangs(tmp_path / "hung"), 2, num_workers=2, timeout=0.7)
    assert [batch.tolist() for batch in loader] == [[i, i + 1] for i in range(0, 12, 2)]
    assert "replaced 1 time" in loader.explain()


def test_a_batch_that_always_hangs_is_named(tmp_path):
    loader = Loader(Hangs(tmp_path / "hung", always=True), 2, num_workers=1, timeout=0.3)
    with pytest.raises(WorkerLostError, match=r"timed out after 0.3 seconds.*at batch 2"):
        list(loader)


class Damaged(Dataset):
    def __init__(self, bad=(3, 8, 9), together=False):
        self.bad = bad
        if together:
            self.__getitems__ = lambda indices: [self[index] for index in indices]

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index in self.bad:
            raise KeyError(f"item {index} is damaged")
        return index


@pytest.mark.parametrize("workers", [0, 2, "auto"])
def test_damaged_items_are_left_out_when_asked(workers):
    loader = Loader(Damaged(), 2, num_workers=workers, skip_bad=3)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2], [4, 5], [6, 7], [10, 11]]
    assert [each.key for each in loader.bad] == [3, 8, 9]
    assert "item 9 is damaged" in loader.bad[-1].error
    assert "3 damaged items were left out" in loader.explain()
    assert [batch.tolist() for batch in loader][1] == [2]  # the cap is for an epoch

    capped = Loader(Damaged(), 2, num_workers=workers, skip_bad=2)
    with pytest.raises(HotlapError, match=r"3 items of this epoch are damaged, 2 were allowed(.|\n)*item 9"):
        list(capped)
    one_by_one = Loader(Damaged(), batch_size=None, num_workers=workers, skip_bad=5)
    assert list(one_by_one) == [0, 1, 2, 4, 5, 6, 7, 10, 11]


def test_a_stream_cannot_skip():
    with pytest.raises(HotlapError, match="skip_bad=1 with the stream Counting"):
        Loader(Counting(), skip_bad=1)


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not to be pickled")


@pytest.mark.parametrize("way", ["in-process", "threads", "processes"])
def test_exceptions_tell_where_they_come_from(way):
    loader = Loader(Damaged(), 2, num_workers=2, way=way)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(KeyError) as caught:
        next(batches)
    text = str(caught.value) + "".join(str(each.path) for each in caught.traceback)
    assert "item 3 is damaged" in text
    assert "test_faults.py" in text
    assert next(batches).tolist() == [4, 5]  # as in torch, the loop can go on


def test_a_failing_worker_init_fn_is_told():
    def fails(worker):
        raise ValueError(f"no place for worker {worker}")

    with pytest.raises(ValueError, match="no place for worker 0"):
        next(iter(Loader(Damaged(()), 2, num_workers=1, worker_init_fn=fails)))


def test_what_cannot_be_pickled_is_told():
    class Odd(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return lambda: index

    with pytest.raises(Exception, match=r"(?i)pickle"):
        next(iter(Loader(Odd(), 1, num_workers=1, collate_fn=list)))


@pytest.mark.parametrize("workers", [2, "auto"])
def test_a_loop_that_is_left_leaves_nothing(workers):
    loader = Loader(Uneven(), 4, collate_fn=varied, num_workers=workers)
    for _ in range(3):
        batch = next(iter(loader))
        assert not multiprocessing.active_children()
    assert batch[0] == 0  # still readable after its ring has gone


def test_a_forked_process_keeps_the_batch_that_it_saw():
    """Slots that another process may look at are not written to again."""
    batches = iter(Loader(Uneven(), 4, collate_fn=varied, num_workers=2))
    batch, (ours, theirs) = next(batches), os.pipe()
    before = batch.sum().item()
    pid = os.fork()
    if pid == 0:
        os.read(ours, 1)
        os._exit(0 if batch.sum().item() == before else 1)
    del batch
    for _ in range(20):
        next(batches)
    os.write(theirs, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(ours)
    os.close(theirs)


SCRIPT = """
import multiprocessing, os, sys, time, torch
from pathlib import Path
from hotlap.data.loader import Loader

class Slow(torch.utils.data.Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((1000,), index)

def shared_files(pid):
    maps = Path(f"/proc/{pid}/maps").read_text()
    return [line for line in maps.splitlines() if "/dev/shm" in line]

if __name__ == "__main__":
    loader = Loader(Slow(), 8, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    for _ in range(10):
        next(batches)
    workers = [each.pid for each in multiprocessing.active_children()]
    assert len(workers) == 2
    print(*workers, flush=True)
    print(sum(map(len, map(shared_files, [os.getpid(), *workers]))), flush=True)
    if sys.argv[1] == "exit":
        sys.exit(0)
    if sys.argv[1] == "raise":
        raise RuntimeError("the script fails")
    time.sleep(600)
"""


@pytest.mark.parametrize("ending", ["kill", "exit", "raise"])
def test_nothing_outlives_the_script(tmp_path, ending):
    """However it ends: no worker, and no file in shared memory, because there never was one."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with subprocess.Popen(
        [sys.executable, "-W", "error", script, ending],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        workers = [int(each) for each in process.stdout.readline().split()]
        files = process.stdout.readline().strip()
        if ending == "kill":
            process.kill()
        _, said = process.communicate(timeout=60)
    assert files == "0"
    if ending == "exit":
        assert said == ""
    deadline = time.monotonic() + 30
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_runs, workers))


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
