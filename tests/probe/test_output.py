"""Not one byte of the script's output is lost under the probe, whatever its buffering, from Python and from C."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes as Unix knows them")

# As the probe does while a script trains: the sampler runs in the training thread's process.
WRITES = """
import ctypes, os, sys, tempfile, threading
from pathlib import Path
from hotlap.probe.session import Session
session = Session(Path(tempfile.mkdtemp()), 0)
session.start()
how, block = sys.argv[1], "x" * 99 + "\\n"
block *= 2000
for number in range(60):
    if how == "print": print(block, end="")
    elif how == "raw": getattr(sys.stdout.buffer, "raw", sys.stdout.buffer).write(block.encode())
    elif how == "os": os.write(1, block.encode())
    else: ctypes.CDLL(None).write(1, block.encode(), len(block))
sys.stdout.flush()
session.detach()
"""
WHOLE = hashlib.sha256(("x" * 99 + "\n").encode() * 2000 * 60).hexdigest()


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("how", ["print", "raw", "os", "c"])
def test_a_pipe_with_a_slow_reader_gets_every_byte(how, unbuffered):
    """12 MB through a pipe that is full most of the time: a signal to the writer would cut a write short."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    child = subprocess.Popen([sys.executable, "-c", WRITES, how], stdout=subprocess.PIPE, env=environment)
    read, count = hashlib.sha256(), 0
    while part := os.read(child.stdout.fileno(), 1 << 16):
        read.update(part)
        count += len(part)
        time.sleep(0.002)
    child.stdout.close()
    assert (child.wait(), count, read.hexdigest()) == (0, 12_000_000, WHOLE)
