"""Cgroup files are laid out in a temporary folder as the kernel and container runtimes lay them out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hotlap.host.machine import ResourceLimits, cgroup_limits

GIB = 1 << 30
V2_MOUNT = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def machine(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_in_a_container(tmp_path):
    root = machine(tmp_path, {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "25 1 8:1 / / rw - ext4 /dev/sda rw\n" + V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{5 * GIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon {2 * GIB}\ninactive_file {2 * GIB}\n",
    })  # fmt: skip
    assert cgroup_limits(root) == ResourceLimits(cpus=1.5, memory_bytes=8 * GIB, memory_free_bytes=5 * GIB)


def test_the_lowest_limit_on_the_way_up_counts(tmp_path):
    root = machine(tmp_path, {
        "proc/self/cgroup": "0::/user.slice/job.scope\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/user.slice/job.scope/cpu.max": "max 100000\n",
        "sys/fs/cgroup/user.slice/cpu.max": "400000 100000\n",
        "sys/fs/cgroup/user.slice/job.scope/memory.max": f"{6 * GIB}\n",
        "sys/fs/cgroup/user.slice/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/user.slice/memory.current": f"{GIB}\n",
        "sys/fs/cgroup/other.slice/memory.max": "1\n",
    })  # fmt: skip
    assert cgroup_limits(root) == ResourceLimits(cpus=4.0, memory_bytes=4 * GIB, memory_free_bytes=3 * GIB)


@pytest.mark.parametrize("mount_root", ["/docker/abc", "/"])
def test_version_1_with_and_without_the_host_in_sight(tmp_path, mount_root):
    inner = "" if mount_root != "/" else "/docker/abc"
    root = machine(tmp_path, {
        "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n",
        "proc/self/mountinfo":
            f"31 30 0:27 {mount_root} /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
            f"32 30 0:28 {mount_root} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        f"sys/fs/cgroup/cpu,cpuacct{inner}/cpu.cfs_quota_us": "200000\n",
        f"sys/fs/cgroup/cpu,cpuacct{inner}/cpu.cfs_period_us": "100000\n",
        f"sys/fs/cgroup/memory{inner}/memory.limit_in_bytes": f"{3 * GIB}\n",
        f"sys/fs/cgroup/memory{inner}/memory.usage_in_bytes": f"{2 * GIB}\n",
        f"sys/fs/cgroup/memory{inner}/memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB}\n",
    })  # fmt: skip
    assert cgroup_limits(root) == ResourceLimits(cpus=2.0, memory_bytes=3 * GIB, memory_free_bytes=2 * GIB)


def test_no_limit_is_none_and_not_a_huge_number(tmp_path):
    root = machine(tmp_path, {
        "proc/self/cgroup": "5:cpu:/\n4:memory:/\n",
        "proc/self/mountinfo":
            "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    })  # fmt: skip
    assert cgroup_limits(root) == ResourceLimits()


def test_a_cgroup_outside_of_the_namespace_falls_back_to_the_mount(tmp_path):
    root = machine(tmp_path, {
        "proc/self/cgroup": "0::/../../other\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "100000 100000\n",
    })  # fmt: skip
    assert cgroup_limits(root).cpus == 1.0


def test_a_system_without_cgroups_limits_nothing(tmp_path):
    assert cgroup_limits(tmp_path) == ResourceLimits()
