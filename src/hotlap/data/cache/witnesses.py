"""Files that items were made from, as they were then: a cache is good only as long as they stay so."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

Witness = tuple[str, int, int]  # path, size, time of the last change in ns

_OWN = Path("/proc/self/fd")
_seen: dict[str, Witness] = {}
_hooked: list[int] = []  # the process that listens


def listen() -> None:
    """Note every file that this process opens for reading from now on. Only for a child: it cannot be taken back."""
    if _hooked != [os.getpid()]:
        _hooked[:] = [os.getpid()]
        _seen.clear()
        sys.addaudithook(_opened)


def heard() -> list[Witness]:
    """Files opened since this was last asked, and those that are held open."""
    for path in _held_open():
        _note(path)
    found = list(_seen.values())
    _seen.clear()
    return found


def witness(path: str) -> Witness | None:
    """None where it is no plain file, or one that belongs to Python or the system."""
    if path.startswith(_IGNORED):
        return None
    try:
        about = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return (path, about.st_size, about.st_mtime_ns) if stat.S_ISREG(about.st_mode) else None


def changed(witnesses: Iterable[Witness]) -> str:
    """The first file that is not as it was; nothing where all are."""
    return next((each[0] for each in witnesses if witness(each[0]) != tuple(each)), "")


def positions() -> dict[int, int]:
    """Where each file that is open for reading alone is read next, by descriptor. Forked processes share that."""
    found: dict[int, int] = {}
    for descriptor, _ in _descriptors():
        try:
            found[descriptor] = os.lseek(descriptor, 0, os.SEEK_CUR)
        except OSError:  # closed meanwhile, or no file to be sought in
            continue
    return found


def put_back(before: dict[int, int]) -> bool:
    """Whether somebody moved a shared position; it is put back."""
    now = positions()
    moved = [descriptor for descriptor, place in before.items() if now.get(descriptor, place) != place]
    for descriptor in moved:
        os.lseek(descriptor, before[descriptor], os.SEEK_SET)
    return bool(moved)


def _opened(event: str, args: tuple[object, ...]) -> None:
    if event != "open" or _hooked != [os.getpid()]:
        return
    path, mode = args[0], args[1]
    reads = mode is None or (isinstance(mode, str) and not set(mode) & set("wax"))
    if reads and isinstance(path, (str, bytes, os.PathLike)):
        _note(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100


def _note(path: str) -> None:
    if path not in _seen and (found := witness(path)) is not None:
        _seen[path] = found


def _held_open() -> list[str]:
    return [target for _, target in _descriptors()]


def _descriptors() -> list[tuple[int, str]]:
    """Plain files that this process has open for reading alone, where the system tells."""
    if not _OWN.is_dir():
        return []
    import fcntl  # not on every system

    found = []
    for link in _OWN.iterdir():
        try:
            target = str(link.readlink())
            plain = stat.S_ISREG(os.fstat(int(link.name)).st_mode)
            reads = fcntl.fcntl(int(link.name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        except OSError:
            continue
        if (
            plain
            and reads
            and target.startswith("/")
            and not target.startswith(_IGNORED)
            and "(deleted)" not in target
        ):
            found.append((int(link.name), target))
    return found


_IGNORED = tuple(
    {
        *("/proc/", "/sys/", "/dev/", "/etc/", "/memfd:", f"{sys.prefix}/", f"{sys.base_prefix}/lib"),
        *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)
