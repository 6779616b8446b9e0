"""Times the optimizer steps of a script from within: python clock.py RESULT STEPS script.py [arguments ...]

Stamps every step of the first optimizer that steps, ends the script after STEPS of them, and writes the steps per
second of the later half, with the growth of memory in it. `steps_per_s` leaves out the time in which the training
thread was ready to run but other processes held the cores: a machine that is shared would decide otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import runpy
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class Clock:
    def __init__(self, target: Path, steps: int) -> None:
        self._target, self._steps = target, steps
        self._first: int | None = None
        self._stamps: list[float] = []
        self._memory: list[float] = []
        self._delays: list[float] = []

    def __call__(self, optimizer: Any, *_: object) -> None:
        own = id(optimizer)
        self._first = own if self._first is None else self._first
        if own != self._first:
            return
        self._stamps.append(time.perf_counter())
        self._memory.append(_resident_mib())
        self._delays.append(_delayed_s())
        if len(self._stamps) >= self._steps:
            self._write()
            raise SystemExit(0)

    def _write(self) -> None:
        half = len(self._stamps) // 2
        spent = self._stamps[-1] - self._stamps[half - 1]
        delayed = self._delays[-1] - self._delays[half - 1]
        steps = len(self._stamps) - half
        figures = {
            "steps_per_s": steps / (spent - min(delayed, 0.95 * spent)),
            "wall_steps_per_s": steps / spent,
            "mib_per_step": (self._memory[-1] - self._memory[half]) / steps,
        }
        self._target.write_text(json.dumps(figures), encoding="utf-8")


def _delayed_s() -> float:
    """How long this thread was ready to run while other processes held the cores."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    return int(path.read_text(encoding="ascii").split()[1]) / 1e9 if path.is_file() else 0.0


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def timed(target: Path, steps: int, script: str, arguments: list[str]) -> None:
    register_optimizer_step_post_hook(Clock(target, steps))
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


def serve() -> None:
    """Runs what standard input asks for, each in a fork of this process, which has imported the libraries once."""
    for line in sys.stdin:
        wish = json.loads(line)
        for module in wish["modules"]:
            importlib.import_module(module)
        child = os.fork()
        if not child:
            _serve_one(wish)
        ended = time.monotonic() + wish["limit"]
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > ended:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # workers that its end has left
        print("done", flush=True)


def _serve_one(wish: dict[str, Any]) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        os.chdir(wish["folder"])
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        torch.set_num_threads(wish["threads"])
        timed(Path(wish["target"]), wish["steps"], wish["script"], [])
    except SystemExit:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    target, steps, script, *arguments = sys.argv[1:]
    timed(Path(target), int(steps), script, arguments)


if __name__ == "__main__":
    main()
