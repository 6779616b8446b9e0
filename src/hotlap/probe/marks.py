"""What the probe writes down: 64-bit integers, `value << 8 | code`.

A code below 128 enters or leaves a kind of work and its value is a time; from 128 on it is a fact about the mark before
it. Integers in an array are nothing for the garbage collector to walk, and cost a tenth of what objects cost.
"""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """Work that has a beginning and an end."""

    DATA = 0  # waiting for a batch
    TRANSFER = 1
    FORWARD = 2
    EVAL_FORWARD = 3  # without gradients, or in eval mode
    BACKWARD = 4
    OPTIMIZER = 5  # around the step: zero_grad, schedulers, the gradient scaler
    STEP = 6  # the optimizer's step itself
    LOG = 7
    VALIDATE = 8
    CHECKPOINT = 9
    SYNC = 10
    COMPILE = 11
    COLLECT = 12  # garbage collection
    LOADER = 13  # iter(loader), where workers are started
    COMM = 14
    FETCH = 15
    COLLATE = 16


VALUE_FROM = 128

SAMPLES = 128
TOKENS = 129
PADDED = 130
LOADER_ID = 131
OPTIMIZER_ID = 132
EVAL_ON = 133  # a time: model.eval() was called
TRAIN_ON = 134  # a time: model.train() was called
DROPPED = 135  # steps thinned out to stay within the budget
FETCH_CPU = 136  # CPU nanoseconds of the fetch before
ITEMS = 137
WINDOW_END = 138  # what follows is no longer part of the measured window
DEVICE_FORWARD = 139  # a time: the device has finished what was queued of forward since the part before
DEVICE_BACKWARD = 140
DEVICE_OPTIMIZER = 141
DEVICE_ALLOCATED = 142  # bytes, after the mark before
DEVICE_RESERVED = 143
PHASES_END = 144  # the script is asked to end
FETCH_QUEUED = 145  # nanoseconds of the fetch before in which it waited for a core
EXHAUSTED = 147  # loader that the fetch before found without a batch: its workers are ended in it
CONTINUES = (
    148  # the backward pass before belongs to the same step as the one before it: gradients are accumulated
)
WORLD = 149  # ranks that train together, told with the first step
GRADIENTS = (
    150  # the backward pass before was torch.autograd.grad: its gradients are handed out, not accumulated
)
SYNC_PLACE = 146  # number of the line that the synchronisation before was made in
DEVICE_TRANSFER = 151  # a time: the device has finished a copy to it
DEVICE_GAP = 152  # a time: the device has finished what was queued between two parts
DEVICE_QUEUED = 153  # a time: the host had queued what the device mark before speaks of
DEVICE_COPY_BEGINS = 154  # a time: a copy on a stream of its own
DEVICE_COPY_ENDS = 155

DEVICE_TIMES = frozenset(
    {DEVICE_FORWARD, DEVICE_BACKWARD, DEVICE_OPTIMIZER, DEVICE_TRANSFER, DEVICE_GAP}
    | {DEVICE_QUEUED, DEVICE_COPY_BEGINS, DEVICE_COPY_ENDS}
)

STEP_MARK = "hotlap: a step ends"  # an annotation in a torch.profiler trace


def enter(kind: Kind) -> int:
    return kind << 1


def leave(kind: Kind) -> int:
    return kind << 1 | 1
