"""Where the parts of a cache lie, and what is said while they are written."""

from __future__ import annotations

import gc
import io
import os
import pickle
import sys
import tempfile

import numpy as np
import pytest
import torch

from hotlap.data import materialise
from hotlap.data.cache.messages import progress
from hotlap.data.cache.store import FolderDrawer, MemoryDrawer


def write(drawer: MemoryDrawer | FolderDrawer, content: bytes) -> None:
    with drawer.create("part") as file:
        file.write(content)


@pytest.mark.parametrize("memory", [True, False])
def test_parts_are_mapped_as_they_were_written(tmp_path, memory):
    drawer = MemoryDrawer() if memory else FolderDrawer(tmp_path)
    for content in (b"first", b"second and longer", b"third", b""):  # a build that begins again
        write(drawer, content)
        assert drawer.read("part").tobytes() == content
    write(drawer, b"kept")
    part = drawer.read("part")
    assert not part.flags.writeable
    assert pickle.loads(pickle.dumps(drawer)).read("part").tobytes() == b"kept"
    drawer.remove()
    assert part.tobytes() == b"kept"  # what is mapped stays
    with pytest.raises((FileNotFoundError, KeyError)):
        drawer.read("part")


def test_building_again_leaks_no_descriptor():
    drawer = MemoryDrawer()
    write(drawer, b"x")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(5):
        write(drawer, b"y")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_where_the_system_has_no_nameless_files(tmp_path, monkeypatch, made, require_equal):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dataset = made(lambda index: (torch.full((3,), index), "x" * index))
    served = materialise(dataset)
    require_equal(dataset, served)
    assert len(list(tmp_path.glob("hotlap-*/0.data"))) == 1
    del dataset, served
    gc.collect()
    assert not list(tmp_path.glob("hotlap-*"))


def test_a_forked_process_leaves_the_memory_to_its_parent():
    drawer = MemoryDrawer()
    write(drawer, b"kept")
    child = os.fork()
    if not child:
        drawer.remove()
        os._exit(0 if drawer.read("part").tobytes() == b"kept" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert drawer.read("part").tobytes() == b"kept"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_others_two_lines(monkeypatch, capsys):
    with progress("9 items", 9) as advance:
        advance(9)
    said = capsys.readouterr().err.splitlines()
    assert (
        said[0] == "hotlap: caching 9 items"
        and said[1].startswith("hotlap: cached 9 items in ")
        and len(said) == 2
    )
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("9 items", 9) as advance:
        advance(4)
    assert "4/9" in terminal.getvalue() or "0/9" in terminal.getvalue()


def test_a_build_that_fails_says_no_end(capsys):
    with pytest.raises(RuntimeError), progress("9 items", 9):
        raise RuntimeError
    assert "cached" not in capsys.readouterr().err


def test_arrays_are_read_in_place(tmp_path):
    drawer = FolderDrawer(tmp_path)
    write(drawer, np.arange(1000).tobytes())
    assert np.array_equal(drawer.read("part").view(np.int64), np.arange(1000))
