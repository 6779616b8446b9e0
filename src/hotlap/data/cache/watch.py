"""Notices that what kept items depend on has changed since they were made, such as `dataset.epoch = 3`.

Attributes, small containers and numbers that processes share are compared before each batch, which takes a microsecond
or two; code each time that a look is due; all the rest (arrays, long lists, files) in rotation, within a share of the
time. So a change ends the cache before the next batch, or some batches late, which is counted.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import sysconfig
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from torch.utils.data import TensorDataset

from hotlap.data.cache.source import holders_of, inside, nested
from hotlap.sameness.audit import Pace, own_time
from hotlap.sameness.dependencies import Dependencies

SHARE = 0.002  # of the time that comparing may take; with audits and a glance for each batch at most 0.01
OF_EPOCH = 0.01  # that comparing everything may take when an epoch begins or ends
BRIEF_S = 0.002  # a comparison of everything that takes no longer is made whenever an epoch begins or ends
LEAST_S = 100e-6  # of one comparison: most datasets are compared whole within it

_forks = 0  # between the script's process and this one


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class DatasetDependencies:
    """What the items of a dataset depend on. `unknown`: what of it cannot be compared."""

    def __init__(
        self, dataset: Any, lives: bool, files: Collection[str] = (), volatile: Collection[str] = ()
    ) -> None:
        below = [holder for _, holder in nested(dataset) if type(holder) is TensorDataset]
        leave = holders_of(dataset) if lives else set()
        # Tensors of a TensorDataset are gathered from where they lie: only another tensor would be missed.
        self._tensors = [(holder, holder.tensors) for holder in below]
        leave |= {(id(holder), "tensors") for holder in below}
        # The dataset whose items were made comes first: `volatile` has the names that are found from there.
        self._dependencies = Dependencies(
            inside(dataset), dataset, leave=leave, volatile=volatile, files=files
        )
        self.unknown = self._dependencies.unknown
        self.stale = 0  # batches at most that were served after a change, when `changed` has found one
        self.served = self._agreed = 0  # batches
        self._under_way: tuple[int, int] | None = (
            None  # a comparison in rotation: batches and parts at its begin
        )
        self._pace = Pace(SHARE)
        self._forks = _forks
        self._full_s = 0.0  # what comparing everything took
        self._last_bound = time.perf_counter()

    def changed(self, *, at_once: bool = False) -> str:
        """Before a batch is served: what is not as it was. `at_once`: all is compared, whatever it takes."""
        served = self.served
        self.served += 1
        if what := (self._rebound() if self._tensors else "") or self._dependencies.quickly_changed():
            self.stale = 0
            return what
        at_once = at_once or self._forks != _forks  # a worker that was forked for a new epoch
        if not at_once and not self._pace.due():
            return ""
        self._forks = _forks
        within = float("inf") if at_once else max(LEAST_S, self._pace.credit_s)
        began, compared = self._under_way = self._under_way or (served, self._dependencies.compared)
        with self._pace.timed():
            what = self._dependencies.changed(within)
        self.stale = max(0, served - self._agreed - 1)
        if self._dependencies.compared - compared >= self._dependencies.size:
            self._agreed, self._under_way = began, None
        return what

    def changed_at_bound(self) -> str:
        """When an epoch begins or ends: all is compared, unless that takes more than its share of the time."""
        began = time.perf_counter()
        if self._full_s > max(BRIEF_S, OF_EPOCH * (began - self._last_bound)):
            return ""
        self._last_bound, own = began, own_time()
        what = self._rebound() or self._dependencies.changed()
        self._full_s = (
            own_time() - own
        )  # without what it waited for a core: that says nothing of the next one
        self.stale = self.served - self._agreed
        if not what:
            self._agreed, self._under_way = self.served, None
        return what

    def _rebound(self) -> str:
        for holder, tensors in self._tensors:
            if holder.tensors is not tensors:
                return f"the tensors of {type(holder).__name__}"
        return ""


# Files that items were made from, as they were then: a cache is good only as long as they stay so.


Witness = tuple[str, int, int]  # path, size, time of the last change in ns

_OWN = Path("/proc/self/fd")
_CACHED = re.compile(r"/[0-9a-f]{16,}((\.draft-\d+)?/(index\.json|\d+\.(data|starts|sizes))|\.lock)$")
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
    """None where it is no plain file, or one that belongs to Python, the system or a cache of hotlap's."""
    if path.startswith(_IGNORED) or _is_cached(path):
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


def _is_cached(path: str) -> bool:
    """A file of a cache that this process reads from: its items come from the files that it was built of."""
    asked = os.environ.get("HOTLAP_CACHE")
    named = Path(asked).expanduser().absolute() if asked else None
    homes = (f"{named}/", f"{named.resolve()}/") if named is not None else ()
    at_home = path.startswith(homes) or "/.hotlap/cache/" in path
    return at_home and _CACHED.search(path) is not None


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
