"""Seeded kills of hotlap, the job or a worker at random moments of `profile`, `run`, `tune` and `pack`: what is left.

    python bench/kills.py --count 200 --seed 0 [--jobs 3] [--store FILE] [--only "tune hotlap SIGKILL"]

Checked after each: no process of it is left 5 s after hotlap's end, nothing new is in /dev/shm, `hotlap report`
answers for the run folder without a traceback; a search has lost no trial that its ledger held and goes on with the
same command, packed data are complete and intact after the same command has run once more. Moments are counted from
when the target is there, so that every kill meets one.

Others that use /dev/shm meanwhile would be taken for hotlap: for root, each of the `--jobs` that kill at the same time
has one of its own. With `--store` the kills of earlier calls count, and those that are missing are made.

What goes on by design is ended with an interrupt to hotlap a second after the kill, and judged from there on:
- a worker's death is mended in place;
- a job under `run` that is killed with SIGKILL is taken for one that ran out of memory, and started again;
- a search goes on after the death of a trial.
After SIGKILL of hotlap itself a job under `run` trains on, as documented: it gets the interrupt itself.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil

from interleave import host_line

TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(400):
        for (batch,) in DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=8, num_workers=1):
            optimizer.zero_grad()
            net(batch).sum().backward()
            optimizer.step()
"""
ROWS = """
import os, time
import numpy as np
class Rows:
    def __len__(self):
        return 240
    def __getitem__(self, index):
        time.sleep(float(os.environ.get("ROW_S", "0")))
        return {"x": np.full((64,), index, np.float32)}
"""
HOTLAP = [sys.executable, "-m", "hotlap"]
COMMANDS = {
    "profile": ["profile", "--steps", "STEPS", "--out", "out", "train.py"],
    "run": ["run", "--out", "out", "train.py"],
    "tune": ["tune", "--budget", "20", "--out", "out", "train.py"],
    "pack": ["pack", "--shards", "6", "rows:Rows", "out"],
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
TARGETS = ("hotlap", "job", "worker")
_MARK = "HOTLAP_KILLS"
_GRACE_S = 5.0
_CONCLUDES_S = 20.0  # until hotlap has written its report and ended
_APPEARS_S = 60.0  # until a target is there: the machine is shared
_MOST_S = {"hotlap": 9.0, "job": 6.0, "worker": 3.0}  # of the random moment, from when the target is there
_RESUMED = 4  # one search in so many is gone on with in earnest, which takes as long as two kills
_RESUMED_S = 600.0


@dataclass
class Kill:
    """One kill: what is started where, who is hit by what."""

    command: str
    target: str
    number: signal.Signals
    place: Path
    delay_s: float
    steps: str = "3000"
    resumes: bool = False

    @property
    def words(self) -> list[str]:
        return [*HOTLAP, *(self.steps if word == "STEPS" else word for word in COMMANDS[self.command])]

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(self.place), os.environ.get("PYTHONPATH"))))
        added = {_MARK: self.place.name, "ROW_S": "0.02", "PYTHONPATH": path}
        return {**os.environ, **added}

    @property
    def goes_on(self) -> bool:
        """By design, until hotlap is interrupted."""
        if self.target == "worker" or self.command == "tune":
            return self.target != "hotlap" and self.command != "pack"
        return self.command == "run" and self.target == "job" and self.number == signal.SIGKILL

    @property
    def trains_on(self) -> bool:
        """Without hotlap, by design."""
        return self.command == "run" and self.target == "hotlap" and self.number == signal.SIGKILL


def chosen(chance: random.Random, only: str, place: Path) -> Kill:
    command, target, number = (chance.choice(each) for each in (tuple(COMMANDS), TARGETS, SIGNALS))
    wanted = only.split()
    command = next((each for each in COMMANDS if each in wanted), command)
    target = next((each for each in TARGETS if each in wanted), target)
    number = next((each for each in SIGNALS if each.name in wanted), number)
    delay_s = chance.uniform(0.0, _MOST_S[target])
    steps, resumes = chance.choice(("100", "3000")), chance.randrange(_RESUMED) == 0
    return Kill(command, target, number, place, delay_s, steps, resumes)


def kill_once(kill: Kill) -> list[str]:
    """What was wrong afterwards."""
    (kill.place / "train.py").write_text(TRAIN)
    (kill.place / "rows.py").write_text(ROWS)
    shared = set(Path("/dev/shm").iterdir())
    with (kill.place / "said.txt").open("wb") as said:
        hotlap = psutil.Popen(
            kill.words, stdout=said, stderr=said, cwd=kill.place, env=kill.environment, start_new_session=True
        )
        _hit(kill, hotlap)
        if kill.goes_on:
            time.sleep(1.0)
            _send(hotlap, signal.SIGINT)
        if kill.trains_on:
            hotlap.wait()
            for job in (each for each in _alive(kill) if _is_job(each)):
                _send(job, signal.SIGINT)
        wrong = _left(kill, hotlap)
        time.sleep(0.1)
    wrong += [f"/dev/shm: {name}" for name in _new_in_shared_memory(shared)[:1]]
    if "Traceback" in (text := (kill.place / "said.txt").read_text(errors="replace")):
        wrong += [f"traceback: {text.strip().splitlines()[-1]:.100}"] if _of_hotlap(text) else []
    return wrong + {"pack": _packs_on, "tune": _searches_on}.get(kill.command, _readable)(kill)


