"""The wrapper that marks a call. The compiler may trace through it, so it is as plain as can be.

Scripts import functions of torch by their names (`from torch.nn.utils import clip_grad_norm_`). Those names stay bound
to the wrapper while the compiler runs, when everything else of the probe has stepped aside.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

import torch

from hotlap.probe import marks
from hotlap.probe.marks import Kind

_now = time.perf_counter_ns


class MarkSink(Protocol):
    """Takes marks of the training thread, in nanoseconds since `origin`. Another thread may train later."""

    append: Callable[[int], None]
    origin: int
    thread: int


def around(sink: MarkSink, kind: Kind, original: Callable[..., Any]) -> Callable[..., Any]:
    """`original`, with every call of the training thread marked as `kind`."""
    append, origin = sink.append, sink.origin
    enter, leave = marks.enter(kind), marks.leave(kind)

    @functools.wraps(original)
    def marked(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or get_ident() != sink.thread:
            return original(*args, **kwargs)
        append((_now() - origin) << 8 | enter)
        try:
            return original(*args, **kwargs)
        finally:
            append((_now() - origin) << 8 | leave)

    return marked
