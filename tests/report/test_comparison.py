"""A comparison as a table for a README, and the gate for CI."""

from __future__ import annotations

from dataclasses import replace

from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.report.comparison import comparison_view, markdown, slower_than

FIGURES = Figures(1000.0, "samples", 8.0, 2.0, 8.0, 512 << 20, 0.75, 0.0, 1.0, 0.2, 60)


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
    assert "| 1.5 (1.4 to 1.6) " in table[3]
    assert "failed" in table[4]
    assert table[-1] == (
        "python train.py on 2 cores, no GPU, in turn, in fresh processes; other processes used up to 0.2 cores."
    )


def test_columns_line_up():
    table = markdown(view()).splitlines()[:5]
    assert len({len(line) for line in table}) == 1


def test_what_was_not_measured_is_not_zero():
    row = view()["variants"][2]
    assert row["throughput"] is None
    assert row["failed"] == "boom"


def test_the_gate_trips_only_where_it_is_sure_and_enough():
    assert slower_than(view(**{"plan.yaml": (0.9, 0.88, 0.92)}), 0.05) == ["plan.yaml"]
    assert slower_than(view(**{"plan.yaml": (0.9, 0.7, 1.1)}), 0.05) == []
    assert slower_than(view(**{"plan.yaml": (0.97, 0.96, 0.98)}), 0.05) == []
