"""What was measured after the window, in every output and in both languages."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from hotlap.facts.timeline import Operator, Ops, Products, Roof, Stage
from hotlap.report.locale import Phrases
from hotlap.report.renderers.html import Html
from hotlap.report.renderers.json import Json
from hotlap.report.renderers.markdown import Markdown
from hotlap.report.renderers.terminal import Terminal
from hotlap.report.sections import build

OPS = Ops(
    top=(
        Operator("aten::addmm", "512 64x512 512x512", "bfloat16", 0.62, 3.0),
        Operator("aten::stack", "[64]*16", "", 0.2, 0.5),
        Operator("aten::empty", "", "", 0.0004, 40.0),
    ),
    pointwise=0.31,
    matmul=0.62,
    low_precision=0.97,
    steps=3,
)
COUNTED = replace(
    OPS,
    products=(
        Products(Stage.FORWARD, "float32", 3e9, 1e6, 9e-3),
        Products(Stage.BACKWARD, "float32", 6e9, 2e6, 15e-3),
    ),
    stage_s={Stage.FORWARD: 10e-3, Stage.BACKWARD: 20e-3},
)
FREE = {"free_input_s": 0.012, "free_input_range_s": (0.011, 0.0125)}


@pytest.fixture
def seen(timeline_of):
    """30 ms of input and 12 ms of computing a step."""
    return timeline_of({"data": 30.0, "forward": 12.0}, ops=OPS, **FREE)


def sections(view, lang="en"):
    return {section.id: section for section in build(view, Phrases(lang))}


def test_neither_section_where_nothing_was_asked_for(timeline_of, view_of):
    view = view_of(timeline_of({"data": 30.0, "forward": 12.0}))
    assert view["free_input"] is None and view["ops"] is None
    assert not {"free_input", "operators"} & set(sections(view))


def test_the_ceiling_is_a_measured_figure_with_its_interval(seen, view_of):
    view = view_of(seen)
    assert view["free_input"]["step_ms"] == pytest.approx(12, rel=0.02)
    assert view["free_input"]["gain"] == pytest.approx(42 / 12 - 1, rel=0.02)
    section = sections(view)["free_input"]
    assert re.fullmatch(
        r"With free input a step would take 1\d\.\d ms instead of 4\d\.\d ms: \+2\d\d % throughput at most "
        r"\(\+2\d\d % to \+2\d\d %\)\.",
        section.sentences[0],
    )
    assert section.notes[0].startswith("Measured in steps after the window")


@pytest.mark.parametrize(
    ("free_ms", "said"), [(41.9, "Input does not hold this run back."), (90.0, "it says nothing about input")]
)
def test_a_ceiling_that_is_none_and_one_that_was_disturbed(timeline_of, view_of, free_ms, said):
    timeline = timeline_of({"data": 0.1, "forward": 41.9}, free_input_s=free_ms / 1e3)
    (sentence,) = sections(view_of(timeline))["free_input"].sentences
    assert said in sentence and "at most" not in sentence


def test_operators_with_sizes_types_and_calls(seen, view_of):
    section = sections(view_of(seen))["operators"]
    assert section.table.rows == (
        ("aten::addmm", "62 %", "3", "bfloat16", "512 64x512 512x512"),
        ("aten::stack", "20 %", "0.5", "", "[64]*16"),
    ), "one that takes next to nothing is left out"
    assert "62 % of the operators' time, 97 % of that in low precision" in section.sentences[0]
    assert "take 31 %" in section.sentences[0]
    assert len(section.sentences) == 1, "no device, no word of it"


def test_an_idle_device_is_told(seen, view_of):
    view = view_of(replace(seen, ops=replace(OPS, device_idle=0.4)))
    assert sections(view)["operators"].sentences[1] == (
        "The device had nothing to do for 40 % of the profiled time."
    )


def test_without_matmuls_their_precision_is_not_told(seen, view_of):
    view = view_of(replace(seen, ops=replace(OPS, low_precision=None)))
    assert "low precision" not in sections(view)["operators"].sentences[0]


def test_the_trace_is_named_where_it_is(seen, views, tmp_path):
    template = views["healthy"]
    assert template["ops_trace"] is None
    assert "trace.json" not in " ".join(sections({**template, "ops": OPS_PLAIN})["operators"].notes)
    (tmp_path / "trace.json").write_text("{}")
    view = {**template, "ops": OPS_PLAIN, "ops_trace": str(tmp_path / "trace.json")}
    note = sections(view)["operators"].notes[-1]
    assert str(tmp_path / "trace.json") in note and "https://ui.perfetto.dev" in note


OPS_PLAIN = {
    "top": [], "pointwise": 0.3, "matmul": 0.6, "low_precision": None, "misaligned": None, "device_idle": None,
    "steps": 3,
}  # fmt: skip


@pytest.mark.parametrize("renderer", [Terminal, Markdown, Html])
@pytest.mark.parametrize(
    ("lang", "titles"), [("en", ("With free input", "Operators")), ("zh", ("输入免费时", "算子"))]
)
def test_every_output_shows_both(seen, view_of, renderer, lang, titles):
    view = view_of(seen)
    page = renderer().render(view, lang)
    assert all(title in page for title in titles)
    assert "aten::addmm" in page and "512 64x512 512x512" in page
    assert Phrases(lang).number(view["free_input"]["gain"], "gain") in page


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_long_names_and_sizes_fit_a_terminal(seen, view_of, lang):
    long = Operator(
        "autograd::engine::evaluate_function: ConvolutionBackward0",
        "64x512x56x56 512x512x3x3 64x512x56x56",
        "bfloat16",
        0.4,
        12.0,
    )
    page = Terminal().render(view_of(replace(seen, ops=replace(OPS, top=(long, *OPS.top)))), lang)
    assert max(cell_len(line) for line in page.splitlines()) <= 100
    assert "ConvolutionBackward0" in page.replace("\n", "").replace(" ", "")


@pytest.fixture
def computing(timeline_of):
    """3 GFLOP forward in 12 ms, 6 backward in 18, on a CPU of 500 GFLOP/s."""
    roof = Roof({"float32": 500e9}, 20e9, "measured")
    return timeline_of({"forward": 12.0, "backward": 18.0}, ops=COUNTED, roof=roof)


@pytest.mark.parametrize(
    ("lang", "sentence", "cells"),
    [
        ("en", "A step computes 9.00 GFLOP", ["forward", "3.00 GFLOP", "compute"]),
        ("zh", "每步计算 9.00 GFLOP", ["前向", "3.00 GFLOP", "计算"]),
    ],
)
def test_flops_of_each_stage_and_their_share_of_the_peak(computing, view_of, lang, sentence, cells):
    section = sections(view_of(computing), lang)["compute"]
    assert section.sentences[0].startswith(sentence) and "60 %" in section.sentences[0]
    assert "500 GFLOP/s" in section.sentences[1]
    forward, backward = section.table.rows
    name, flops, _, mfu, products_at_roof, bound = forward
    assert [name, flops, bound] == cells
    assert (mfu, products_at_roof) == ("50 %", "67 %")
    assert backward[3:5] == ("67 %", "80 %")


@pytest.mark.parametrize("renderer", [Html, Json, Markdown, Terminal])
def test_every_output_shows_flops(computing, view_of, renderer):
    page = renderer().render(view_of(computing))
    assert "9000000000" in page if renderer is Json else "9.00 GFLOP" in page


@pytest.mark.parametrize(
    ("roof", "words"),
    [
        (None, "not known: give it with --peak-flops"),
        (Roof({"float64": 1e12}, None, "measured"), "not known: give it with --peak-flops"),
        (Roof({"any": 2e12}, None, "given"), "as given by --peak-flops."),
        (
            Roof({"float32": 2e12}, 3e11, "https://example.org/card"),
            "dense; memory: 279 GiB/s (https://example.org/card)",
        ),
    ],
)
def test_where_the_peak_is_from(computing, view_of, roof, words):
    assert words in sections(view_of(replace(computing, roof=roof)))["compute"].sentences[1]


def test_compiled_code_makes_the_flops_a_lower_bound(computing, view_of):
    assert "lower bound" not in " ".join(sections(view_of(computing))["compute"].notes)
    compiled = replace(computing, ops=replace(COUNTED, compiled=True))
    assert "lower bound" in " ".join(sections(view_of(compiled))["compute"].notes)
