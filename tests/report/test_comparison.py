"""A comparison as a table for a README, as a report, and the gate for CI."""

from __future__ import annotations

from dataclasses import replace

from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.report.comparison import comparison_view, markdown, slower_than
from hotlap.report.renderers.html import Html
from hotlap.report.renderers.terminal import draw

FIGURES = Figures(1000.0, "samples", 8.0, 2.0, 8.0, 512 << 20, 0.75, 0.0, 1.0, 0.2, 60, 2.0)


def trials(rate, count=4):
    return [Trial(n, Plan(), Status.DONE, 3.0, replace(FIGURES, throughput=rate)) for n in range(count)]


def view(**ratios):
    runs = {
        "none": trials(1000.0),
        "plan.yaml": trials(1500.0),
        "broken": [Trial(9, Plan(), Status.DEAD, 1.0, None, "boom")],
    }
    return comparison_view("2 cores, no GPU", "python train.py", runs, ratios)


def test_the_table_names_its_baseline_its_host_and_its_command():
    table = markdown(view(**{"plan.yaml": (1.5, 1.4, 1.6)})).splitlines()
    assert table[0].startswith("| variant ")
    assert set(table[1]) <= set("|- ")
    assert "| 1.50x (1.40x to 1.60x) " in table[3]
    assert "failed" in table[4]
    assert table[6] == "python train.py on 2 cores, no GPU."
    assert "Other processes used up to 0.20 cores." in table
    assert table[-1] == "broken failed: boom"
    assert max(map(len, table)) <= 100


def test_columns_line_up():
    table = markdown(view()).splitlines()[:5]
    assert len({len(line) for line in table}) == 1


def test_what_was_not_measured_is_not_zero():
    row = view()["variants"][2]
    assert row["throughput"] is None
    assert row["failed"] == "boom"


def test_a_step_of_two_batches_waits_half_as_long_for_each():
    row = view()["variants"][0]
    assert (row["data_ms"], row["data_ms_per_batch"]) == (2.0, 1.0)


def test_a_gpu_that_was_measured_is_shown_beside():
    runs = {"none": [Trial(1, Plan(), Status.DONE, 3.0, replace(FIGURES, gpu_busy=0.4))]}
    assert "| 75 %, GPU 40 % |" in markdown(comparison_view("1 GPU", "python train.py", runs, {}))
    assert "GPU" not in markdown(view()).replace("no GPU", "")


def test_the_gate_trips_only_where_it_is_sure_and_enough():
    assert slower_than(view(**{"plan.yaml": (0.9, 0.88, 0.92)}), 0.05) == ["plan.yaml"]
    assert slower_than(view(**{"plan.yaml": (0.9, 0.7, 1.1)}), 0.05) == []
    assert slower_than(view(**{"plan.yaml": (0.97, 0.96, 0.98)}), 0.05) == []


def test_the_report_says_it_in_a_sentence():
    faster = view(**{"plan.yaml": (1.5, 1.4, 1.6)})
    assert "plan.yaml is 1.50x as fast as none (1.40x to 1.60x)." in draw(faster)
    assert "show no difference" in draw(view(**{"plan.yaml": (1.01, 0.98, 1.04)}))
    assert "broken 失败：boom" in draw(faster, "zh")
    assert "1.50x (1.40x to 1.60x)" in Html().render(faster)


def test_the_small_print_fits_a_terminal():
    for lang in ("en", "zh"):
        table, _, small = markdown(
            {**view(), "command": "train.py " + "--option value " * 12}, lang
        ).partition("\n\n")
        assert table and max(map(len, small.splitlines())) <= 100


def test_tokens_are_told_where_they_are_counted():
    tokens = replace(FIGURES, counts="tokens", throughput=1e5)
    found = comparison_view("1 GPU", "train.py", {"none": [Trial(1, Plan(), Status.DONE, 3.0, tokens)]}, {})
    assert "100,000 tokens/s" in markdown(found)
    assert "Tokens are counted" in markdown(found) and "Tokens are counted" not in markdown(view())
    assert "词元/s" in markdown(found, "zh") and "按词元" in markdown(found, "zh")


def test_the_small_print_says_how_the_variants_ran():
    runs = {"none": trials(1000.0), "plan.yaml": trials(1500.0)}
    sliced = comparison_view("2 cores", "python train.py", runs, {}, sliced=True)
    for lang, words in {"en": "some milliseconds each", "zh": "几十毫秒"}.items():
        assert words in markdown(sliced, lang).replace("\n", " ")
        assert words not in markdown(view(), lang).replace("\n", " ")
