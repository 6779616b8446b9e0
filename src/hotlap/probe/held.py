"""What the script writes to files while experiments run: it comes of a training that is thrown away, and is left out.

Files that it has open to write go to the null device from then on, as do those that it opens; what it removes, renames
or copies stays where it is. Left alone are files that it reads as well, what items of a dataset write (caches do not
depend on training), and what torch and hotlap write.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import gc
import io
import os
import shutil
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from hotlap.facts import private
from hotlap.ports.unseen import unseen
from hotlap.probe.usercode import UserCode

_CHANGES = (
    (os, ("remove", "unlink", "rmdir", "removedirs", "rename", "renames", "replace", "link", "symlink")),
    (shutil, ("rmtree", "move", "copy", "copy2", "copyfile", "copytree", "make_archive")),
)
_MOST_FRAMES = 200
_TORCH = Path(torch.__file__).parent
_ALONE = tuple(
    f"{_TORCH / each}{os.sep}" for each in (Path("utils") / "data", "_inductor", "_dynamo", "distributed")
)
_DESCRIPTORS = Path("/proc/self/fd")

_user = UserCode()


def hold(own: Path) -> None:
    """From now on, to the end of the process. `own` is the folder that hotlap writes to."""
    _turn_open_files(own.resolve())
    builtins.open = io.open = unseen(_opening(io.open))
    for module, names in _CHANGES:
        for name in names:
            if hasattr(module, name):
                setattr(module, name, unseen(_left_out(getattr(module, name))))


def _turn_open_files(own: Path) -> None:
    numbers = [int(each.name) for each in _DESCRIPTORS.iterdir()] if _DESCRIPTORS.is_dir() else []
    written = {number for number in numbers if number > 2 and _only_writes(number, own)}
    for each in gc.get_objects():
        if isinstance(each, io.TextIOWrapper | io.BufferedWriter):
            with suppress(Exception):  # closed, or of no file
                if each.fileno() in written:
                    each.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)
    for number in written:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number, inheritable=os.get_inheritable(number))
        os.close(null)


def _only_writes(number: int, own: Path) -> bool:
    import fcntl  # where there is /proc

    try:
        regular = stat.S_ISREG(os.fstat(number).st_mode)
        writes = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        path = (_DESCRIPTORS / str(number)).readlink()
    except OSError:
        return False
    return regular and writes and not path.is_relative_to(own)


def _opening(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        writes = isinstance(mode, str) and "r" not in mode and "+" not in mode
        if writes and not isinstance(file, int) and is_the_scripts(sys._getframe(1)):
            file, mode = os.devnull, mode.replace("x", "w")
        return original(file, mode, *args, **kwargs)

    return opened


def _left_out(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def unless_the_scripts(*args: Any, **kwargs: Any) -> Any:
        if is_the_scripts(sys._getframe(1)):
            return args[1] if len(args) > 1 else None  # the target, where there is one
        return original(*args, **kwargs)

    return unless_the_scripts


def is_the_scripts(frame: FrameType | None) -> bool:
    """Whether the script's training loop, or a library that it calls, is at work: not its dataset, nor the compiler."""
    owned = False
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if file.startswith(_ALONE) or (not owned and _user.is_probe(frame.f_code)):
            return False
        owned = owned or _user.owns(frame.f_code)
        frame = frame.f_back
    return owned


# What the script prints while experiments run: it is no output of the user's training and goes to a file instead.
#
# The descriptors are turned, not Python's objects: libraries print from C as well.


_STREAMS = (1, 2)


class HeldOutput:
    """Standard output and standard error of this process, between `begin` and `end`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: list[int] = []

    def begin(self) -> None:
        if self._own:
            return
        _flush()
        with open(self._path, "ab", opener=private.opener) as log:
            self._own = [os.dup(stream) for stream in _STREAMS]
            for stream in _STREAMS:
                os.dup2(log.fileno(), stream)

    def end(self) -> None:
        if not self._own:
            return
        _flush()
        for stream, own in zip(_STREAMS, self._own, strict=True):
            os.dup2(own, stream)
            os.close(own)
        self._own = []


def _flush() -> None:
    """Of Python and of C: what is in a buffer belongs to the side on which it was written."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a script may have closed or replaced it
            stream.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)
