"""In the job's Python: notes what a job imports; later imports that before the script begins, and forks for each run.

The forked process goes on where Python was: it runs the script as if it had just been started. The process that forks
it never does. Messages are JSON, one a packet; a request comes with the files for the run's output and errors.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import select
import signal
import site
import socket
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

from hotlap.facts import private
from hotlap.probe.control import WindowDone

MOST_BYTES = 1 << 16
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # not all of them are known to Windows, where this is only imported
_SIGNALS = [each for each in signal.Signals if each.name in _NAMES]


def wait_for_runs(channel: socket.socket) -> None:
    """Returns in each forked process; the one that forks ends here, once its channel is closed."""
    atexit.register(_leave_at_once)  # first of all, so that it is called last of all
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:  # Ctrl-C reaches the whole group; runs are ended by those who asked for them
        signal.signal(number, signal.SIG_IGN)
    os.close(os.pidfd_open(os.getpid()))  # where there is none, this raises before anything was forked
    _tell(channel, ready=_import_all(_received(channel)[0]["imports"]))
    running: dict[int, int] = {}  # by the file that tells of their end
    while True:
        listening: list[Any] = [channel, *running]
        ready = select.select(listening, [], [])[0]
        for ended in ready:
            if ended is not channel:
                code = os.waitstatus_to_exitcode(os.waitpid(running[ended], 0)[1])
                if not _tell(channel, pid=running.pop(ended), code=code):
                    os._exit(0)
                os.close(ended)
        if channel in ready:
            request, files = _received(channel)
            child = os.fork()
            if not child:
                _close([*running, channel.detach()])
                _begin(request["environment"], files, before)
                return
            running[os.pidfd_open(child)] = child
            _close(files)
            if not _tell(channel, pid=child):
                os.kill(child, signal.SIGKILL)  # nobody would ever end it
                os._exit(0)


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def _import_all(path: str) -> bool:
    """Whether a run may be forked: torch is there, and no thread that it would lose."""
    for name in json.loads(Path(path).read_text(encoding="utf-8")):
        try:
            importlib.import_module(name)
        except Exception:
            continue  # the script may have caught it too; if not, its run will tell
    return "torch" in sys.modules and threading.active_count() == 1


def _received(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    content, files, _, _ = socket.recv_fds(channel, MOST_BYTES, 2)
    if not content:
        os._exit(0)  # nobody will ask for a run any more
    return json.loads(content), files


def _tell(channel: socket.socket, **facts: Any) -> bool:
    try:
        channel.send(json.dumps(facts).encode())
    except OSError:
        return False
    return True


def _begin(environment: Mapping[str, str], files: list[int], handlers: Mapping[signal.Signals, Any]) -> None:
    """As a process that was just started with this environment and these files."""
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_IGN:  # else a library has put its own there, as in any run
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    for file, stream in zip(files, (1, 2), strict=True):
        os.dup2(file, stream)
    _close(files)
    os.environ.update(environment)
    # Python's random seeds itself anew after a fork, and torch's default seed is always the same.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _leave_at_once() -> None:
    """A run that hotlap has ended need not take its modules apart, which takes as long as many steps.

    One whose ending fails is left to Python: that is a result of its plan.
    """
    if WindowDone.raised and getattr(sys, "last_value", None) is None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                continue  # the script may have closed it
        os._exit(0)


_HOTLAP = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_PATHS = sysconfig.get_paths()
_STANDARD = tuple(f"{_PATHS[key]}{os.sep}" for key in ("stdlib", "platstdlib"))
_SITES = {_PATHS["purelib"], _PATHS["platlib"], *site.getsitepackages(), site.getusersitepackages()}
_INSTALLED = tuple(f"{each}{os.sep}" for each in _SITES)
_SCRIPT = ""  # in the place of a library's name
# When GPUs are counted, not at an import; Lightning sets it before it imports torch.
_READ_LATER = {"PYTORCH_NVML_BASED_CUDA_CHECK"}
Change = tuple[int, str]
"""Of the process's environment: how many imports had come by then, and the library that made it."""


class ImportRegister(MetaPathFinder):
    """Notes which libraries a job imports: a finder that finds nothing, and hears of every import, in order.

    Libraries that know torch are left out: imported early, they would hold torch's functions as these are before the
    plan and the probe have put theirs in place. And nothing counts that came after a change of the environment which
    libraries read when they are imported, unless a library has made the change that will make it again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._names: list[str] = []
        self._changes: list[Change] = []

    def install(self) -> None:
        """Called once, before any of the user's code."""
        sys.meta_path.insert(0, self)
        # os.environ calls the first two at every change; pools of threads are as large as the cores that are allowed.
        for name in ("putenv", "unsetenv", "sched_setaffinity"):
            if hasattr(os, name):
                setattr(os, name, self._noticing(getattr(os, name)))
        atexit.register(self.write)

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        self._names.append(fullname)
        return None

    def write(self) -> None:
        """What the process has imported by now; a forked child leaves it to its parent."""
        if os.getpid() == self._pid:
            draft = self._path.with_name(f".{self._path.name}.{self._pid}")
            private.write(draft, json.dumps(importable(self._names, self._changes)).encode())
            draft.replace(self._path)

    def _noticing(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def changed(*args: Any) -> None:
            named = os.fsdecode(args[0]) if isinstance(args[0], str | bytes) else ""
            if named not in _READ_LATER:
                self._changes.append((len(self._names), _changer(sys._getframe(1))))
            original(*args)

        return changed


def importable(names: Sequence[str], changes: Iterable[Change] = ()) -> list[str]:
    """Those that may be imported before torch's functions are replaced, in the same order."""
    packages = {_package(name) for name in names if _is_library(sys.modules.get(name))} - {"hotlap", "torch"}
    ahead = {package for package in packages if not _knows_torch(package)} | {"hotlap", "torch"}
    until = min((at for at, library in changes if library not in ahead), default=len(names))
    there = dict.fromkeys(name for name in names[:until] if _is_library(sys.modules.get(name)))
    return [name for name in there if _package(name) in ahead]


def _package(name: str) -> str:
    return name.partition(".")[0]


def _changer(frame: FrameType | None) -> str:
    """The library whose code this is, by the first frame that is not of the standard library; else the script."""
    while frame is not None and _is_standard(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return _SCRIPT
    file = frame.f_code.co_filename
    if file.startswith(_HOTLAP):
        return "hotlap"
    return _package(frame.f_globals.get("__name__", _SCRIPT)) if file.startswith(_INSTALLED) else _SCRIPT


def _is_standard(file: str) -> bool:
    return file.startswith(("<frozen", *_STANDARD)) and not file.startswith(_INSTALLED)


def _is_library(module: ModuleType | None) -> bool:
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    if origin in ("built-in", "frozen"):
        return True
    return isinstance(origin, str) and origin.startswith((*_STANDARD, *_INSTALLED, _HOTLAP))


def _knows_torch(package: str) -> bool:
    modules = [module for name, module in list(sys.modules.items()) if _package(name) == package and module]
    return any(_is_of_torch(value) for module in modules for value in list(vars(module).values()))


def _is_of_torch(value: Any) -> bool:
    """Without asking objects for attributes: some make them when they are asked."""
    name = value.__name__ if isinstance(value, ModuleType) else None
    if isinstance(value, FunctionType | type):
        name = value.__module__
    return isinstance(name, str) and _package(name) == "torch"
