from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil
import pytest

from hotlap.host.machine import (
    Cpu,
    affinity_cores,
    cpu_from_cpuinfo,
    cpu_from_sysctl,
    physical_cores,
    read_cpu,
)

SAPPHIRE_RAPIDS = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
flags\t\t: fpu sse2 avx avx2 avx512f avx512dq avx512_bf16 amx_bf16 avx512_fp16 amx_tile amx_int8

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
GRAVITON = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes sve i8mm bf16 dgh rng
CPU implementer\t: 0x41
"""
APPLE_M2 = """machdep.cpu.cores_per_package: 8
machdep.cpu.brand_string: Apple M2
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_SME: 0
hw.optional.neon: 1
"""
INTEL_MAC = """machdep.cpu.brand_string: Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz
machdep.cpu.features: FPU VME SSE SSE2 AVX1.0
machdep.cpu.leaf7_features: RDWRFSGS BMI1 AVX2 SMEP
hw.optional.avx2_0: 1
hw.optional.avx512f: 0
"""


def test_x86_names_and_flags_are_those_of_the_first_processor():
    cpu = cpu_from_cpuinfo(SAPPHIRE_RAPIDS)
    assert cpu.name == "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
    assert cpu.flags == ("amx_bf16", "avx2", "avx512", "avx512_bf16")


def test_arm_calls_its_flags_features_and_has_no_model_name():
    cpu = cpu_from_cpuinfo(GRAVITON)
    assert cpu.flags == ("arm_bf16",)
    assert cpu.name


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        (APPLE_M2, Cpu("Apple M2", ("arm_bf16",))),
        (INTEL_MAC, Cpu("Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", ("avx2",))),
    ],
)
def test_macos_tells_through_sysctl(text, cpu):
    assert cpu_from_sysctl(text) == cpu


def test_what_is_not_told_is_not_taken_for_absent():
    assert cpu_from_cpuinfo("processor : 0\nmodel name : strange\n").flags is None
    assert cpu_from_sysctl("").flags is None
    assert read_cpu("Windows").flags is None


def test_a_linux_without_proc_still_has_a_name(tmp_path):
    assert read_cpu("Linux", tmp_path).name


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="told by other means"
)
def test_the_cpu_of_this_machine_is_the_one_in_proc():
    assert f": {read_cpu('Linux').name}\n" in Path("/proc/cpuinfo").read_text()


def test_cores_are_those_allowed_to_this_process():
    allowed = psutil.Process().cpu_affinity()
    assert affinity_cores() == len(allowed)
    if len(allowed) > 1:
        os.sched_setaffinity(0, allowed[:1])
        try:
            assert affinity_cores() == 1
            assert physical_cores() == 1
        finally:
            os.sched_setaffinity(0, allowed)


def test_hyper_threads_of_one_core_count_once(tmp_path, monkeypatch):
    for core, siblings in enumerate(["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"]):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{core}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5, 2})
    assert physical_cores(tmp_path) == 3
