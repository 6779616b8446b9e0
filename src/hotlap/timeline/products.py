"""Counts the FLOPs of a step from the operators' sizes in a torch.profiler trace, by stage and precision.

Counted are matrix products, convolutions, attention and recurrent layers: a multiplication and an addition are two
FLOPs. The rest of a step computes little. As in torch.utils.flop_counter, causal attention counts in full, and what is
computed a second time (a checkpointed forward pass) counts twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log2, prod
from typing import Any, NamedTuple

from hotlap.facts.timeline import Products, Stage

Event = Mapping[str, Any]
_BACKWARD, _OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step"
_COMPILED = ("Torch-Compiled Region", "CompiledFunction")
_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "c10::complex<float>": 8, "unsigned char": 1,
    "signed char": 1, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
}  # fmt: skip


class Computed(NamedTuple):
    """Of one operator: FLOPs, and the elements that it reads and writes at least."""

    flops: float
    elements: float


@dataclass(frozen=True)
class Counted:
    """What the steps of a trace compute; seconds are of one step."""

    products: tuple[Products, ...]
    seconds: Mapping[Stage, float]  # of all operators
    moved_bytes: Mapping[Stage, float]  # at least, by operators that are none of the products
    compiled: bool  # compiled code has kernels that do not say what they compute


def count(events: Sequence[Event], kernels: Sequence[tuple[Any, float]], until: float, steps: int) -> Counted:
    """Of the operators that begin until a moment. `kernels` are (launching operator's id, microseconds) of a device;
    without any, operators take their own time on the host."""
    tally = _Tally()
    walk = _walked([each for each in events if each.get("ph") == "X" and each["ts"] <= until])
    launched: dict[Any, tuple[Stage, Event | None]] = {}
    for call in walk:
        tally.compiled |= call.event["name"].startswith(_COMPILED)
        if call.event.get("cat") != "cpu_op":
            continue
        launched[call.event.get("args", {}).get("External id")] = call.stage, call.product
        if call.product is call.event:
            tally.add_product(call)
        elif call.product is None and not call.has_calls:
            tally.moved[call.stage] += _input_bytes(call.event)
        if not kernels:
            tally.add_time(call.stage, call.product, call.own_us)
    for launcher, spent in kernels:
        if launcher in launched:
            tally.add_time(*launched[launcher], spent)
    return tally.per_step(steps)


@dataclass
class _Call:
    event: Event
    stage: Stage
    product: Event | None  # itself or one that called it
    own_us: float
    has_calls: bool = False


def _walked(events: Sequence[Event]) -> Iterator[_Call]:
    """Every call with the stage and the product that it belongs to."""
    calls: list[_Call] = []
    open_calls: list[_Call] = []
    for event in sorted(events, key=lambda each: (str(each["tid"]), each["ts"], -each["dur"])):
        if event.get("cat") not in ("cpu_op", "user_annotation"):
            continue
        while open_calls and not holds(open_calls[-1].event, event):
            open_calls.pop()
        outer = open_calls[-1] if open_calls else None
        if outer is not None:
            outer.own_us -= event["dur"]
            outer.has_calls |= event["name"].startswith("aten::") and event["name"] not in _NO_WORK
        product = outer.product if outer is not None else None
        own = event if product is None and event["name"].removeprefix("aten::") in _WORK else product
        call = _Call(event, _stage(event["name"], outer), own, float(event["dur"]))
        calls.append(call)
        open_calls.append(call)
    yield from calls


def holds(outer: Event, inner: Event) -> bool:
    """Whether one call in a trace was made within another."""
    return bool(outer["tid"] == inner["tid"] and inner["ts"] < outer["ts"] + outer["dur"])


def _stage(name: str, outer: _Call | None) -> Stage:
    if name.startswith(_BACKWARD):
        return Stage.BACKWARD
    if name.startswith(_OPTIMIZER):
        return Stage.OPTIMIZER
    return outer.stage if outer is not None else Stage.FORWARD


@dataclass
class _Tally:
    rows: dict[tuple[Stage, str, int], list[float]] = field(
        default_factory=lambda: defaultdict(lambda: [0.0] * 3)
    )
    seconds: dict[Stage, float] = field(default_factory=lambda: defaultdict(float))
    moved: dict[Stage, float] = field(default_factory=lambda: defaultdict(float))
    row_of: dict[int, list[float]] = field(default_factory=dict)
    compiled: bool = False

    def add_product(self, call: _Call) -> None:
        try:
            work = _WORK[call.event["name"].removeprefix("aten::")](_Inputs(call.event))
        except (IndexError, ValueError, TypeError):
            return  # a trace without sizes, or with those of another release of torch
        if work is None or work.flops <= 0:
            return
        kind = _kind(call.event)
        size = work.elements * _BYTES.get(kind, 4)
        row = self.rows[call.stage, kind, floor(log2(work.flops / size))]
        row[0] += work.flops
        row[1] += size
        self.row_of[id(call.event)] = row

    def add_time(self, stage: Stage, product: Event | None, us: float) -> None:
        self.seconds[stage] += max(0.0, us) / 1e6
        row = self.row_of.get(id(product)) if product is not None else None
        if row is not None:
            row[2] += max(0.0, us) / 1e6

    def per_step(self, steps: int) -> Counted:
        products = tuple(
            Products(stage, _NAMES.get(kind, kind), *(value / steps for value in row))
            for (stage, kind, _), row in sorted(self.rows.items())
        )
        return Counted(
            products,
            {stage: each / steps for stage, each in self.seconds.items()},
            {stage: each / steps for stage, each in self.moved.items()},
            self.compiled,
        )


def _kind(event: Event) -> str:
    """The profiler's name of the precision: that of the first tensor that has sizes."""
    args = event.get("args", {})
    for sizes, kind in zip(args.get("Input Dims", ()), args.get("Input type", ()), strict=False):
        if sizes and kind in _NAMES:
            return str(kind)
    return "float"


def _input_bytes(event: Event) -> float:
    """Of all tensors that are handed in; of tables that are looked up in, what is looked up."""
    if event["name"] in _NO_WORK or event["name"] in _LOOKED_UP:
        return 0.0
    args = event.get("args", {})
    pairs = zip(args.get("Input Dims", ()), args.get("Input type", ()), strict=False)
    return sum(_elements(sizes) * _BYTES.get(kind, 4) for sizes, kind in pairs if sizes)


def _elements(sizes: Sequence[Any]) -> float:
    if sizes and isinstance(sizes[0], list):
        return sum(map(_elements, sizes))
    return float(prod(sizes))


class _Inputs:
    """Sizes and values of an operator's inputs, by their place."""

    def __init__(self, event: Event) -> None:
        args = event.get("args", {})
        self.sizes: Sequence[list[Any]] = args.get("Input Dims", ())
        self._values: Sequence[str] = args.get("Concrete Inputs", ())

    def numbers(self, place: int) -> list[int]:
        text = self._values[place].strip("[]") if place < len(self._values) else ""
        return [int(each) for each in text.split(",") if each.strip()]

    def switches(self, place: int) -> list[bool]:
        text = self._values[place].strip("[]") if place < len(self._values) else ""
        return [each.strip() == "True" for each in text.split(",") if each.strip()]


def _matrices(first: int) -> Callable[[_Inputs], Computed | None]:
    """The product of two matrices, or of two stacks of them, the first of which is the input in this place."""

    def work(inputs: _Inputs) -> Computed | None:
        if len(inputs.sizes) < first + 2 or not inputs.sizes[first] or not inputs.sizes[first + 1]:
            return None
        left, right = inputs.sizes[first], inputs.sizes[first + 1]
        result = prod(left[:-1]) * (right[-1] if len(right) > 1 else 1)
        return Computed(2.0 * result * left[-1], prod(left) + prod(right) + result)

    return work


def _convolution(inputs: _Inputs) -> Computed | None:
    given, weight = inputs.sizes[0], inputs.sizes[1]
    if inputs.switches(6) == [True]:
        places = prod(given[2:])  # a transposed one spreads each place of its input over the weight's size
        return Computed(2.0 * given[0] * places * prod(weight), prod(given) + prod(weight))
    sizes = zip(given[2:], weight[2:], *(inputs.numbers(place) for place in (3, 4, 5)), strict=True)
    places = prod(
        (size + 2 * pad - gap * (width - 1) - 1) // stride + 1 for size, width, stride, pad, gap in sizes
    )
    written = given[0] * weight[0] * places
    return Computed(2.0 * given[0] * places * prod(weight), prod(given) + prod(weight) + written)


def _convolution_backward(inputs: _Inputs) -> Computed | None:
    gradient, given, weight = inputs.sizes[:3]
    places = prod((given if inputs.switches(7) == [True] else gradient)[2:])
    wanted = sum(inputs.switches(10)[:2] or (True, True))  # of the input, of the weight
    one = 2.0 * given[0] * places * prod(weight)
    return Computed(one * wanted, (prod(gradient) + prod(given) + prod(weight)) * wanted)


def _attention(inputs: _Inputs) -> Computed | None:
    query, key, value = inputs.sizes[:3]
    pairs = prod(query[:-1]) * key[-2]
    return Computed(
        2.0 * pairs * (query[-1] + value[-1]),
        prod(query) + prod(key) + prod(value) + prod(query[:-1]) * value[-1],
    )


def _attention_backward(inputs: _Inputs) -> Computed | None:
    """The scores are computed again; then come the gradients of values, scores, queries and keys."""
    _, query, key, value = inputs.sizes[:4]
    pairs = prod(query[:-1]) * key[-2]
    return Computed(
        2.0 * pairs * (3 * query[-1] + 2 * value[-1]),
        3.0 * prod(query) + 2 * prod(key) + 2 * prod(value),
    )


def _recurrent(times: int, *, in_list: bool) -> Callable[[_Inputs], Computed | None]:
    """Every row of every step meets each weight matrix; `times` is 3 products in all, of which backward has 2."""

    def work(inputs: _Inputs) -> Computed | None:
        given = inputs.sizes[0]
        weights = inputs.sizes[1] if in_list else inputs.sizes[1:3]
        matrices = [each for each in weights if len(each) == 2]
        weight = sum(map(prod, matrices))
        hidden = sum(each[-1] for each in matrices)
        rows = prod(given[:-1])
        return Computed(2.0 * times * rows * weight, times * (prod(given) + weight + rows * hidden))

    return work


_ATTENTIONS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention",
               "fused_attention_overrideable")  # fmt: skip