def _hit(kill: Kill, hotlap: psutil.Popen) -> None:
    """Sends the signal at its moment, to whoever is the target then."""
    _soon(lambda: _victims(kill, hotlap) or hotlap.poll() is not None, _APPEARS_S)
    time.sleep(kill.delay_s)
    _soon(lambda: _victims(kill, hotlap) or hotlap.poll() is not None, _APPEARS_S)  # between two epochs, say
    for victim in _victims(kill, hotlap)[-1:]:
        _send(victim, kill.number)


def _victims(kill: Kill, hotlap: psutil.Popen) -> list[psutil.Process]:
    """Oldest first. What packs are hotlap's own processes: there the job is a worker too."""
    if kill.target == "hotlap":
        return [hotlap]
    others = [each for each in _alive(kill) if each.pid != hotlap.pid]
    if kill.command == "pack":
        return [each for each in others if "spawn_main" in " ".join(_words(each))]
    return [each for each in others if (_is_worker if kill.target == "worker" else _is_job)(each)]


def _alive(kill: Kill) -> list[psutil.Process]:
    """Every process that has the kill's mark in its environment, oldest first: whoever hotlap or the job started."""
    mark, found = f"{_MARK}={kill.place.name}".encode(), []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return sorted(found, key=lambda each: each.create_time())


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _is_worker(process: psutil.Process) -> bool:
    """Workers are forked by the job and have its words."""
    try:
        parent = process.parent()
        return (
            _trains(process)
            and parent is not None
            and _trains(parent)
            and process.name().startswith("pt_data")
        )
    except psutil.Error:
        return False


def _is_job(process: psutil.Process) -> bool:
    return _trains(process) and not _is_worker(process)


def _trains(process: psutil.Process) -> bool:
    words = _words(process)
    return words[-1:] == ["train.py"] and "hotlap" not in words


def _left(kill: Kill, hotlap: psutil.Popen) -> list[str]:
    """Orphans: processes that are there 5 s after hotlap has ended, or was killed. They are ended here.

    As long as hotlap is there it waits for its job, which may write a checkpoint after an interrupt (10 s, see
    `launch/process.py`), and writes its report: that is not counted in the 5 s. On two cores beside 12 other busy
    processes Python alone takes 4 s to leave a script that has imported torch.
    """

    def others() -> list[psutil.Process]:
        return [each for each in _alive(kill) if each.pid != hotlap.pid]

    _soon(lambda: hotlap.poll() is not None, _CONCLUDES_S)
    wrong = [f"hotlap does not end, load {os.getloadavg()[0]:.0f}"] if hotlap.poll() is None else []
    _soon(lambda: not others(), _CONCLUDES_S if kill.trains_on else _GRACE_S)
    left = others()
    if left:
        names = ", ".join(f"{each.pid} {' '.join(_words(each))[-40:]}" for each in left)
        wrong.append(f"{len(left)} left, load {os.getloadavg()[0]:.0f}: {names}")
    for each in _alive(kill):
        _send(each, signal.SIGKILL)
    hotlap.wait()
    _soon(lambda: not _alive(kill), _GRACE_S)
    return wrong


def _new_in_shared_memory(before: set[Path]) -> list[str]:
    """What no live process has named after itself, as torch does, or has mapped: others of this machine use it too."""
    new = [path for path in sorted(set(Path("/dev/shm").iterdir()) - before) if not _has_owner(path)]
    return [path.name for path in new if path.exists()]


def _has_owner(path: Path) -> bool:
    named = re.search(r"_(\d+)_", path.name)
    if named is not None:
        return psutil.pid_exists(int(named[1]))
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(path).encode() in maps.read_bytes():
                return True
    return False


def _of_hotlap(text: str) -> bool:
    """The traceback that an interrupt draws is the script's own; it has no file of hotlap's as its last one."""
    last = text.rpartition("Traceback (most recent call last)")[2]
    files = re.findall(r'File "([^"]+)"', last)
    return "KeyboardInterrupt" not in last and bool(files) and "/hotlap/" in files[-1]


def _readable(kill: Kill) -> list[str]:
    return _asked(kill, [*HOTLAP, "report", "out"], "report", codes=(0, 2))


