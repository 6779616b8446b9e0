"""FLOPs of real steps under torch.profiler, against counts by hand."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from hotlap.facts.timeline import Stage
from hotlap.probe.marks import STEP_MARK
from hotlap.timeline.operators import operators

pytestmark = pytest.mark.runs

WITHIN = 0.01
STEPS = 2


@pytest.fixture(autouse=True)
def _silent(monkeypatch):
    """The profiler reads this once in a process: another test's output must stay its own."""
    monkeypatch.setenv("KINETO_LOG_LEVEL", "6")


def profiled(tmp_path, model, batch, steps=STEPS):
    """What is read off a trace of these training steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    path = tmp_path / "trace.json"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        for _ in range(steps):
            out = model(batch)
            (out[0] if isinstance(out, tuple) else out).float().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.profiler.record_function(STEP_MARK):
                pass
        batch.flatten()[:1] @ batch.flatten()[:1]  # of a step that is not made
    profiler.export_chrome_trace(str(path))
    return operators(json.loads(path.read_text())["traceEvents"])


def flops(ops, stage):
    return sum(each.flops for each in ops.products if each.stage is stage)


BATCH, LENGTH, WIDTH, HEADS, INNER = 4, 32, 64, 4, 256


class Block(nn.Module):
    """A transformer block with torch's own attention."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        q, k, v = (
            each.reshape(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
            for each in self.qkv(self.before(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


def test_a_transformer_block(tmp_path):
    ops = profiled(tmp_path, Block(), torch.randn(BATCH, LENGTH, WIDTH))
    linear = 2 * BATCH * LENGTH * (3 * WIDTH * WIDTH + WIDTH * WIDTH + 2 * WIDTH * INNER)
    attention = 2 * 2 * BATCH * LENGTH * LENGTH * WIDTH  # scores, and the sum of values
    assert flops(ops, Stage.FORWARD) == pytest.approx(linear + attention, rel=WITHIN)
    again = attention / 2  # the scores, a second time
    assert flops(ops, Stage.BACKWARD) == pytest.approx(2 * linear + 2 * attention + again, rel=WITHIN)
    assert {each.dtype for each in ops.products} == {"float32"}


def test_a_convolutional_net(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, groups=4),
        nn.Conv2d(32, 8, 3, dilation=2, padding="same"),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(),
        nn.Linear(4 * 28 * 28, 10),
    )
    ops = profiled(tmp_path, model, torch.randn(BATCH, 3, 32, 32))
    first = 2 * BATCH * 16 * (16 * 16) * 3 * 25
    second = 2 * BATCH * 32 * (14 * 14) * (16 // 4) * 9
    third = 2 * BATCH * 8 * (14 * 14) * 32 * 9
    transposed = 2 * BATCH * (14 * 14) * 8 * 4 * 4
    linear = 2 * BATCH * 4 * 28 * 28 * 10
    forward = first + second + third + transposed + linear
    assert flops(ops, Stage.FORWARD) == pytest.approx(forward, rel=WITHIN)
    assert flops(ops, Stage.BACKWARD) == pytest.approx(
        2 * forward - first, rel=WITHIN
    )  # pictures want no gradient


@pytest.mark.parametrize(
    ("dtype", "batch_first"), [(torch.float32, True), (torch.float32, False), (torch.float64, True)]
)
def test_an_lstm(tmp_path, dtype, batch_first):
    """Fused for a whole layer, and where that is not to be had (float64), a product for each step."""
    hidden = 48
    model = nn.LSTM(WIDTH, hidden, num_layers=2, bidirectional=True, batch_first=batch_first, dtype=dtype)
    batch = torch.randn(BATCH, LENGTH, WIDTH, dtype=dtype, requires_grad=True)
    ops = profiled(tmp_path, model, batch)
    each = 4 * hidden * (WIDTH + hidden) + 4 * hidden * (2 * hidden + hidden)
    forward = 2 * BATCH * LENGTH * 2 * each
    assert flops(ops, Stage.FORWARD) == pytest.approx(forward, rel=WITHIN)
    assert flops(ops, Stage.BACKWARD) == pytest.approx(2 * forward, rel=WITHIN)


def test_torchs_own_counter_agrees(tmp_path):
    from torch.utils.flop_counter import FlopCounterMode

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        ops = profiled(tmp_path, Block(), torch.randn(BATCH, LENGTH, WIDTH), steps=1)
        with FlopCounterMode(display=False) as counter:
            Block()(torch.randn(BATCH, LENGTH, WIDTH)).sum().backward()
    assert sum(each.flops for each in ops.products) == pytest.approx(counter.get_total_flops(), rel=WITHIN)


def test_precisions_are_counted_apart(tmp_path):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.full = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, INNER)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                x = self.low(x)
            return self.full(x.float())

    ops = profiled(tmp_path, Mixed(), torch.randn(BATCH, WIDTH))
    by_type = {}
    for each in ops.products:
        if each.stage is Stage.FORWARD:
            by_type[each.dtype] = by_type.get(each.dtype, 0) + each.flops
    assert by_type == {
        "bfloat16": pytest.approx(2 * BATCH * WIDTH * WIDTH),
        "float32": pytest.approx(2 * BATCH * WIDTH * INNER),
    }


def test_a_compiled_model_is_told(tmp_path):
    """Its products are counted as far as they are still operators: here all of them, since nothing fuses them."""
    torch.compiler.reset()
    model = torch.compile(
        nn.Sequential(nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Linear(INNER, 8)), backend="aot_eager"
    )
    model(torch.randn(BATCH, WIDTH)).sum().backward()  # what the compiler traces would count as well
    ops = profiled(tmp_path, model, torch.randn(BATCH, WIDTH))
    forward = 2 * BATCH * (WIDTH * INNER + INNER * 8)
    assert ops.compiled
    assert flops(ops, Stage.FORWARD) == pytest.approx(forward, rel=WITHIN)
    assert flops(ops, Stage.BACKWARD) == pytest.approx(2 * forward - 2 * BATCH * WIDTH * INNER, rel=WITHIN)
    torch.compiler.reset()


def test_bytes_and_time_of_products(tmp_path):
    ops = profiled(tmp_path, nn.Linear(512, 256, bias=False), torch.randn(128, 512))
    (forward,) = [each for each in ops.products if each.stage is Stage.FORWARD]
    assert forward.bytes == 4 * (128 * 512 + 512 * 256 + 128 * 256)
    assert 0 < forward.seconds <= ops.stage_s[Stage.FORWARD]
    assert set(ops.stage_s) == {Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER}
    assert not ops.compiled


def test_what_a_step_multiplies_in_its_optimizer_is_the_optimizers():
    rows = [
        _event("Optimizer.step#Muon.step", 0, 100, cat="user_annotation"),
        _event("aten::mm", 10, 50, dims=[[64, 64], [64, 64]]),
        _event("autograd::engine::evaluate_function: MmBackward0", 200, 100),
        _event("aten::mm", 210, 50, dims=[[64, 64], [64, 64]]),
        _event("Torch-Compiled Region: 0/0", 400, 10),
    ]
    ops = operators(rows)
    assert [each.stage for each in ops.products] == [Stage.BACKWARD, Stage.OPTIMIZER]
    assert ops.compiled


def test_a_devices_kernels_are_the_time_of_those_that_launched_them():
    rows = [
        _event("aten::mm", 0, 5, number=1, dims=[[64, 64], [64, 64]]),
        _event("aten::copy_", 1, 2, number=2, dims=[[64, 64], [64, 64]]),  # called by the product
        _event("aten::relu", 10, 5, number=3, dims=[[64, 64]]),
        *(_event("kernel", 100 * number, 30, cat="kernel", number=number) for number in (1, 2, 3)),
    ]
    ops = operators(rows)
    (product,) = ops.products
    assert product.seconds == pytest.approx(60e-6)
    assert ops.stage_s == {Stage.FORWARD: pytest.approx(90e-6)}
    assert ops.moved_bytes == {Stage.FORWARD: 4 * 64 * 64}


def _event(name, ts, dur, cat="cpu_op", number=0, dims=()):
    args = {"External id": number, "Input Dims": list(dims), "Input type": ["float"] * len(dims)}
    return {"ph": "X", "cat": cat, "name": name, "tid": 1, "ts": ts, "dur": dur, "args": args}
