"""From a torch.profiler trace to what a step consists of: top operators, matmuls, low precision, idle device.

An operator's own time is its duration without the operators that it called. On a device the kernels count instead of the
calls that launched them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotlap.facts.timeline import Operator, Ops

_MATMULS = ("mm", "addmm", "bmm", "baddbmm", "linear", "conv", "matmul", "mkldnn", "gemm", "attention")
_POINTWISE = (
    "add", "sub", "mul", "div", "relu", "gelu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "pow", "norm",
    "dropout", "softmax", "copy_", "clamp", "where", "threshold", "neg", "abs", "fill_", "sum", "mean",
)  # fmt: skip
_LOW = ("c10::BFloat16", "c10::Half")
_MOST = 20
_ALIGNED = 8  # elements: what tensor cores want a size to be a multiple of
Event = Mapping[str, Any]


def read_operators(path: Path | None) -> Ops | None:
    """The operators of a trace; None where there is none or it cannot be read."""
    if path is None or not path.is_file():
        return None
    try:
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    except (ValueError, KeyError, OSError):
        return None
    return operators(events)


def operators(events: Sequence[Event]) -> Ops | None:
    calls = [event for event in events if event.get("cat") == "cpu_op" and event.get("ph") == "X"]
    own = _own_times(calls)
    total = sum(own)
    if total <= 0:
        return None
    pairs = list(zip(calls, own, strict=True))
    matmul = [(event, spent) for event, spent in pairs if _is(event, _MATMULS)]
    matmul_time = sum(spent for _, spent in matmul)
    pointwise = sum(spent for event, spent in pairs if _is(event, _POINTWISE) and not _is(event, _MATMULS))
    return Ops(
        top=_top(pairs, total),
        pointwise=pointwise / total,
        matmul=matmul_time / total,
        low_precision=_share(matmul, matmul_time, lambda event: _dtype(event) in _LOW),
        misaligned=_share(matmul, matmul_time, _misaligned),
        device_idle=_device_idle(events),
    )


def _own_times(calls: Sequence[Event]) -> list[float]:
    """Durations without nested calls, per thread; the trace lists calls in any order."""
    own = [float(call["dur"]) for call in calls]
    order = sorted(
        range(len(calls)), key=lambda at: (str(calls[at]["tid"]), calls[at]["ts"], -calls[at]["dur"])
    )
    open_calls: list[int] = []
    for at in order:
        call = calls[at]
        while open_calls and not _holds(calls[open_calls[-1]], call):
            open_calls.pop()
        if open_calls:
            own[open_calls[-1]] -= float(call["dur"])
        open_calls.append(at)
    return [max(0.0, spent) for spent in own]


def _holds(outer: Event, inner: Event) -> bool:
    return bool(outer["tid"] == inner["tid"] and inner["ts"] < outer["ts"] + outer["dur"])


def _top(pairs: Sequence[tuple[Event, float]], total: float) -> tuple[Operator, ...]:
    times: Counter[tuple[str, str, str]] = Counter()
    counts: Counter[tuple[str, str, str]] = Counter()
    for event, spent in pairs:
        key = (str(event["name"]), _shapes(event), _dtype(event))
        times[key] += spent  # type: ignore[assignment]  # a Counter adds floats as well
        counts[key] += 1
    return tuple(
        Operator(*key, share=spent / total, calls=counts[key]) for key, spent in times.most_common(_MOST)
    )


def _is(event: Event, names: Sequence[str]) -> bool:
    name = str(event["name"]).rpartition("::")[2].lower()
    return any(part in name for part in names)


def _shapes(event: Event) -> str:
    shapes = event.get("args", {}).get("Input Dims", [])
    return " ".join("x".join(map(str, shape)) for shape in shapes[:3] if shape)


def _dtype(event: Event) -> str:
    types = event.get("args", {}).get("Input type", [])
    return next((kind for kind in types if kind and kind not in ("Scalar", "ScalarList")), "")


def _misaligned(event: Event) -> bool:
    shapes = event.get("args", {}).get("Input Dims", [])
    sizes = [
        size
        for shape in shapes[:2]
        if isinstance(shape, list)
        for size in shape[-2:]
        if isinstance(size, int)
    ]
    return any(size % _ALIGNED for size in sizes if size > 1)


def _share(pairs: Sequence[tuple[Event, float]], total: float, holds: Any) -> float | None:
    return sum(spent for event, spent in pairs if holds(event)) / total if total > 0 else None


def _device_idle(events: Sequence[Event]) -> float | None:
    """The part between the first and the last kernel in which none ran; None without a device."""
    spans = sorted(
        (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event.get("cat") in ("kernel", "gpu_memcpy") and event.get("ph") == "X"
    )
    if not spans:
        return None
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    whole = reached - spans[0][0]
    return 1 - busy / whole if whole > 0 else None