def _asked(kill: Kill, words: list[str], name: str, codes: tuple[int, ...] = (0,)) -> list[str]:
    environment = {**kill.environment, "ROW_S": "0"}
    try:
        shown = subprocess.run(
            words, capture_output=True, text=True, cwd=kill.place, env=environment, timeout=_RESUMED_S
        )
    except subprocess.TimeoutExpired:
        return [f"{name}: no end after {_RESUMED_S:.0f} s"]
    if shown.returncode in codes and "Traceback" not in shown.stderr:
        return []
    return [f"{name}: code {shown.returncode}, {shown.stderr.strip()[-200:]}"]


def _packs_on(kill: Kill) -> list[str]:
    return _asked(kill, kill.words, "packed again") or _asked(
        kill, [*HOTLAP, "pack", "verify", "out"], "verify"
    )


def _searches_on(kill: Kill) -> list[str]:
    """The ledger has whole lines but for the last, and the same command goes on with its trials."""
    ledger = kill.place / "out" / "ledger.jsonl"
    before = ledger.read_bytes().count(b"\n") if ledger.is_file() else 0
    wrong = _readable(kill) if before else []
    if not kill.resumes:
        return wrong + (_read_ledger(kill) if before else [])
    wrong += _asked(kill, [word if word != "20" else "1" for word in kill.words], "searched again")
    after = ledger.read_bytes().count(b"\n") if ledger.is_file() else 0
    return wrong + ([] if after > before else [f"ledger: {after} lines after, {before} before"])


def _read_ledger(kill: Kill) -> list[str]:
    from hotlap.errors import HotlapError
    from hotlap.facts import codec
    from hotlap.facts.job import Job
    from hotlap.measure.ledger import Ledger

    try:
        job: Job = codec.read_json(kill.place / "out" / "job.json", Job)
        Ledger(kill.place / "out", job)
    except HotlapError as error:
        return [f"ledger: {error}"]
    return []


def _soon(true: Callable[[], object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.05)


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


def own_shared_memory() -> None:
    """A /dev/shm that only this process and those that it starts see; without the right to it, the common one."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, private, everything_below = 0x20000, 1 << 18, 1 << 14
    if os.getuid() == 0 and libc.unshare(new_mounts) == 0:
        libc.mount(b"none", b"/", None, private | everything_below, None)
        libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None)


def make(options: argparse.Namespace, numbers: Iterable[int], store: Path) -> None:
    """These kills, one after the other; what became of each is a line of the store."""
    own_shared_memory()
    began = time.monotonic()
    for number in numbers:
        if time.monotonic() - began > 60 * options.minutes:
            break
        chance = random.Random(f"{options.seed} {number}")
        with tempfile.TemporaryDirectory(prefix="kill-", ignore_cleanup_errors=True) as place:
            kill = chosen(chance, options.only, Path(place))
            wrong = kill_once(kill)
        kind = kill.command, kill.target, kill.number.name
        print(number, *kind, f"{kill.delay_s:.1f} s", "wrong" if wrong else "", file=sys.stderr, flush=True)
        line = {"number": number, "kind": kind, "at_s": kill.delay_s, "wrong": wrong}
        with store.open("a") as file:
            file.write(json.dumps(line) + "\n")


def stored(store: Path) -> list[dict[str, Any]]:
    lines = store.read_text().splitlines() if store.is_file() else []
    return sorted((json.loads(line) for line in lines), key=lambda each: int(each["number"]))


def show(made: Sequence[Mapping[str, Any]], count: int) -> int:
    bad = [each for each in made if each["wrong"]]
    for each in bad:
        print(f"MISSED {each['number']:3}", *each["kind"], f"at {each['at_s']:.2f} s:", *each["wrong"])
    kinds, wrong = (Counter(" ".join(each["kind"]) for each in some) for some in (made, bad))
    for kind, number in sorted(kinds.items()):
        print(f"{kind:24} {number:4} kills {wrong[kind]:4} wrong")
    word = "reached" if not bad and len(made) >= count else "MISSED"
    print(f"{len(made)} of {count} kills, {len(bad)} wrong: {word}")
    return bool(bad)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="kills at the same time")
    parser.add_argument("--store", type=Path, help="where kills are kept, and what this goes on from")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no further kill after these"
    )
    parser.add_argument("--only", default="", help="a command, a target and a signal, or some of them")
    options = parser.parse_args()
    # A shell that starts this in the background has it ignore interrupts, and whoever it starts would ignore them too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(host_line(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or Path(folder) / "kills.jsonl"
        known = {each["number"] for each in stored(store)}
        missing = [number for number in range(options.count) if number not in known]
        shares = [(options, missing[job :: options.jobs], store) for job in range(options.jobs)]
        jobs = [get_context("fork").Process(target=make, args=share) for share in shares]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        return show(stored(store), options.count)


if __name__ == "__main__":
    sys.exit(main())
