"""Makes the n-th system call by which hotlap writes fail as on a full disk: `FAILING="parent 3"`, or "job 3".

On PYTHONPATH it runs in hotlap and in the job that hotlap starts, after the probe. How many calls there were goes into
the file that FAILING_COUNT names.
"""

from __future__ import annotations

import atexit
import builtins
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Any

WHERE, AT = os.environ["FAILING"].split()
HERE = "job" if "HOTLAP_PROBE" in os.environ else "parent"
_made = [0]
_open = io.open


def _is_hotlap() -> bool:
    frame: Any = sys._getframe(2)
    for _ in range(8):
        if frame is None:
            return False
        name = frame.f_code.co_filename
        if "/hotlap/" in name and "site-packages" not in name:
            return True
        frame = frame.f_back
    return False


def _count(about: Any) -> None:
    _made[0] += 1
    if WHERE == HERE and _made[0] == int(AT):
        raise OSError(errno.ENOSPC, "No space left on device", str(about))


class _Raw(io.FileIO):
    def write(self, content: Any) -> int:
        _count(self.name)
        return super().write(content)


def _opened(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    if not set(mode) & set("wax") or "+" in mode or not _is_hotlap():
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    _count(file)
    raw = _Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)
    if buffering == 0:
        return raw
    binary = io.BufferedWriter(raw)
    return binary if "b" in mode else io.TextIOWrapper(binary, encoding or "utf-8", errors, newline)


def _wrap(name: str, writes: Callable[[tuple[Any, ...]], bool]) -> None:
    original = getattr(os, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if writes(args) and _is_hotlap():
            _count(args[0])
        return original(*args, **kwargs)

    setattr(os, name, call)


io.open = builtins.open = _opened  # type: ignore[assignment]
_wrap("open", lambda args: bool(args[1] & (os.O_WRONLY | os.O_RDWR)))
_wrap("write", lambda args: args[0] > 2)  # the script's own output is not hotlap's
for _name in ("mkdir", "rename", "replace", "ftruncate", "fsync"):
    _wrap(_name, lambda _: True)


def _tell() -> None:
    with _open(os.environ["FAILING_COUNT"], "a") as file:
        file.write(f"{HERE} {_made[0]}\n")


atexit.register(_tell)
