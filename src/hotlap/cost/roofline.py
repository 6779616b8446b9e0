"""How much of what the device can do a step uses: FLOP/s against its peak, and what bounds each stage.

Peaks are dense. Where a datasheet prints those of 2:4 sparsity, the figures here are half of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotlap.facts.summary import Summary
from hotlap.facts.timeline import AcceleratorFacts, Ops, Products, Roof, Stage, Timeline

GIVEN = "given"
MEASURED = "measured"
ANY = "any"  # a peak that holds for every precision
TF32 = "tf32"
_TERA, _GIGA = 1e12, 1e9
_LEAST_MOVING = 0.25  # of the time of operators beside the products that memory needs for their inputs
_STAGES = (Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER)


@dataclass(frozen=True)
class Datasheet:
    """A device by its name: dense TFLOP/s in 16 bits, in TF32 (float32 on tensor cores) and in float32, and GB/s."""

    name: str  # a regular expression for the end of what the device calls itself: a part of one (MIG) goes on
    half: float
    tf32: float | None
    single: float
    memory: float
    source: str
    bfloat16: bool = True


_NVIDIA = "https://www.nvidia.com/en-us/data-center/"
_GEFORCE = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_AMPERE = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
_AMD = "https://www.amd.com/en/products/accelerators/instinct/"
DATASHEETS = (
    Datasheet("H200", 989.5, 494.7, 66.9, 4800, _NVIDIA + "h200/"),
    Datasheet("H100 NVL", 835.5, 417.5, 60.0, 3900, _NVIDIA + "h100/"),
    Datasheet("H100 PCIe", 756.5, 378.0, 51.0, 2000, _NVIDIA + "h100/"),
    Datasheet("H100 80GB HBM3", 989.5, 494.7, 66.9, 3350, _NVIDIA + "h100/"),
    Datasheet("A100-SXM4-80GB", 312.0, 156.0, 19.5, 2039, _NVIDIA + "a100/"),
    Datasheet("A100 80GB PCIe", 312.0, 156.0, 19.5, 1935, _NVIDIA + "a100/"),
    Datasheet("A100-(SXM4|PCIE)-40GB", 312.0, 156.0, 19.5, 1555, _NVIDIA + "a100/"),
    Datasheet("A30", 165.0, 82.0, 10.3, 933, _NVIDIA + "products/a30-gpu/"),
    Datasheet("A40", 149.7, 74.8, 37.4, 696, _NVIDIA + "a40/"),
    Datasheet("A10", 125.0, 62.5, 31.2, 600, _NVIDIA + "products/a10-gpu/"),
    Datasheet("L40S", 362.0, 183.0, 91.6, 864, _NVIDIA + "l40s/"),
    Datasheet("L40", 181.0, 90.5, 90.5, 864, _NVIDIA + "l40/"),
    Datasheet("L4", 121.0, 60.0, 30.3, 300, _NVIDIA + "l4/"),
    Datasheet("V100-SXM2-(16|32)GB", 125.0, None, 15.7, 900, _NVIDIA + "v100/", bfloat16=False),
    Datasheet("V100-PCIE-(16|32)GB", 112.0, None, 14.0, 900, _NVIDIA + "v100/", bfloat16=False),
    Datasheet("T4", 65.0, None, 8.1, 320, _NVIDIA + "tesla-t4/", bfloat16=False),
    Datasheet("GeForce RTX 4090", 165.2, 82.6, 82.6, 1008, _GEFORCE),
    Datasheet("GeForce RTX 3090", 71.0, 35.6, 35.6, 936, _AMPERE),
    Datasheet("MI300X", 1307.4, 653.7, 163.4, 5300, _AMD + "mi300/mi300x.html"),
)


def roof_of(
    accelerator: AcceleratorFacts | None, cpu_flops: Mapping[str, float], cpu_bandwidth: float | None
) -> Roof | None:
    """That of the device by its name, or what was measured of the CPU; None where neither is known."""
    if accelerator is None:
        return Roof(cpu_flops, cpu_bandwidth, MEASURED) if cpu_flops else None
    sheet = next((each for each in DATASHEETS if re.search(rf"\b({each.name})$", accelerator.name)), None)
    if sheet is None:
        return None
    flops = {"float16": sheet.half * _TERA, "float32": sheet.single * _TERA}
    if sheet.bfloat16:
        flops["bfloat16"] = sheet.half * _TERA
    if sheet.tf32 is not None:
        flops[TF32] = sheet.tf32 * _TERA
    return Roof(flops, sheet.memory * _GIGA, sheet.source)


def with_given(roof: Roof | None, flops: float) -> Roof:
    """The user knows the peak better; the bandwidth is that of the table, where the device is in it."""
    return Roof({ANY: flops}, roof.bandwidth if roof is not None else None, GIVEN)


def compute_of(timeline: Timeline, summary: Summary) -> dict[str, Any] | None:
    """What the report shows: FLOPs of each stage and of the step, and how far they are from the roof. None where
    nothing was counted."""
    ops, step_ms = timeline.ops, summary.step_ms
    if ops is None or not ops.products or not step_ms:
        return None
    peaks = _Peaks(timeline.roof, tf32=timeline.runtime.tf32)
    stages = []
    for stage in _STAGES:
        products = [each for each in ops.products if each.stage is stage]
        if products:
            # Without events on the device, what the host took for a stage is no time of the work.
            timed = not timeline.on_accelerator or timeline.device is not None
            stages.append(
                {"stage": stage.value, **_figures(products, summary.ms(stage) / 1e3 if timed else None, peaks),
                 "bound": _bound(ops, stage, products, peaks)}
            )  # fmt: skip
    return {
        "stages": stages,
        "step": _figures(ops.products, step_ms / 1e3, peaks),
        "compiled": ops.compiled,
        "steps": ops.steps,
        "roof": peaks.shown(ops.products),
    }


class _Peaks:
    def __init__(self, roof: Roof | None, *, tf32: bool) -> None:
        self._roof, self._tf32 = roof, tf32

    def of(self, product: Products) -> float | None:
        known = self._roof.flops if self._roof is not None else {}
        if product.dtype == "float32" and self._tf32 and TF32 in known:
            return known[TF32]
        return known.get(product.dtype, known.get(ANY))

    @property
    def bandwidth(self) -> float | None:
        return self._roof.bandwidth if self._roof is not None else None

    def ideal_s(self, product: Products, *, moved: bool = False) -> float | None:
        """The least time that the device needs to compute it, and with `moved` to bring it what it reads."""
        peak, bandwidth = self.of(product), self.bandwidth
        if not peak:
            return None
        return max(product.flops / peak, product.bytes / bandwidth if moved and bandwidth else 0.0)

    def shown(self, products: tuple[Products, ...]) -> dict[str, Any] | None:
        """The peak of the precision that most is computed in."""
        if self._roof is None:
            return None
        by_type: dict[str, float] = {}
        for each in products:
            by_type[each.dtype] = by_type.get(each.dtype, 0.0) + each.flops
        most = max(by_type, key=by_type.__getitem__)
        peak = self.of(next(each for each in products if each.dtype == most))
        return {
            "dtype": most, "flops_per_s": peak, "bandwidth": self.bandwidth, "source": self._roof.source,
        }  # fmt: skip


def _figures(
    products: list[Products] | tuple[Products, ...], seconds: float | None, peaks: _Peaks
) -> dict[str, Any]:
    """`mfu` is the share of the peak over all of that time, `products_at_roof` over the products' own."""
    flops, own_s = sum(each.flops for each in products), sum(each.seconds for each in products)
    ideal = _sum([peaks.ideal_s(each) for each in products])
    roofed = _sum([peaks.ideal_s(each, moved=True) for each in products])
    return {
        "flops": flops,
        "flops_per_s": flops / seconds if seconds else None,
        "mfu": ideal / seconds if ideal is not None and seconds else None,
        "products_at_roof": roofed / own_s if roofed is not None and own_s else None,
    }


def _sum(values: list[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


def _bound(ops: Ops, stage: Stage, products: list[Products], peaks: _Peaks) -> str | None:
    """What most of the operators' time goes to: `compute` (products with enough FLOPs for each byte), `memory`, or
    `calls` (operators that neither compute nor move much). None where the roof is not known."""
    total, bandwidth = ops.stage_s.get(stage, 0.0), peaks.bandwidth
    if not total or not bandwidth or any(peaks.of(each) is None for each in products):
        return None
    computing = [each for each in products if each.flops / (peaks.of(each) or 1) >= each.bytes / bandwidth]
    computing_s = sum(each.seconds for each in computing)
    if computing_s > total / 2:
        return "compute"
    moved = sum(each.bytes for each in products if each not in computing) + ops.moved_bytes.get(stage, 0.0)
    return "memory" if moved / bandwidth >= _LEAST_MOVING * (total - computing_s) else "calls"
