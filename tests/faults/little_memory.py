"""A process that can get only so much more memory than it has.

Data is limited, not the address space: stacks count to the latter, and one that cannot grow is a segmentation fault
where a tensor that cannot be had is an error.
"""

import resource
from pathlib import Path


def allow(extra_mb):
    lines = Path("/proc/self/status").read_text().splitlines()
    used = next(int(line.split()[1]) for line in lines if line.startswith("VmData")) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + extra_mb * 2**20,) * 2)
