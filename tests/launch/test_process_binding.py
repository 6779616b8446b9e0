"""A job that was to be ended with its window does not outlive hotlap; one that ends first is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell and signals as Unix knows them")

PARENT = """
import subprocess, sys, time
from hotlap.launch.process import Binding
job = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
binding = Binding(job.pid)
print(job.pid, flush=True)
job.wait()
binding.loosen()
print("over", flush=True)
"""
SLEEPS = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SLEEPS}"


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("script", [SLEEPS, DEAF], ids=["civil", "deaf"])
def test_the_job_ends_when_hotlap_is_killed(script, eventually):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, script], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert not is_gone(pid)
    parent.send_signal(signal.SIGKILL)
    eventually(lambda: is_gone(pid))
    parent.communicate()


def test_a_job_that_ends_first_leaves_no_guard_behind():
    done = subprocess.run([sys.executable, "-c", PARENT, "pass"], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("over\n") and done.stderr == ""
