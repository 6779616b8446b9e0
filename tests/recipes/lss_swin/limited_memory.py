"""A hook that a configuration names: from the first iteration on, only so much more memory is to be had."""

from __future__ import annotations

from little_memory import allow
from mmengine.hooks import Hook
from mmengine.registry import HOOKS


@HOOKS.register_module()
class LimitedMemory(Hook):
    def __init__(self, extra_mb):
        self.extra_mb = extra_mb

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if batch_idx == 0:
            allow(self.extra_mb)