_WORK: Mapping[str, Callable[[_Inputs], Computed | None]] = {
    "mm": _matrices(0),
    "bmm": _matrices(0),
    "mv": _matrices(0),
    "dot": _matrices(0),
    "_scaled_mm": _matrices(0),
    "addmm": _matrices(1),
    "_addmm_activation": _matrices(1),
    "addmv": _matrices(1),
    "baddbmm": _matrices(1),
    "addmm_": _matrices(1),
    "addbmm": _matrices(1),
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "mkldnn_rnn_layer": _recurrent(1, in_list=False),
    "mkldnn_rnn_layer_backward": _recurrent(2, in_list=False),
    "_cudnn_rnn": _recurrent(1, in_list=True),
    "_cudnn_rnn_backward": _recurrent(2, in_list=True),
    **{f"_scaled_dot_product_{name}": _attention for name in _ATTENTIONS},
    **{f"_scaled_dot_product_{name}_backward": _attention_backward for name in _ATTENTIONS},
}
"""By the operator's name; what one of these calls inside belongs to it."""

_NO_WORK = frozenset(
    f"aten::{name}"
    for name in (
        *(
            "empty",
            "empty_like",
            "empty_strided",
            "new_empty",
            "new_empty_strided",
            "zeros",
            "ones",
            "scalar_tensor",
        ),
        *(
            "view",
            "_unsafe_view",
            "_reshape_alias",
            "reshape",
            "as_strided",
            "t",
            "transpose",
            "permute",
            "numpy_T",
        ),
        *(
            "expand",
            "expand_as",
            "select",
            "slice",
            "narrow",
            "unbind",
            "split",
            "chunk",
            "squeeze",
            "unsqueeze",
        ),
        *("flatten", "unflatten", "detach", "detach_", "alias", "lift_fresh", "resize_", "set_", "item"),
        *("_local_scalar_dense", "is_nonzero", "result_type", "resolve_conj", "resolve_neg"),
    )
)
"""They make room, look at the same memory in another way, or read one value."""

_LOOKED_UP = frozenset(
    f"aten::{name}" for name in ("embedding", "index", "index_select", "gather", "take", "index_put_")
)

_NAMES = {
    "float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16",
    "c10::complex<float>": "complex64", "c10::Float8_e4m3fn": "float8", "c10::Float8_e5m2": "float8",
}  # fmt: skip
