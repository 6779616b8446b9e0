"""What became of a plan is told in short lines that say where, or why not."""

from __future__ import annotations

from hotlap.plan.record import Fitted, Record, StepDown, read_records, summary, told, write_record
from hotlap.ports.knob import Numerics

ACTS = Fitted("num-workers", 4, acts=True, place="train.py:31")
REFUSED = Fitted("log-every", 50, acts=False, reason="the script has no trainer")


def test_what_acts_comes_first_with_its_place_and_what_cannot_with_its_reason():
    assert told([REFUSED, ACTS]) == [
        "hotlap: applied num-workers=4 at train.py:31",
        "hotlap: log-every=50 cannot act: the script has no trainer",
    ]


def test_one_line_for_a_knob_with_its_first_places_and_what_it_does_to_the_numbers():
    many = [
        Fitted("pin-memory", True, acts=True, place=f"train.py:{line}", numerics=numerics)
        for line, numerics in ((1, Numerics.BITWISE), (2, Numerics.ROUNDING), (3, Numerics.BITWISE))
    ]
    assert told(many) == ["hotlap: applied pin-memory=true at train.py:1, train.py:2 and 1 more (rounding)"]


def test_a_knob_that_acts_here_and_not_there_tells_both():
    there = Fitted(
        "num-workers", 4, acts=False, place="eval.py:9", reason="a stream that does not divide itself"
    )
    assert told([ACTS, there]) == [
        "hotlap: applied num-workers=4 at train.py:31",
        "hotlap: num-workers=4 cannot act at eval.py:9: a stream that does not divide itself",
    ]


def test_one_line_for_a_reason_however_many_places_it_holds_at():
    many = [
        Fitted("bucketing", 8, acts=False, place=f"a.py:{line}", reason="no lengths") for line in (1, 2, 3)
    ]
    assert told(many) == ["hotlap: bucketing=8 cannot act at a.py:1, a.py:2 and 1 more: no lengths"]


def test_a_step_down_names_the_step_and_what_was_lost():
    down = StepDown("precision", "16-mixed", "bf16-mixed", "the loss was not finite", step=7, lost=3)
    text = " ".join(line.removeprefix("hotlap: ").strip() for line in told([down]))
    assert text == (
        "precision went from 16-mixed to bf16-mixed at step 7: the loss was not finite; 3 steps were lost"
    )


def test_lines_fit_a_terminal_and_every_one_says_whose_it_is():
    long = Fitted("compile", "max-autotune", acts=False, reason="a reason " * 40)
    lines = told([long])
    assert len(lines) > 3
    assert all(line.startswith("hotlap: ") and len(line) <= 100 for line in lines)


def test_the_summary_says_how_far_it_came_and_with_what():
    records = (Record(1, 0, (ACTS, REFUSED), steps=101, seconds=4.0),)
    down = StepDown("batch-size", 8, 4, "out of memory")
    assert summary(records, (), 1, "runs/a") == [
        "hotlap: 101 steps at 25 a second with num-workers=4. The run is in runs/a"
    ]
    assert "2 starts" in " ".join(summary(records, (down,), 2, "runs/a"))
    assert "1 step down" in " ".join(summary(records, (down,), 2, "runs/a"))


def test_the_summary_of_a_script_that_made_no_step_tells_what_was_fitted_all_the_same():
    assert summary((), (), 1, "r") == ["hotlap: no optimizer step was seen. The run is in r"]
    assert summary((Record(1, 0, (ACTS,)),), (), 1, "r")[0] == "hotlap: applied num-workers=4 at train.py:31"


def test_records_come_back_and_a_torn_one_does_not_hide_the_others(tmp_path):
    record = Record(12, 0, (ACTS, REFUSED), (StepDown("a", 1, 2, "why", 3),), 5, 0.5, ("fault",))
    write_record(tmp_path, record)
    (tmp_path / "13.fitted.json").write_text('{"pid": ')
    assert read_records(tmp_path) == (record,)
