"""Machines are made up here: what a machine means is a pure function of its facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.diagnose.checkup import Check, Level, checkup
from hotlap.facts.host import Gpu, Host, Storage

MIB, GIB = 1 << 20, 1 << 30
VERSIONS = {"python": "3.11.7", "torch": "2.8.0"}
A100 = Gpu("NVIDIA A100-SXM4-80GB", 80 * GIB, (8, 0), bf16=True, tf32=True, tensor_cores=True)
T4 = Gpu("Tesla T4", 16 * GIB, (7, 5), tensor_cores=True)
P100 = Gpu("Tesla P100-PCIE-16GB", 16 * GIB, (6, 0))

LINUX = Host(
    system="Linux", cpu="AMD EPYC", cores=2, physical_cores=2, ram_bytes=24 * GIB, ram_free_bytes=20 * GIB,
    shm_bytes=12 * GIB, shm_free_bytes=12 * GIB, start_method="fork", compiler="/usr/bin/g++",
    versions=VERSIONS, machine="x86_64", machine_cores=2, affinity_cores=2, cpu_flags=("avx2",),
    python_headers=True,
)  # fmt: skip
SERVER = replace(
    LINUX, cores=64, physical_cores=64, machine_cores=64, affinity_cores=64, gpus=(A100,), cpu_bf16=True,
    cpu_amx=True, cpu_flags=("amx_bf16", "avx2", "avx512", "avx512_bf16"),
    versions=VERSIONS | {"cuda": "12.8", "triton": "3.4"},
)  # fmt: skip
CLOUD_T4 = replace(SERVER, cores=4, physical_cores=2, machine_cores=4, affinity_cores=4, gpus=(T4,))
WINDOWS = Host(
    system="Windows", cpu="Intel64 Family 6 Model 151", cores=16, physical_cores=8, ram_bytes=32 * GIB,
    ram_free_bytes=16 * GIB, shm_bytes=None, shm_free_bytes=None, start_method="spawn", versions=VERSIONS,
    machine="AMD64", machine_cores=16, affinity_cores=16,
)  # fmt: skip
MACBOOK = Host(
    system="Darwin", cpu="Apple M2", cores=8, physical_cores=8, ram_bytes=16 * GIB, ram_free_bytes=8 * GIB,
    shm_bytes=None, shm_free_bytes=None, start_method="spawn", cpu_bf16=True, cpu_flags=("arm_bf16",),
    compiler="/usr/bin/clang++", versions=VERSIONS, machine="arm64", machine_cores=8, affinity_cores=8,
    python_headers=True,
)  # fmt: skip
CONTAINER = replace(LINUX, cores=2, affinity_cores=32, machine_cores=32, cpu_quota=2.5, shm_bytes=64 * MIB,
                    shm_free_bytes=64 * MIB)  # fmt: skip
ALL = {
    "linux": LINUX,
    "server": SERVER,
    "t4": CLOUD_T4,
    "windows": WINDOWS,
    "mac": MACBOOK,
    "container": CONTAINER,
}


def check(host: Host, topic: str) -> Check:
    (found,) = [each for each in checkup(host) if each.topic == topic]
    return found


@pytest.mark.parametrize("host", ALL.values(), ids=ALL)
def test_every_machine_gets_every_topic_once_in_words(host):
    checks = checkup(host)
    topics = [each.topic for each in checks]
    assert len(set(topics)) == len(topics)
    assert {
        "GPU",
        "cores",
        "CPU",
        "memory",
        "/dev/shm",
        "start method",
        "storage",
        "compiler",
        "torch",
    } <= set(topics)
    assert all(each.value and each.meaning for each in checks)


def test_a_well_set_up_server_is_not_nagged():
    assert [each.topic for each in checkup(SERVER) if each.level is not Level.OK] == ["TF32"]


class TestGpu:
    def test_an_a100_is_told_of_bf16_and_of_tf32_that_is_off(self):
        assert "bf16" in check(SERVER, "GPU").meaning
        assert check(SERVER, "GPU").value == "NVIDIA A100-SXM4-80GB, 80.0 GiB"
        tf32 = check(SERVER, "TF32")
        assert tf32.level is Level.HINT
        assert "set_float32_matmul_precision('high')" in tf32.meaning

    def test_a_t4_has_no_bf16_and_no_tf32(self):
        gpu = check(CLOUD_T4, "GPU")
        assert gpu.level is Level.HINT
        assert "no bf16" in gpu.meaning and "fp16" in gpu.meaning and "GradScaler" in gpu.meaning
        assert "TF32" not in [each.topic for each in checkup(CLOUD_T4)]

    def test_a_gpu_without_tensor_cores_gains_little_from_mixed_precision(self):
        assert "no tensor cores" in check(replace(SERVER, gpus=(P100,)), "GPU").meaning

    def test_several_are_told_apart(self):
        host = replace(SERVER, gpus=(A100, T4))
        assert "A100" in check(host, "GPU 0").value
        assert "T4" in check(host, "GPU 1").value

    def test_what_the_driver_did_not_tell_is_not_made_up(self):
        gpu = check(replace(SERVER, gpus=(Gpu("NVIDIA GPU", 0),)), "GPU")
        assert gpu.value == "NVIDIA GPU"
        assert "not told" in gpu.meaning

    def test_none_at_all(self):
        assert check(LINUX, "GPU") == Check("GPU", "none", "training runs on the CPU")

    def test_a_cuda_build_without_a_gpu_points_to_the_container(self):
        gpu = check(replace(SERVER, gpus=()), "GPU")
        assert gpu.level is Level.HINT
        assert "CUDA 12.8" in gpu.meaning and "--gpus all" in gpu.meaning

    def test_gpus_that_are_not_looked_at_are_not_denied(self):
        assert "mps" in check(MACBOOK, "GPU").meaning
        assert check(replace(LINUX, versions=VERSIONS | {"hip": "6.2"}), "GPU").value == "not measured"


class TestCores:
    def test_two_cores_carry_two_workers(self):
        cores = check(LINUX, "cores")
        assert (cores.value, cores.level) == ("2", Level.OK)
        assert "at most 2 CPU-bound loader workers" in cores.meaning

    def test_a_quota_that_torch_does_not_see_is_a_warning(self):
        cores = check(CONTAINER, "cores")
        assert (cores.value, cores.level) == ("2 of 32", Level.WARNING)
        assert "2.5 cores" in cores.meaning and "OMP_NUM_THREADS=2" in cores.meaning

    def test_a_quota_above_the_cores_is_none(self):
        assert check(replace(LINUX, cpu_quota=4.0), "cores").level is Level.OK

    def test_one_core_has_none_to_spare(self):
        one = replace(LINUX, cores=1, affinity_cores=1, physical_cores=1)
        assert check(one, "cores").level is Level.WARNING

    def test_few_cores_for_several_gpus(self):
        host = replace(SERVER, cores=12, physical_cores=12, gpus=(A100,) * 4)
        assert check(host, "cores").level is Level.HINT
        assert "4 GPUs" in check(host, "cores").meaning
        assert check(replace(host, gpus=(A100,)), "cores").level is Level.OK

    def test_hyper_threads_are_not_sold_as_cores(self):
        assert "2 physical cores" in check(CLOUD_T4, "cores").meaning
        assert "physical" not in check(LINUX, "cores").meaning


class TestCpu:
    def test_bf16_is_slow_where_the_cpu_lacks_it(self):
        cpu = check(LINUX, "CPU")
        assert cpu.level is Level.HINT
        assert cpu.meaning == "AVX512-BF16/AMX absent: bf16 on this CPU is slower than fp32"

    def test_that_matters_less_beside_a_gpu(self):
        assert check(replace(LINUX, gpus=(T4,)), "CPU").level is Level.OK

    @pytest.mark.parametrize(("host", "word"), [(SERVER, "AMX"), (MACBOOK, "bf16 in hardware")])
    def test_bf16_pays_where_the_cpu_has_it(self, host, word):
        assert word in check(host, "CPU").meaning
        assert "slower" not in check(host, "CPU").meaning

    def test_what_windows_does_not_tell_is_not_taken_for_absent(self):
        cpu = check(WINDOWS, "CPU")
        assert "not measured on Windows" in cpu.meaning
        assert "slower" not in cpu.meaning

    def test_a_cpu_without_avx2_is_a_warning_but_an_arm_has_no_avx2_to_lack(self):
        assert check(replace(LINUX, cpu_flags=()), "CPU").level is Level.WARNING
        arm = replace(LINUX, machine="aarch64", cpu_flags=())
        assert check(arm, "CPU").meaning.startswith("bf16 instructions absent")


class TestMemory:
    def test_half_of_what_is_free_may_hold_a_dataset(self):
        assert "10.0 GiB" in check(LINUX, "memory").meaning
        assert "own copy" not in check(LINUX, "memory").meaning
        assert "own copy" in check(WINDOWS, "memory").meaning

    def test_little_free_memory_is_a_warning(self):
        memory = check(replace(LINUX, ram_free_bytes=GIB), "memory")
        assert memory.level is Level.WARNING
        assert "4.2 %" in memory.meaning


class TestSharedMemory:
    def test_what_docker_grants_by_default_crashes_workers(self):
        shm = check(CONTAINER, "/dev/shm")
        assert (shm.value, shm.level) == ("64.0 MiB", Level.WARNING)
        assert "Bus error" in shm.meaning and "--shm-size" in shm.meaning

    def test_a_large_one_that_is_full_is_no_better(self):
        shm = check(replace(LINUX, shm_free_bytes=10 * MIB), "/dev/shm")
        assert shm.level is Level.WARNING
        assert "nearly full" in shm.meaning and "--shm-size" not in shm.meaning

    def test_a_small_one_is_a_hint(self):
        assert check(replace(LINUX, shm_bytes=GIB, shm_free_bytes=GIB), "/dev/shm").level is Level.HINT

    def test_none_is_a_warning_on_linux_and_normal_elsewhere(self):
        none = replace(LINUX, shm_bytes=None, shm_free_bytes=None)
        assert check(none, "/dev/shm").level is Level.WARNING
        assert check(WINDOWS, "/dev/shm") == Check("/dev/shm", "none", "not used on Windows")
        assert check(MACBOOK, "/dev/shm").meaning == "not used on macOS"


class TestStartMethod:
    @pytest.mark.parametrize(("host", "system"), [(WINDOWS, "Windows"), (MACBOOK, "macOS")])
    def test_workers_that_spawn_import_the_script_again(self, host, system):
        start = check(host, "start method")
        assert (start.value, start.level) == ("spawn", Level.HINT)
        assert f"workers spawn on {system}" in start.meaning
        assert "if __name__ == '__main__'" in start.meaning and "persistent_workers=True" in start.meaning

    def test_fork_and_forkserver(self):
        assert check(LINUX, "start method").level is Level.OK
        assert "__main__" in check(replace(LINUX, start_method="forkserver"), "start method").meaning


class TestStorage:
    def test_a_slow_disk_is_a_warning_with_what_it_can_deliver(self):
        slow = check(replace(LINUX, storage=Storage("/data", 110e6, "O_DIRECT")), "storage")
        assert slow.level is Level.WARNING
        assert "/data: at most 1,000 files of 110 KB a second (O_DIRECT)" in slow.meaning

    def test_a_fast_disk_is_fine(self):
        assert check(replace(LINUX, storage=Storage("/data", 2e9)), "storage").level is Level.OK

    def test_not_measured_is_said_with_the_reason(self):
        host = replace(LINUX, storage_note="the folder lies in memory (tmpfs)")
        assert check(host, "storage") == Check("storage", "not measured", "the folder lies in memory (tmpfs)")


class TestCompiler:
    def test_none_on_a_cpu_machine(self):
        compiler = check(replace(LINUX, compiler=None), "compiler")
        assert compiler.level is Level.WARNING
        assert "torch.compile does not work on CPU: install g++" in compiler.meaning

    def test_none_beside_a_gpu_and_on_windows(self):
        assert "Triton" in check(replace(SERVER, compiler=None), "compiler").meaning
        assert "Visual C++" in check(WINDOWS, "compiler").meaning

    def test_missing_headers(self):
        assert "Python.h" in check(replace(LINUX, python_headers=False), "compiler").meaning
        assert check(replace(LINUX, python_headers=None), "compiler").level is Level.OK

    def test_missing_triton(self):
        host = replace(SERVER, versions=VERSIONS | {"cuda": "12.8"})
        assert check(host, "compiler").level is Level.HINT


class TestTorch:
    def test_a_cpu_build_leaves_the_gpu_unused(self):
        torch = check(replace(SERVER, versions=VERSIONS), "torch")
        assert torch.level is Level.WARNING
        assert "GPU stays unused" in torch.meaning

    def test_a_build_for_cuda_13_has_no_code_for_old_gpus(self):
        cuda_13 = VERSIONS | {"cuda": "13.0", "triton": "3.4"}
        assert "P100" in check(replace(SERVER, gpus=(P100,), versions=cuda_13), "torch").meaning
        assert check(replace(SERVER, gpus=(T4,), versions=cuda_13), "torch").level is Level.OK
        assert check(replace(SERVER, gpus=(P100,)), "torch").level is Level.OK

    def test_none(self):
        assert check(replace(LINUX, versions={"python": "3.12.1"}), "torch").level is Level.WARNING

    def test_frameworks_are_listed(self):
        host = replace(LINUX, versions=VERSIONS | {"lightning": "2.4", "mmengine": "0.10"})
        assert check(host, "frameworks").value == "lightning 2.4, mmengine 0.10"
        assert check(LINUX, "frameworks").value == "none"
