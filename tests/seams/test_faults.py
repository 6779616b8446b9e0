"""Faults of memory are known by their exceptions, also behind others."""

import pytest
import torch

from hotlap.seams.faults import KILLED, OTHER, OUT_OF_MEMORY, kind_of


def allocation():
    """The allocator's own words, as this torch says them."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    return caught.value


def wrapped(inner, *, explicit):
    try:
        try:
            raise inner
        except MemoryError as error:
            if explicit:
                raise ValueError("the training step failed") from error
            raise ValueError("and then, while cleaning up, another fault")  # noqa: B904 as scripts do
    except ValueError as outer:
        return outer


def test_the_cpu_allocator():
    assert kind_of(allocation()) == OUT_OF_MEMORY


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        RuntimeError("could not create a primitive"),
    ],
)
def test_what_devices_and_systems_say(error):
    assert kind_of(error) == OUT_OF_MEMORY


@pytest.mark.parametrize("explicit", [True, False])
def test_behind_another_exception(explicit):
    assert kind_of(wrapped(MemoryError(), explicit=explicit)) == OUT_OF_MEMORY


def test_a_launcher_that_tells_of_a_killed_child():
    error = RuntimeError(
        "train.py FAILED\n  exitcode  : -9 (pid: 12)\n  traceback : Signal 9 (SIGKILL) received by PID 12"
    )
    assert kind_of(error) == KILLED


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("could not create a primitive descriptor for a convolution"),
        KeyboardInterrupt(),
    ],
)
def test_everything_else_is_the_scripts(error):
    assert kind_of(error) == OTHER
