"""What a folder of a search or a comparison holds is read as it is, also after a kill or an edit of the script."""

from __future__ import annotations

import json

import pytest

from hotlap.errors import FactError
from hotlap.facts import codec
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.facts.verdict import Tuning
from hotlap.pipeline.outcome import outcome_of, trials_of, view_of_search

FIGURES = Figures(600.0, "samples", 800.0, 700.0, 512.0, 1 << 29, 0.1, 0.0, 3.0, 0.0, 60)
HOST = Host("Linux 6.1", "AMD EPYC 7B13", 2, 1, 24 << 30, 20 << 30, None, None, "fork")


@pytest.fixture
def searched(tmp_path):
    codec.write_json(tmp_path / "job.json", Job(("python", "train.py"), str(tmp_path), "train"))
    codec.write_json(tmp_path / "host.json", HOST)
    codec.write_json(
        tmp_path / "tuning.json", Tuning(FIGURES, FIGURES, Plan(), None, None, ended="the budget is spent")
    )
    trial = codec.to_plain(Trial(1, Plan(), Status.DONE, 3.0, FIGURES, stages={"data": 700.0}))
    verdict = {"schema": 1, "job": "x", "verdict": {"knob": "compile"}}
    lines = [json.dumps({"schema": 1, "job": "x", **trial}), json.dumps(verdict), '{"schema": 1, "numb']
    (tmp_path / "ledger.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_a_search_is_shown_with_the_trials_that_can_be_read(searched):
    view = view_of_search(searched)
    assert [each["number"] for each in view["ledger"]] == [1]
    assert view["stages"]["before"] == {"data": 700.0}
    assert view["command"] == "python train.py"


def test_a_folder_of_something_else_is_none(tmp_path):
    assert outcome_of(tmp_path) is None
    assert trials_of(tmp_path / "ledger.jsonl") == []


def test_a_comparison_comes_back_as_it_was_written(tmp_path):
    codec.write_json(tmp_path / "comparison.json", {"kind": "comparison", "variants": []})
    assert outcome_of(tmp_path) == {"schema": 1, "kind": "comparison", "variants": []}


def test_a_torn_outcome_is_refused_by_name(searched):
    (searched / "tuning.json").write_text("{")
    with pytest.raises(FactError, match=r"tuning\.json"):
        outcome_of(searched)
