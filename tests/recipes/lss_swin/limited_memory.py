"""A hook that a configuration names: from the first iteration on, only so much more memory is to be had."""

from __future__ import annotations

import resource
from pathlib import Path

from mmengine.hooks import Hook
from mmengine.registry import HOOKS


@HOOKS.register_module()
class LimitedMemory(Hook):
    def __init__(self, extra_mb):
        self.extra_mb = extra_mb

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if batch_idx == 0:
            lines = Path("/proc/self/status").read_text().splitlines()
            used = next(int(line.split()[1]) for line in lines if line.startswith("VmSize")) * 1024
            resource.setrlimit(resource.RLIMIT_AS, (used + self.extra_mb * 2**20,) * 2)
