"""The folder of caches that outlive a run: `.hotlap/cache/` of the working directory, or HOTLAP_CACHE.

Only its owner may write to a cache, and every byte of it is compared with a checksum when it is opened. What lies
there is data alone, nothing that could run.

A cache is built in a draft folder under a lock, written through to the disk, and then renamed: it is there as a
whole or not at all. Who reads one holds it, so that nobody makes room by removing it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotlap.data.cache import shape as shapes
from hotlap.data.cache import watch
from hotlap.data.cache.build import CacheManifest, checksum_of
from hotlap.data.cache.messages import say
from hotlap.data.cache.store import FolderDrawer, Layout, Store
from hotlap.facts import private

INDEX = "index.json"
NONE = "there is none yet"
MOST_BYTES = 100 << 30  # of all caches together
MOST_OF_DISK = 0.5  # of what the caches could have at all
ASKS_EVERY_S = 0.2


@dataclass(frozen=True)
class OpenCache:
    """A good cache, held open, with digests of some of its items."""

    store: Store
    digests: dict[int, bytes]
    files: tuple[str, ...] = ()  # that its items were read from
    volatile: tuple[str, ...] = ()  # what fetching them changed of the dataset


def home() -> Path:
    """Made when it is missing, and kept out of git."""
    asked = os.environ.get("HOTLAP_CACHE")
    folder = Path(asked).expanduser().absolute() if asked else Path.cwd() / ".hotlap" / "cache"
    private.make_folder(folder)
    if reason := private.foreign(folder):
        raise PermissionError(f"{reason}; make it yours alone with chmod go-w, or set HOTLAP_CACHE")
    ignore = (folder if asked else folder.parent) / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    return folder


@contextlib.contextmanager
def locked(folder: Path, key: str) -> Iterator[None]:
    """Only one process builds a cache; the others wait until it is there. A kill frees the lock."""
    with open(folder / f"{key}.lock", "a+", opener=private.opener) as lock:
        told = False
        while not _got(lock, fcntl.LOCK_EX):
            if not told:
                lock.seek(0)
                say(f"waiting for process {lock.read().strip() or '?'}, which builds the same cache")
                told = True
            time.sleep(ASKS_EVERY_S)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def find(folder: Path, key: str) -> OpenCache | str:
    """The cache, or why there is none that may be used."""
    place = folder / key
    try:
        if alien := _foreign(place):
            return alien
        drawer = HeldDrawer(place)
        index = _index(place)
        if damaged := verify(folder, key):
            return f"its {damaged} is damaged"
        if path := watch.changed([tuple(each) for each in index["files"]]):
            return f"{path} has changed"
        os.utime(place / INDEX)
        about = index["layout"]
        layout = Layout(
            shapes.from_json(about["shape"]), tuple(about["modes"]), about["count"], about["live"]
        )
        if any(leaf.kind == "object" for leaf in shapes.leaves_of(layout.shape)):
            return "it holds objects, which only memory may keep"
        digests = {int(row): bytes.fromhex(digest) for row, digest in index["digests"].items()}
        volatile = tuple(map(str, index["volatile"]))
    except FileNotFoundError:
        return NONE
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        return f"it cannot be read ({fault})"
    return OpenCache(Store(layout, drawer), digests, tuple(each[0] for each in index["files"]), volatile)


class HeldDrawer(FolderDrawer):
    """Files of a cache that nobody removes as long as somebody has this."""

    def __init__(self, folder: Path, number: int | None = None) -> None:
        super().__init__(folder)
        self._held = os.open(folder / INDEX, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._held)
        if number not in (None, os.fstat(self._held).st_ino):
            raise FileNotFoundError(f"the cache {folder} was built anew by another run")
        if not _got(self._held, fcntl.LOCK_SH):
            raise FileNotFoundError(f"the cache {folder} is being removed")

    def __reduce__(self) -> tuple[Any, tuple[Path, int]]:
        """In another process: the very same cache, or none."""
        return HeldDrawer, (self.folder, os.fstat(self._held).st_ino)


def draft(folder: Path, key: str) -> FolderDrawer:
    """An empty folder to build in; drafts that were left by a kill go. Only under the lock."""
    for left in folder.glob(f"{key}.draft*"):
        shutil.rmtree(left, ignore_errors=True)
    place = folder / f"{key}.draft-{os.getpid()}"
    place.mkdir(private.FOLDER)
    return FolderDrawer(place)


def publish(
    folder: Path, key: str, drawer: FolderDrawer, built: CacheManifest, digests: dict[int, bytes]
) -> None:
    """The draft becomes the cache. Only under the lock."""
    layout = built.layout
    index = {
        "layout": {
            "shape": shapes.as_json(layout.shape),
            "modes": layout.modes,
            "count": layout.count,
            "live": layout.live,
        },
        "parts": built.checksums,
        "files": built.files,
        "volatile": sorted(built.volatile),
        "digests": {str(row): digest.hex() for row, digest in digests.items()},
    }
    text = json.dumps(index)
    private.write(drawer.path(INDEX), json.dumps({"seal": _seal(text), "index": text}).encode())
    for path in (*drawer.folder.iterdir(), drawer.folder):
        _write_through(path)
    shutil.rmtree(folder / key, ignore_errors=True)
    drawer.folder.rename(folder / key)
    _write_through(folder)


def verify(folder: Path, key: str) -> str:
    """Reads all of a cache: the first part whose content is not what was written, or nothing."""
    parts = _index(folder / key)["parts"]
    return next((str(name) for name, known in parts.items() if checksum_of(folder / key / name) != known), "")


def make_room(folder: Path, needed: int, most: int = MOST_BYTES) -> None:
    """Remove caches, those first that were not used for longest, until there is room. Nobody's cache in use goes."""
    caches = sorted((path.parent for path in folder.glob(f"*/{INDEX}")), key=_used_at)
    sizes = {cache: sum(part.stat().st_size for part in cache.iterdir()) for cache in caches}
    total = sum(sizes.values())
    most = min(most, int((shutil.disk_usage(folder).free + total) * MOST_OF_DISK))
    for cache in caches:
        if total + needed <= most:
            return
        with contextlib.suppress(OSError), (cache / INDEX).open() as held:
            if _got(held, fcntl.LOCK_EX):
                shutil.rmtree(cache, ignore_errors=True)
                total -= sizes[cache]


def _index(place: Path) -> dict[str, Any]:
    told = json.loads((place / INDEX).read_text())
    if _seal(told["index"]) != told["seal"]:
        raise ValueError("its index is damaged")
    index: dict[str, Any] = json.loads(told["index"])
    return index


def _foreign(place: Path) -> str:
    """Why the cache may not be trusted: somebody else could have written it."""
    paths = (place, *sorted(place.iterdir())) if place.is_dir() and not place.is_symlink() else (place,)
    return next((reason for path in paths if (reason := private.foreign(path))), "")


def _seal(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _write_through(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _used_at(cache: Path) -> float:
    return (cache / INDEX).stat().st_mtime


def _got(file: Any, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
