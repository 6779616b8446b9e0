"""Workers that die, hang or run out of shared memory: real faults, and the samples that arrive all the same."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from hotlap.probe import boundary
from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitter
from hotlap.seams.loader_rungs import tell_lost_stream

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked here")


class Rows(Dataset):
    """Row i is i, over and over; some rows do something on the way."""

    def __init__(self, count: int = 48, seconds: float = 0.0003, **trouble: Any) -> None:
        self.count, self.seconds, self.trouble = count, seconds, trouble

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        once: Path | None = self.trouble.get("once")
        if index == self.trouble.get("at") and (once is None or not once.exists()):
            if once is not None:
                once.touch()
            self.trouble["act"]()
        return torch.full((100,), index)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        for row in range(1000):
            time.sleep(0.001)
            yield row


class Failing(IterableDataset):
    """One worker comes to its end before the other one fails."""

    def __iter__(self) -> Iterator[int]:
        yield from range(8 if get_worker_info().id else 40)
        if not get_worker_info().id:
            raise ValueError("row 40 is damaged")


@contextmanager
def ladder(patience_s: float = 30.0) -> Iterator[Fitter]:
    fitter = Fitter({}, {})
    seam.install(fitter, patience_s)
    try:
        yield fitter
    finally:
        fitter.undo()


def rows_of(batches: Any) -> list[list[int]]:
    return [batch[:, 0].tolist() for batch in batches]


def expected(count: int = 48, size: int = 4) -> list[list[int]]:
    return [list(range(at, at + size)) for at in range(0, count, size)]


def epoch(loader: DataLoader, kill: random.Random | None = None) -> list[list[int]]:
    """All rows as they came; `kill` ends a worker at a random batch, and a random moment from there."""
    seen: list[list[int]] = []
    batches = iter(loader)
    killer = None
    at = kill.randrange(9) if kill else None
    for number in range(len(loader) + 1):
        if kill and number == at:
            victim = kill.choice(batches._workers or [None])
            killer = threading.Timer(kill.uniform(0, 0.004), _kill, (victim,))
            killer.start()
        batch = next(batches, None)
        if batch is not None:
            seen.append(batch[:, 0].tolist())
    if killer is not None:
        killer.join()
    return seen


def _kill(worker: Any) -> None:
    if worker is not None and worker.is_alive():
        os.kill(worker.pid, signal.SIGKILL)


# torch tells of a death by an exception out of a signal's handler. Where it strikes, a socket may be left unclosed.
@pytest.mark.filterwarnings("ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning")
def test_killed_at_any_time_gives_the_same_samples_and_random_numbers(capfd: Any) -> None:
    def trained(seed: int, workers: int, kill: random.Random | None) -> Any:
        torch.manual_seed(seed)
        persistent = bool(workers) and seed % 5 == 0
        loader = DataLoader(
            Rows(32), batch_size=4, shuffle=True, num_workers=workers, persistent_workers=persistent
        )
        # Workers that persist may also die between two epochs, or after the last.
        rows = epoch(loader, kill) + (epoch(loader) if seed % 5 == 0 and not workers else [])
        if persistent:
            torch.empty((), dtype=torch.int64).random_()  # the seed that starting them anew would draw
            rows += epoch(loader)
        return rows, torch.get_rng_state().tolist()

    with ladder() as fitter:
        for repetition in range(50):
            undisturbed = trained(repetition, 0, None)
            assert trained(repetition, 2, random.Random(repetition)) == undisturbed, f"seed {repetition}"
        assert fitter.notes["replaced_workers"] >= 10, "hardly any worker was killed in time"
    assert "was killed by SIGKILL" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_fewer_workers_the_second_time_and_in_later_epochs() -> None:
    with ladder() as fitter:
        loader = DataLoader(Rows(240), batch_size=4, num_workers=4)
        batches = iter(loader)
        killed, seen = 0, []
        for batch in batches:
            seen.append(batch[:, 0].tolist())
            if killed < 3 and fitter.notes.get("replaced_workers", 0) == killed:
                os.kill(batches._workers[0].pid, signal.SIGKILL)
                killed += 1
        assert seen == expected(240)
        assert [(down.knob, down.before, down.after) for down in fitter.step_downs] == [
            ("num-workers", 4, 2),
            ("num-workers", 2, 1),
        ]
        assert "2 fresh workers go on at batch" in fitter.step_downs[0].reason
        later = iter(loader)
        assert len(later._workers) == 1
        assert rows_of(later) == expected(240)
        assert loader.num_workers == 4, "the script's own loader is not touched"


def test_a_hung_worker_is_replaced_and_then_waited_for_longer(tmp_path: Path) -> None:
    rows = Rows(at=13, once=tmp_path / "hung", act=lambda: time.sleep(600))
    with ladder(patience_s=1.0) as fitter:
        loader = DataLoader(rows, batch_size=4, num_workers=2)
        batches = iter(loader)
        assert rows_of(batches) == expected()
        assert fitter.notes["replaced_workers"] >= 1, "more often where even starting them takes that long"
        assert batches._hotlap_rung.patience_s >= 2.0


def test_the_scripts_own_timeout_is_how_long_workers_are_waited_for(tmp_path: Path) -> None:
    rows = Rows(at=13, once=tmp_path / "hung", act=lambda: time.sleep(600))
    with ladder() as fitter:
        assert rows_of(DataLoader(rows, batch_size=4, num_workers=2, timeout=1)) == expected()
        assert fitter.notes["replaced_workers"] >= 1


def test_a_sample_that_always_kills_its_worker_ends_the_script_with_torchs_own_error() -> None:
    rows = Rows(at=13, act=lambda: os.kill(os.getpid(), signal.SIGSEGV))
    with ladder() as fitter:
        batches = iter(DataLoader(rows, batch_size=4, num_workers=2))
        seen = [next(batches)[:, 0].tolist() for _ in range(3)]
        with pytest.raises(RuntimeError, match="DataLoader worker"):
            next(batches)
        batches._shutdown_workers()
        assert seen == expected()[:3], "what comes before it arrives"
        assert fitter.notes["replaced_workers"] >= 3


def test_a_loader_that_is_iterated_by_a_thread_is_mended_there() -> None:
    """A thread that loads ahead: the death of a worker must not raise in the main thread's own code."""
    seen: list[list[int]] = []
    with ladder() as fitter:
        batches = iter(DataLoader(Rows(), batch_size=4, num_workers=2))
        thread = threading.Thread(target=lambda: seen.extend(rows_of(batches)))
        os.kill(batches._workers[1].pid, signal.SIGKILL)
        thread.start()
        thread.join(timeout=60)
    assert seen == expected()
    assert fitter.notes["replaced_workers"] == 1


