"""Peaks by a device's name, and how far steps are from them."""

from __future__ import annotations

import pytest

from hotlap.cost.roofline import DATASHEETS, compute_of, roof_of, with_given
from hotlap.facts.summary import StageSummary, Summary
from hotlap.facts.timeline import (
    AcceleratorFacts,
    DeviceTime,
    Ending,
    ModelFacts,
    Ops,
    ProbeCost,
    Products,
    Roof,
    Runtime,
    Stage,
    Steps,
    Timeline,
    Warmup,
)

TERA = 1e12
ROOF = Roof({"float32": 1 * TERA, "bfloat16": 4 * TERA}, 100e9, "measured")
FORWARD_MS, BACKWARD_MS, STEP_MS = 2.0, 4.0, 10.0


def card(name):
    return roof_of(AcceleratorFacts("cuda", name), {}, None)


@pytest.mark.parametrize(
    ("name", "bfloat16", "bandwidth"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5, 3350),
        ("NVIDIA H100 PCIe", 756.5, 2000),
        ("NVIDIA H100 NVL", 835.5, 3900),
        ("NVIDIA H200", 989.5, 4800),
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA A100-SXM4-40GB", 312, 1555),
        ("NVIDIA A100-PCIE-40GB", 312, 1555),
        ("NVIDIA A100 80GB PCIe", 312, 1935),
        ("NVIDIA A10", 125, 600),
        ("NVIDIA L4", 121, 300),
        ("NVIDIA L40", 181, 864),
        ("NVIDIA L40S", 362, 864),
        ("NVIDIA GeForce RTX 4090", 165.2, 1008),
        ("AMD Instinct MI300X", 1307.4, 5300),
    ],
)
def test_devices_by_their_names(name, bfloat16, bandwidth):
    roof = card(name)
    assert roof.flops["bfloat16"] == roof.flops["float16"] == pytest.approx(bfloat16 * TERA)
    assert roof.bandwidth == pytest.approx(bandwidth * 1e9)
    assert roof.source.startswith("https://")


@pytest.mark.parametrize(
    "name",
    [
        "clock device",
        "NVIDIA A10G",
        "NVIDIA H100 96GB HBM2e",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GB200",
    ],
)
def test_a_device_that_is_not_in_the_table_has_no_figure(name):
    assert card(name) is None


def test_devices_before_ampere_have_no_bfloat16_and_no_tf32():
    assert set(card("Tesla V100-SXM2-16GB").flops) == set(card("Tesla T4").flops) == {"float16", "float32"}


def test_no_peak_of_the_table_is_below_that_of_a_wider_precision():
    for each in DATASHEETS:
        assert each.half > (each.tf32 or each.single) >= each.single, each.name


def test_the_cpus_own_is_measured_and_a_users_figure_goes_first():
    assert roof_of(None, {"float32": 1e11}, 2e10) == Roof({"float32": 1e11}, 2e10, "measured")
    assert roof_of(None, {}, None) is None
    assert with_given(None, 5e12) == Roof({"any": 5e12}, None, "given")
    assert with_given(card("NVIDIA L4"), 5e12).bandwidth == 300e9


def test_shares_of_the_peak_are_by_stage_and_by_step():
    # 1 GFLOP in float32 takes 1 ms at the peak; 4 GFLOP in bfloat16 take 1 ms.
    seen = compute_of(*run(forward(1e9, seconds=1.6e-3), backward(4e9, dtype="bfloat16", seconds=2e-3)))
    by_stage = {each["stage"]: each for each in seen["stages"]}
    assert by_stage["forward"]["mfu"] == pytest.approx(1 / FORWARD_MS)
    assert by_stage["forward"]["flops_per_s"] == pytest.approx(1e9 / (FORWARD_MS / 1e3))
    assert by_stage["forward"]["products_at_roof"] == pytest.approx(1 / 1.6)
    assert by_stage["backward"]["mfu"] == pytest.approx(1 / BACKWARD_MS)
    assert seen["step"]["flops"] == 5e9
    assert seen["step"]["mfu"] == pytest.approx(2 / STEP_MS)
    assert seen["roof"]["dtype"] == "bfloat16" and seen["roof"]["flops_per_s"] == 4 * TERA


