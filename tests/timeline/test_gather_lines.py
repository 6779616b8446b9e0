"""Stack samples become hot lines: each counts to the stage that its moment fell into."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hotlap.facts.timeline import HotLine, SourceLine, Stage
from hotlap.probe.sampler import LINE_BITS
from hotlap.timeline.gather import hot_lines, merge
from hotlap.timeline.segments import STAGES

US = 1000
TABLE = [
    ["data.py", 10, "__getitem__", "transform", "base.transform"],
    ["data.py", 10, "__getitem__", "transform", "base.check"],
    ["train.py", 5, "main", "", "train.main"],
]
DATA, OTHER = STAGES.index(Stage.DATA), STAGES.index(Stage.OTHER)


def sample(us, row):
    return us << LINE_BITS | row


def test_a_sample_belongs_to_the_stage_of_its_moment():
    spans = [(0, 100 * US, DATA), (100 * US, 200 * US, OTHER)]
    found = hot_lines([sample(50, 0), sample(100, 2), sample(199, 2)], TABLE, spans, 0, "main")
    assert {(line.stage, line.place.line, line.samples) for line in found} == {
        (Stage.DATA, 10, 1),
        (Stage.OTHER, 5, 2),
    }
    assert {line.role for line in found} == {"main"}


def test_samples_outside_of_every_step_count_nowhere():
    spans = [(100 * US, 200 * US, DATA), (300 * US, 400 * US, DATA)]
    taken = [sample(99, 0), sample(250, 0), sample(400, 0), sample(350, 0)]
    (line,) = hot_lines(taken, TABLE, spans, 0, "main")
    assert line.samples == 1


def test_what_came_before_the_steady_state_does_not_count():
    spans = [(0, 100 * US, DATA), (100 * US, 200 * US, DATA)]
    (line,) = hot_lines([sample(50, 0), sample(150, 0)], TABLE, spans, 100 * US, "main")
    assert line.samples == 1


def test_one_line_with_two_ends_is_one_entry_that_names_the_more_frequent_end():
    rows = [sample(moment, 0) for moment in range(3)] + [sample(moment, 1) for moment in range(3, 8)]
    (line,) = hot_lines([*rows, sample(9, 2)], TABLE, [(0, 100 * US, DATA)], 0, "worker")[:1]
    assert (line.samples, line.callee, line.inner) == (8, "transform", "base.check")
    assert line.share == pytest.approx(8 / 9)


def test_one_line_that_calls_two_functions_is_one_entry():
    table = [["a.py", 7, "step", "loss", "a.loss"], ["a.py", 7, "step", "model", "b.forward"]]
    taken = [sample(1, 0), sample(2, 1), sample(3, 1)]
    (line,) = hot_lines(taken, table, [(0, 100 * US, DATA)], 0, "main")
    assert (line.samples, line.share, line.callee) == (3, 1.0, "model")
    other = HotLine(line.place, "loss", Stage.DATA, 1.0, 2, "main", "a.loss")
    (merged,) = merge([[line], [other]])
    assert (merged.samples, merged.callee) == (5, "model")


def test_a_line_is_one_row_whatever_function_each_process_saw_it_in():
    """A comprehension is a function of its own to one Python, and a part of the line's function to another."""
    several = [
        HotLine(SourceLine("a.py", 7, function), "work", Stage.DATA, 1.0, count, "worker")
        for function, count in (("Items.__getitem__", 57), ("Items.__getitem__.<locals>.<listcomp>", 37))
    ]
    other = HotLine(SourceLine("a.py", 9, "Items.__getitem__"), "", Stage.DATA, 0.06, 6, "worker")
    first = replace(several[0], share=57 / 63)
    found = merge([[first, replace(other, share=6 / 63)], [several[1]]])
    assert [(line.place.line, line.samples, line.share) for line in found] == [(7, 94, 0.94), (9, 6, 0.06)]
    assert found[0].place.function == "Items.__getitem__"


def test_lines_know_whether_they_are_in_a_loop_of_their_own_function(tmp_path):
    script = tmp_path / "model.py"
    script.write_text(
        "def forward(x):\n"  # 1
        "    for gate in gates:\n"  # 2
        "        x = gate(x)\n"  # 3
        "        def inner(y):\n"  # 4
        "            return y + 1\n"  # 5
        "    return x\n"  # 6
    )
    numbers = (2, 3, 5, 6)
    table = [[str(script), number, "forward", "", "x"] for number in numbers]
    taken = [sample(each + 1, each) for each in range(len(numbers))]
    found = hot_lines(taken, table, [(0, 100 * US, DATA)], 0, "main")
    assert {line.place.line: line.looped for line in found} == {2: False, 3: True, 5: False, 6: False}


def test_a_sample_of_no_known_line_is_left_out():
    assert (
        hot_lines([sample(1, 3), sample(2, (1 << LINE_BITS) - 1)], TABLE, [(0, 100 * US, DATA)], 0, "main")
        == []
    )


def test_the_text_of_a_line_is_read_from_its_file():
    here = str(Path(__file__))
    table = [[here, 1, "<module>", "", "x"], ["/nowhere.py", 3, "gone", "", "x"]]
    known, gone = hot_lines(
        [sample(1, 0), sample(2, 0), sample(3, 1)], table, [(0, 100 * US, DATA)], 0, "main"
    )
    assert (
        known.place.code
        == '"""Stack samples become hot lines: each counts to the stage that its moment fell into."""'
    )
    assert gone.place.code == ""


def test_only_the_hottest_of_a_stage_are_kept_with_their_share_of_all():
    table = [["a.py", number, "f", "", "a.f"] for number in range(1, 41)]
    taken = [sample(row * 50 + index, row) for row in range(40) for index in range(row + 1)]
    found = hot_lines(taken, table, [(0, 5000 * US, DATA)], 0, "main")
    assert [line.place.line for line in found] == list(range(40, 28, -1))
    assert found[0].share == pytest.approx(40 / sum(range(1, 41)))


def line(samples, share, number=1, stage=Stage.DATA):
    return HotLine(SourceLine("a.py", number), "f", stage, share, samples, "worker", "a.f")


def test_lines_of_several_workers_are_one_list_with_shares_of_all_their_samples():
    busy, quiet = [line(60, 0.6), line(40, 0.4, 2)], [line(5, 0.5), line(5, 0.5, 3)]
    merged = merge([busy, quiet])
    assert [(each.place.line, each.samples) for each in merged] == [(1, 65), (2, 40), (3, 5)]
    assert merged[0].share == pytest.approx(65 / 110)
    assert sum(each.share for each in merged) == pytest.approx(1.0)


def test_shares_stay_those_of_a_stage():
    merged = merge([[line(10, 1.0), line(30, 1.0, 2, Stage.OTHER)]])
    assert {each.stage: each.share for each in merged} == {Stage.DATA: 1.0, Stage.OTHER: 1.0}


def test_nothing_merges_to_nothing():
    assert merge([]) == merge([[], []]) == []
