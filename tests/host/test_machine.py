from __future__ import annotations

import multiprocessing
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hotlap.facts.codec import from_plain, to_plain
from hotlap.facts.host import Host
from hotlap.host import machine as module
from hotlap.host.machine import ResourceLimits, find_compiler, inspect_host

GIB = 1 << 30


def test_this_machine_is_described_as_it_is():
    host = inspect_host()
    assert host.system == platform.system()
    assert host.cpu
    assert 1 <= host.cores <= os.cpu_count()
    assert 0 < host.ram_free_bytes <= host.ram_bytes <= psutil.virtual_memory().total
    assert host.start_method == multiprocessing.get_context().get_start_method()
    assert host.versions["python"] == platform.python_version()
    assert (host.storage, host.storage_note) == (None, "no folder was named")
    assert from_plain(Host, to_plain(host)) == host


def test_versions_are_those_of_the_installed_packages():
    import torch

    versions = inspect_host().versions
    assert versions["torch"] == torch.__version__
    assert versions.get("cuda") == torch.version.cuda


def test_torch_is_not_imported():
    program = "import sys, hotlap.host.machine as host; host.inspect_host(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(Path(module.__file__).parents[2])})  # fmt: skip
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (16.0, 8), (2.5, 2), (0.5, 1)])
def test_cores_never_exceed_the_containers_quota(monkeypatch, quota, cores):
    monkeypatch.setattr(module, "affinity_cores", lambda: 8)
    monkeypatch.setattr(module, "cgroup_limits", lambda: ResourceLimits(cpus=quota))
    host = inspect_host()
    assert (host.cores, host.affinity_cores, host.cpu_quota) == (cores, 8, quota)


def test_memory_never_exceeds_the_containers_limit(monkeypatch):
    monkeypatch.setattr(
        module, "cgroup_limits", lambda: ResourceLimits(memory_bytes=GIB, memory_free_bytes=GIB // 4)
    )
    host = inspect_host()
    assert (host.ram_bytes, host.ram_free_bytes) == (GIB, GIB // 4)


def test_a_limit_above_the_machine_does_not_count(monkeypatch):
    monkeypatch.setattr(module, "cgroup_limits", lambda: ResourceLimits(memory_bytes=1 << 50))
    host = inspect_host()
    assert host.ram_bytes == psutil.virtual_memory().total
    assert host.ram_free_bytes <= host.ram_bytes


def test_shared_memory_that_is_not_there_is_none_and_not_zero(tmp_path):
    assert module._shared_memory(tmp_path / "shm") is None
    total, free = module._shared_memory(tmp_path)
    assert 0 < free <= total


def test_gpus_and_their_driver_come_from_nvml(nvml):
    """Through the stand-in of conftest.py, as there is no NVIDIA GPU here."""
    host = inspect_host()
    assert [gpu.name for gpu in host.gpus] == ["NVIDIA A100-SXM4-80GB", "Tesla T4"]
    assert host.versions["nvidia-driver"] == "550.54"
    assert nvml.sessions == 0


def test_storage_is_measured_for_a_folder_only_or_told_why_not(tmp_path):
    host = inspect_host(tmp_path / "gone")
    assert host.storage is None
    assert host.storage_note


@pytest.fixture
def compiler_folder(tmp_path, monkeypatch):
    """A PATH with nothing in it but what the test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    def install(name: str, exit_code: int = 0) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\nexit {exit_code}\n")
        path.chmod(0o755)
        return str(path)

    return install


@pytest.mark.skipif(sys.platform != "linux", reason="the names are those of Linux")
class TestCompiler:
    def test_none_where_there_is_none(self, compiler_folder):
        assert find_compiler() is None

    def test_torch_looks_for_gpp_and_for_no_other_name(self, compiler_folder):
        compiler_folder("clang++")
        assert find_compiler() is None
        path = compiler_folder("g++")
        assert find_compiler() == path

    def test_cxx_comes_first(self, compiler_folder, monkeypatch):
        compiler_folder("g++")
        path = compiler_folder("clang++")
        monkeypatch.setenv("CXX", "clang++")
        assert find_compiler() == path

    def test_one_that_does_not_run_is_none(self, compiler_folder):
        compiler_folder("g++", exit_code=1)
        assert find_compiler() is None

    def test_it_is_the_one_that_torch_finds(self):
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            found = get_cpp_compiler()
        except InvalidCxxCompiler:
            assert find_compiler() is None
        else:
            assert Path(find_compiler()).name == Path(found).name