def test_an_error_of_the_dataset_is_the_scripts() -> None:
    def broken() -> None:
        raise FileNotFoundError("row 13 is missing")

    with ladder() as fitter:
        batches = iter(DataLoader(Rows(at=13, act=broken), batch_size=4, num_workers=2))
        with pytest.raises(FileNotFoundError, match="row 13 is missing"):
            rows_of(batches)
        assert rows_of(batches) == expected()[4:], "a script may go on after it, as without hotlap"
    assert "replaced_workers" not in fitter.notes


def test_a_stream_cannot_be_taken_up_again(capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(boundary, "faults", [])
    with ladder() as fitter:
        batches = iter(DataLoader(Stream(), batch_size=4, num_workers=1))
        next(batches)
        with pytest.raises((RuntimeError, ConnectionError, EOFError)):  # whichever torch meets first
            os.kill(batches._workers[0].pid, signal.SIGKILL)
            for _ in batches:
                pass
        batches._shutdown_workers()
    assert "replaced_workers" not in fitter.notes
    said = " ".join(capfd.readouterr().err.replace("hotlap:", "").split())
    assert said.count("a worker was killed by SIGKILL (pid") == 1
    assert "does not say what the worker had read of it" in said
    assert "-> go on from the last checkpoint" in said
    assert boundary.faults == []


def test_a_death_that_torch_reports_while_another_sign_of_it_is_looked_at_is_told_once(capfd: Any) -> None:
    class Reported:
        """torch's handler of SIGCHLD runs between any two lines, tells what there is to tell, and raises."""

        pid = 7

        @property
        def exitcode(self) -> int:
            iterator._hotlap.lost_told = tells
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    iterator = SimpleNamespace(_workers=[Reported()], _hotlap=SimpleNamespace(lost_told=False))
    tells = True
    tell_lost_stream(iterator, EOFError())
    assert capfd.readouterr().err == ""
    iterator._hotlap.lost_told = tells = False
    with pytest.raises(RuntimeError):
        tell_lost_stream(iterator, EOFError())


def test_a_streams_own_error_is_no_death(capfd: Any) -> None:
    with ladder():
        batches = DataLoader(Failing(), batch_size=4, num_workers=2)
        with pytest.raises(ValueError, match="row 40 is damaged"):
            for _ in batches:
                pass
    assert "is not replaced" not in capfd.readouterr().err


def test_a_batch_that_cannot_be_handed_over_is_made_by_the_training_process() -> None:
    def collate(items: list[torch.Tensor]) -> Any:
        return torch.stack(items), threading.Lock()  # which cannot be pickled: torch would wait for ever

    with ladder() as fitter:
        loader = DataLoader(Rows(), batch_size=4, num_workers=1, collate_fn=collate)
        assert [rows[:, 0].tolist() for rows, _ in loader] == expected()
        assert [rows[:, 0].tolist() for rows, _ in loader] == expected(), "also in the next epoch"
        assert fitter.step_downs[-1].after == 0


_FULL = """
import time, torch
from torch.utils.data import DataLoader, Dataset
from hotlap.seams import loader
from hotlap.seams.fitter import Fitter

class Large(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return torch.full((100_000,), float(index))

fitter = Fitter({}, {})
loader.install(fitter)
for collate in (None, torch.stack):
    large = DataLoader(Large(), batch_size=2, num_workers=2, prefetch_factor=4, collate_fn=collate)
    for epoch in range(2):
        seen = []
        for batch in large:
            seen.append(batch[:, 0].tolist())
            time.sleep(0.05)  # so that the workers fill their queue
        assert seen == [[at, at + 1] for at in range(0, 24, 2)]
print([(down.knob, down.before, down.after) for down in fitter.step_downs])
"""


@pytest.mark.parametrize(("size", "last"), [("6m", "prefetch-factor"), ("1m", "num-workers")])
def test_full_shared_memory_lowers_prefetch_and_in_the_end_does_without(size: str, last: str) -> None:
    mount = f"mount -t tmpfs -o size={size} tmpfs /dev/shm"
    isolated = ["unshare", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*isolated, mount], capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs over /dev/shm is not allowed here")
    command = f'{mount} && exec {sys.executable} -c "$SCRIPT"'
    environment = os.environ | {"SCRIPT": _FULL, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([*isolated, command], capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    downs = eval(ran.stdout)
    assert downs[0] == ("prefetch-factor", 4, 2)
    assert any(knob == last for knob, _, _ in downs)
    if size == "1m":
        assert ("num-workers", 1, 0) in downs, (
            "batches of 0.8 MB do not fit twice: no worker can hand them over"
        )
