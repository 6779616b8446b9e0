"""The way to the driver through nvidia-ml-py and ctypes, with a library of our own in the driver's place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pynvml")

LOOK = """
import json, sys
from hotlap.host.gpus import Nvml
session = Nvml()
(gpu,) = session.describe()
looks = []
for line in sys.stdin:
    (seen,) = session.look()
    looks.append({**seen._asdict(), "throttle": None if seen.throttle is None else sorted(seen.throttle)})
    print(json.dumps(looks[-1]), flush=True)
print(json.dumps([gpu.name, gpu.memory_bytes, gpu.bf16, session.driver]))
"""
WELL = {"total": 80 << 30, "used": 10 << 30, "busy": 93, "clock": 1410, "highest": 1410, "reasons": 0}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler is here to build the driver's stand-in with")
    target = tmp_path_factory.mktemp("driver") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml_stub.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(source)], check=True)
    return target.parent


@pytest.fixture
def looks(library, tmp_path):
    """A session with the driver in a process of its own; each call shows what it says of this state."""
    state = tmp_path / "state"

    def put(processes=(), **facts):
        rows = [f"{name} {value}" for name, value in facts.items()]
        state.write_text("\n".join([*rows, *(f"process {pid} {size}" for pid, size in processes)]) + "\n")

    put(**WELL)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STUB": str(state)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    child = subprocess.Popen(
        [sys.executable, "-c", LOOK],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def look(processes=(), **facts):
        put(processes, **facts)
        child.stdin.write("look\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())

    look.child = child
    yield look
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()


def test_a_gpu_is_what_its_driver_says(looks):
    looks(**WELL)
    looks.child.stdin.close()
    assert json.loads(looks.child.stdout.read()) == ["NVIDIA A100-SXM4-80GB", 80 << 30, True, "570.00"]


def test_use_clocks_and_processes_are_read(looks):
    seen = looks(processes=[(4711, 9 << 30), (99, 1 << 30)], **WELL)
    assert seen["busy"] == 0.93 and seen["memory_used"] == 10 << 30
    assert seen["memory_by_pid"] == {"4711": 9 << 30, "99": 1 << 30}
    assert seen["clock"] == 1.0 and seen["throttle"] == [] and seen["lost"] is False


def test_what_holds_it_back_is_named_and_idleness_is_not(looks):
    seen = looks(**{**WELL, "clock": 705, "reasons": 0x01 | 0x04 | 0x40})
    assert seen["clock"] == 0.5 and seen["throttle"] == ["heat", "power"]
    assert looks(**{**WELL, "reasons": 0x01 | 0x02})["throttle"] == []


def test_what_a_driver_does_not_say_is_not_made_up(looks):
    seen = looks(total=1, used=1)
    assert (seen["busy"], seen["clock"], seen["throttle"], seen["lost"]) == (None, None, None, False)


def test_a_gpu_that_falls_off_the_bus_is_lost_and_may_come_back(looks):
    lost = looks(lost=1, **WELL)
    assert lost["lost"] is True and lost["busy"] is None and lost["memory_by_pid"] == {}
    assert looks(**WELL)["lost"] is False