def test_products_with_few_flops_for_each_byte_are_held_against_memory():
    # 0.1 ms of computing, but 100 MB take 1 ms.
    seen = compute_of(*run(forward(1e8, moved=1e8, seconds=2e-3)))
    (stage,) = seen["stages"]
    assert stage["products_at_roof"] == pytest.approx(0.5)
    assert stage["bound"] == "memory"


@pytest.mark.parametrize(
    ("product_s", "other_s", "moved", "bound"),
    [
        (3e-3, 1e-3, 0.0, "compute"),
        (1e-3, 3e-3, 2e8, "memory"),  # 2 ms at 100 GB/s
        (1e-3, 3e-3, 1e6, "calls"),  # 0.01 ms: they are many and small
    ],
)
def test_what_bounds_a_stage(product_s, other_s, moved, bound):
    timeline, summary = run(forward(1e9, seconds=product_s), other_s=other_s, moved=moved)
    assert compute_of(timeline, summary)["stages"][0]["bound"] == bound


def test_without_a_roof_there_are_flops_and_rates_alone():
    seen = compute_of(*run(forward(1e9), roof=None))
    assert seen["roof"] is None
    assert seen["step"]["flops_per_s"] == pytest.approx(1e9 / (STEP_MS / 1e3))
    assert seen["step"]["mfu"] is None and seen["stages"][0]["bound"] is None


def test_one_precision_without_a_peak_is_no_mfu_and_no_zero():
    assert compute_of(*run(forward(1e9), forward(1e9, dtype="float8")))["step"]["mfu"] is None


def test_float32_is_held_against_tf32_where_that_is_on():
    roof = card("NVIDIA A100-SXM4-80GB")
    on, off = (compute_of(*run(forward(1e12), roof=roof, tf32=each))["step"]["mfu"] for each in (True, False))
    assert off == pytest.approx(8 * on)


def test_a_stage_on_a_device_has_a_rate_only_where_events_timed_it():
    model = ModelFacts("Net", 1, 1, None, devices=("cuda",))
    without = compute_of(*run(forward(1e9), model=model))
    assert without["stages"][0]["flops_per_s"] is None and without["step"]["mfu"] is not None
    timed = compute_of(*run(forward(1e9), model=model, device=DeviceTime(0.9, {})))
    assert timed["stages"][0]["flops_per_s"] is not None


def test_nothing_was_counted():
    assert compute_of(*run()) is None


def forward(flops, *, dtype="float32", moved=1e3, seconds=1e-3):
    return Products(Stage.FORWARD, dtype, flops, moved, seconds)


def backward(flops, *, dtype="float32", moved=1e3, seconds=1e-3):
    return Products(Stage.BACKWARD, dtype, flops, moved, seconds)


def run(*products, roof=ROOF, other_s=0.0, moved=0.0, tf32=False, **changes):
    """A timeline of which these products were counted, and its summary."""
    times = {
        stage: sum(each.seconds for each in products if each.stage is stage) + other_s for stage in Stage
    }
    ops = Ops(products=products, stage_s=times, moved_bytes={Stage.FORWARD: moved}, steps=3)
    timeline = Timeline(
        rank=0, world=1, pid=1, ending=Ending.WINDOW, steps=Steps((), (), {}, (), (), (), ()), steady_from=0,
        warmup=Warmup(0.0, 0, 0.0), runtime=Runtime(threads=1, tf32=tf32), probe=ProbeCost(0.0, 0.0, 0.0, 0), ops=ops,
        roof=roof, **changes,
    )  # fmt: skip
    stages = {
        stage: StageSummary(ms, ms / STEP_MS, ms, ms)
        for stage, ms in ((Stage.FORWARD, FORWARD_MS), (Stage.BACKWARD, BACKWARD_MS))
    }
    return timeline, Summary(n=10, seconds=10 * STEP_MS / 1e3, stages=stages)
