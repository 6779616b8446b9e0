"""Operators of made-up traces, as torch.profiler writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hotlap.probe.marks import STEP_MARK
from hotlap.timeline.operators import operators, read_operators

Event = dict[str, Any]


def call(name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    named = {"id": "External id", "dims": "Input Dims", "types": "Input type"}
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "tid": tid, "ts": ts, "dur": dur,
        "args": {named[key]: value for key, value in args.items()},
    }  # fmt: skip


def kernel(
    ts: float, dur: float, launched_by: int | None = None, name: str = "kernel", **other: str
) -> Event:
    args = {} if launched_by is None else {"External id": launched_by}
    return {
        "ph": "X", "cat": "kernel", "name": name, "tid": 7, "ts": ts, "dur": dur, "args": args, **other,
    }  # fmt: skip


def step_end(ts: float) -> Event:
    return {"ph": "X", "cat": "user_annotation", "name": STEP_MARK, "tid": 1, "ts": ts, "dur": 1}


def shares(events: list[Event]) -> dict[str, float]:
    ops = operators(events)
    assert ops is not None
    return {each.name: pytest.approx(each.share) for each in ops.top}


def test_an_operator_that_calls_others_has_what_they_leave():
    nested = [
        call("aten::linear", 0, 100),
        call("aten::addmm", 10, 60),
        call("aten::copy_", 20, 10),
        call("aten::relu", 100, 100),
    ]
    own = {
        "aten::linear": 40 / 200,
        "aten::addmm": 50 / 200,
        "aten::copy_": 10 / 200,
        "aten::relu": 100 / 200,
    }
    assert shares(nested) == own
    assert shares(nested[::-1]) == own, "the order in the trace does not matter"


def test_threads_do_not_hold_each_others_operators():
    assert shares([call("aten::mm", 0, 100, tid=1), call("aten::add", 10, 100, tid=2)]) == {
        "aten::mm": 0.5,
        "aten::add": 0.5,
    }


def test_one_operator_with_other_sizes_or_types_is_another_one():
    ops = operators(
        [
            call("aten::mm", 0, 30, dims=[[64, 8], [8, 8]], types=["float", "float"]),
            call("aten::mm", 40, 30, dims=[[64, 8], [8, 8]], types=["float", "float"]),
            call("aten::mm", 80, 40, dims=[[64, 8], [8, 16]], types=["c10::BFloat16", "c10::BFloat16"]),
            step_end(130),
        ]
    )
    assert [(each.shapes, each.dtype, each.calls) for each in ops.top] == [
        ("64x8 8x8", "float32", 2),
        ("64x8 8x16", "bfloat16", 1),
    ]


def test_calls_are_a_step_and_what_follows_the_last_whole_step_is_left_out():
    step = [call("aten::mm", at, 10) for at in (0, 20, 40, 60)]
    ops = operators([*step, step_end(35), step_end(75), call("aten::validation", 80, 1000)])
    assert ops.steps == 2
    assert [(each.name, each.calls) for each in ops.top] == [("aten::mm", 2)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "matmul"),
        ("aten::convolution_backward", "matmul"),
        ("aten::_scaled_dot_product_flash_attention", "matmul"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "matmul"),
        ("aten::native_layer_norm", "pointwise"),
        ("aten::gelu_backward", "pointwise"),
        ("aten::_foreach_sqrt", "pointwise"),
        ("aten::cummax", "neither"),
        ("aten::expand", "neither"),
        ("aten::embedding", "neither"),
    ],
)
def test_kinds_of_operators(name, kind):
    ops = operators([call(name, 0, 10)])
    assert (ops.matmul, ops.pointwise) == {"matmul": (1, 0), "pointwise": (0, 1), "neither": (0, 0)}[kind]


def test_low_precision_and_odd_sizes_are_shares_of_the_matmul_time():
    ops = operators(
        [
            call("aten::mm", 0, 30, dims=[[64, 64], [64, 64]], types=["c10::Half", "c10::Half"]),
            call("aten::mm", 40, 10, dims=[[64, 63], [63, 64]], types=["float", "float"]),
            call("aten::relu", 60, 60, dims=[[64, 63]], types=["float"]),
        ]
    )
    assert ops.low_precision == pytest.approx(0.75)
    assert ops.misaligned == pytest.approx(0.25)
    assert operators([call("aten::relu", 0, 10)]).low_precision is None, "no matmul, no precision of one"


def test_on_a_device_kernels_count_and_not_the_calls_that_queue_them():
    ops = operators(
        [
            call("aten::addmm", 0, 5, id=1, dims=[[8, 8]], types=["float"]),
            call("aten::relu", 5, 500, id=2, dims=[[8, 8]], types=["float"]),  # slow to launch, quick to run
            kernel(10, 60, launched_by=1),
            kernel(100, 20, launched_by=1),
            kernel(130, 10, launched_by=2),
            kernel(140, 10, name="triton_poi_fused_add_0"),
        ]
    )
    assert {each.name: each.share for each in ops.top} == {
        "aten::addmm": pytest.approx(0.8),
        "aten::relu": pytest.approx(0.1),
        "triton_poi_fused_add_0": pytest.approx(0.1),
    }
    assert ops.matmul == pytest.approx(0.8)


def test_an_idle_device_between_kernels():
    queueing = call("aten::mm", 0, 1, id=1)
    gap = [kernel(0, 10, 1), kernel(30, 10, 1)]
    overlapping = [kernel(0, 10, 1), kernel(5, 15, 1), kernel(10, 2, 1, cat="gpu_memcpy")]
    assert operators([queueing, *gap]).device_idle == pytest.approx(0.5)
    assert operators([queueing, *overlapping]).device_idle == pytest.approx(0.0)
    assert operators([call("aten::mm", 0, 1)]).device_idle is None, "no device is not an idle one"


def test_only_the_twenty_dearest_are_kept():
    ops = operators([call(f"aten::op{index}", index * 100, index + 1) for index in range(30)])
    assert [each.name for each in ops.top][:2] == ["aten::op29", "aten::op28"]
    assert len(ops.top) == 20


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"traceEvents": 3}', '{"traceEvents": []}', '{"traceEvents": [7]}']
)
def test_a_file_that_is_no_trace_is_no_error(tmp_path, content):
    path = tmp_path / "1.trace.json"
    assert read_operators(path) is None and read_operators(None) is None
    path.write_text(content)
    assert read_operators(path) is None


def test_a_trace_is_read_from_its_file(tmp_path):
    path = tmp_path / "1.trace.json"
    path.write_text(
        json.dumps({"traceEvents": [call("aten::mm", 0, 10), {"ph": "M", "name": "process_name"}]})
    )
    assert [each.name for each in read_operators(path).top] == ["aten::mm"]
