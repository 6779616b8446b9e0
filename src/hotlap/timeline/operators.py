"""From a torch.profiler trace to what a step consists of: top operators, matmuls, low precision, idle device.

An operator's own time is its duration without the operators that it called. On a device it is the time of the kernels
that it launched, as the host only queues them.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from hotlap.facts.timeline import Operator, Ops
from hotlap.probe.marks import STEP_MARK
from hotlap.timeline.products import count, holds

_MATMUL = re.compile(r"mm($|_|backward)|linear|conv|matmul|mkldnn|gemm|attention")
_POINTWISE = re.compile(
    r"add|sub|mul|div|relu|gelu|silu|sigmoid|tanh|exp(?!and)|log|sqrt|pow|norm|dropout|softmax|copy_|clamp|where|threshold"
    r"|neg|abs|fill_|sum|mean|triton"
)
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LOW = ("bfloat16", "float16")
_MOST = 20
_ALIGNED = 8  # elements: what tensor cores want a size to be a multiple of
Event = Mapping[str, Any]
Spent = tuple[Event, float]


def read_operators(path: Path | None) -> Ops | None:
    """The operators of a trace; None where there is none or it cannot be read."""
    if path is None or not path.is_file():
        return None
    try:
        return operators(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return None


def operators(events: Sequence[Event]) -> Ops | None:
    """What the whole steps in a trace consist of; what follows the last one is left out."""
    ends = [float(event["ts"]) for event in events if event.get("name") == STEP_MARK]
    calls = [event for event in events if event.get("cat") == "cpu_op" and event.get("ph") == "X"]
    if ends:
        calls = [call for call in calls if call["ts"] <= max(ends)]
    kernels = [event for event in events if event.get("cat") in _ON_DEVICE and event.get("ph") == "X"]
    pairs = _on_device(calls, kernels) if kernels else list(zip(calls, _own_times(calls), strict=True))
    total = sum(spent for _, spent in pairs)
    if total <= 0:
        return None
    matmul = [pair for pair in pairs if _named(pair[0], _MATMUL)]
    pointwise = [pair for pair in pairs if _named(pair[0], _POINTWISE) and not _named(pair[0], _MATMUL)]
    steps = max(1, len(ends))
    launched = [(_external_id(each), float(each["dur"])) for each in kernels]
    counted = count(events, launched, max(ends, default=inf), steps)
    return Ops(
        top=_top(pairs, total, steps),
        pointwise=_share(pointwise, total),
        matmul=_share(matmul, total),
        low_precision=_part(matmul, lambda event: dtype(event) in _LOW),
        misaligned=_part(matmul, _misaligned),
        device_idle=_idle(kernels),
        steps=len(ends) or None,
        products=counted.products,
        stage_s=counted.seconds,
        moved_bytes=counted.moved_bytes,
        compiled=counted.compiled,
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
        while open_calls and not holds(calls[open_calls[-1]], call):
            open_calls.pop()
        if open_calls:
            own[open_calls[-1]] -= float(call["dur"])
        open_calls.append(at)
    return [max(0.0, spent) for spent in own]


def _on_device(calls: Sequence[Event], kernels: Sequence[Event]) -> list[Spent]:
    """Each operator with the time of its kernels; a kernel that no operator launched stands for itself."""
    by_operator: defaultdict[Any, float] = defaultdict(float)
    known = {_external_id(call) for call in calls} - {None}
    unclaimed: list[Spent] = []
    for kernel in kernels:
        launcher = _external_id(kernel)
        if launcher in known:
            by_operator[launcher] += float(kernel["dur"])
        else:
            unclaimed.append((kernel, float(kernel["dur"])))
    launching = [call for call in calls if _external_id(call) in by_operator]
    return [(call, by_operator[_external_id(call)]) for call in launching] + unclaimed


def _external_id(event: Event) -> Any:
    return event.get("args", {}).get("External id")


def _top(pairs: Sequence[Spent], total: float, steps: int) -> tuple[Operator, ...]:
    times: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    counts: Counter[tuple[str, str, str]] = Counter()
    for event, spent in pairs:
        key = (str(event["name"]), shapes(event), dtype(event))
        times[key] += spent
        counts[key] += 1
    ranked = sorted(times, key=lambda key: -times[key])[:_MOST]
    return tuple(Operator(*key, share=times[key] / total, calls=counts[key] / steps) for key in ranked)


def _named(event: Event, names: re.Pattern[str]) -> bool:
    return names.search(str(event["name"]).lower().removeprefix("aten::")) is not None


def _misaligned(event: Event) -> bool:
    sizes = [
        size
        for shape in event.get("args", {}).get("Input Dims", [])[:2]
        for size in shape[-2:]
        if isinstance(size, int)
    ]
    return any(size % _ALIGNED for size in sizes if size > 1)


def _share(pairs: Sequence[Spent], total: float) -> float:
    return sum(spent for _, spent in pairs) / total


def _part(pairs: Sequence[Spent], holds: Callable[[Event], bool]) -> float | None:
    total = sum(spent for _, spent in pairs)
    return _share([pair for pair in pairs if holds(pair[0])], total) if total > 0 else None


def _idle(kernels: Sequence[Event]) -> float | None:
    """The part between the first and the last kernel in which none ran; None without a device."""
    spans = sorted((float(each["ts"]), float(each["ts"]) + float(each["dur"])) for each in kernels)
    if not spans:
        return None
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    whole = reached - spans[0][0]
    return 1 - busy / whole if whole > 0 else None


# Sizes and types of an operator's inputs in a torch.profiler trace, as short texts.


_MOST_INPUTS = 3
_MOST_IN_LIST = 2
_NAMES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "long int": "int64",
    "int": "int32",
    "unsigned char": "uint8",
}
_NO_TENSOR = ("", "Scalar", "ScalarList", "TensorList", "GenericList", "Device", "Scalar[]")


def shapes(event: Mapping[str, Any]) -> str:
    """`64x512 512x10`; a list of tensors is `[64]*16`, or `[512x64 512 +2]` with the number of further ones."""
    inputs = event.get("args", {}).get("Input Dims", [])[:_MOST_INPUTS]
    return " ".join(_input(each) for each in inputs if each)


def dtype(event: Mapping[str, Any]) -> str:
    """The type of the first tensor, as torch calls it; nothing where there is none."""
    types = event.get("args", {}).get("Input type", [])
    first = next((kind for kind in types if kind not in _NO_TENSOR), "")
    return _NAMES.get(first, first)


def _input(sizes: Sequence[Any]) -> str:
    return _list([_one(each) for each in sizes]) if isinstance(sizes[0], list) else _one(sizes)


def _one(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "1"


def _list(tensors: Sequence[str]) -> str:
    if len(set(tensors)) == 1:
        return f"[{tensors[0]}]*{len(tensors)}"
    further = len(tensors) - _MOST_IN_LIST
    return f"[{' '.join(tensors[:_MOST_IN_LIST])}{f' +{further}' if further > 0 else ''}]"
