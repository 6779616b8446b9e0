"""The view keeps the contract of `--json` and says None for what was not measured."""

from __future__ import annotations

import json
import math

import pytest

from hotlap.errors import FactError
from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Severity
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.timeline import SourceLine
from hotlap.report.view import profile_view

NAMES = ("data-bound", "healthy", "multi-rank", "nothing-measured")


@pytest.mark.parametrize("name", NAMES)
def test_keeps_the_contract(views, name):
    view = views[name]
    assert view["schema"] == 1
    assert {"ms_median", "ms_p95", "n"} <= set(view["step"])
    assert {"steps_per_s", "samples_per_s", "tokens_per_s"} <= set(view["throughput"])
    assert {"verdict", "coverage", "overhead", "stages", "findings"} <= set(view)
    for stage in view["stages"].values():
        assert set(stage) == {"ms", "share", "p50", "p95"}
    for finding in view["findings"]:
        assert {"cause", "severity", "share", "where", "evidence", "fixes"} <= set(finding)
        assert finding["where"] is None or {"file", "line", "function"} <= set(finding["where"])
        for fix in finding["fixes"]:
            old = {"predicted_gain"} if fix["measured_gain"] is not None else set()
            assert {"knob", "setting", "measured_gain", "interval"} | old == set(fix)


@pytest.mark.parametrize("name", NAMES)
def test_is_plain_data(views, name):
    assert json.loads(json.dumps(views[name], allow_nan=False)) == views[name]


def test_stages_add_up_to_the_mean_step(views):
    view = views["data-bound"]
    assert sum(stage["share"] for stage in view["stages"].values()) == pytest.approx(1)
    assert sum(stage["ms"] for stage in view["stages"].values()) == pytest.approx(view["step"]["ms_mean"])


def test_verdict_is_the_first_findings_cause(views):
    assert views["data-bound"]["verdict"] == "item-cpu-bound"
    assert views["healthy"]["verdict"] == "healthy"


def test_a_run_without_a_steady_step_has_no_verdict_and_no_zeros(views):
    view = views["nothing-measured"]
    assert view["verdict"] is None
    assert view["stages"] == {}
    measured = (view["coverage"], view["overhead"], view["memory"], view["cpu"], view["gauges"])
    assert measured == (None,) * 5
    assert view["step"]["ms_median"] is None and view["throughput"]["steps_per_s"] is None
    assert view["step"]["n"] == 0 and view["step"]["seen"] == 3


def test_a_finding_without_a_steady_step_is_still_the_verdict(timeline_of, view_of):
    growing = Finding(Cause.MEMORY_GROWTH, Severity.CRITICAL, 0.0)
    view = view_of(timeline_of({"data": 1.0}, 3, steady_from=3), diagnosis=Diagnosis((growing,)))
    assert view["verdict"] == "memory-growth"


def test_the_slowest_rank_is_named_in_whatever_order_ranks_come(views, timeline_of, view_of):
    assert views["multi-rank"]["slowest_rank"] == 1
    assert [rank["rank"] for rank in views["multi-rank"]["ranks"]] == [0, 1]
    slow, fast = (
        timeline_of({"forward": 9.0}, rank=0, world=2),
        timeline_of({"forward": 5.0}, rank=1, world=2),
    )
    assert view_of(fast, slow)["slowest_rank"] == view_of(slow, fast)["slowest_rank"] == 0
    assert view_of(fast, slow)["step"]["ms_mean"] == pytest.approx(9, rel=0.02)


def test_one_process_has_no_slowest_rank(views):
    assert views["healthy"]["slowest_rank"] is None


def test_findings_carry_the_source_around_their_line(tmp_path, timeline_of, view_of):
    (tmp_path / "dataset.py").write_text("".join(f"line {number}\n" for number in range(1, 21)))
    place = SourceLine(str(tmp_path / "dataset.py"), 10, "get", "line 10")
    finding = Finding(Cause.ITEM_CPU_BOUND, Severity.WARNING, 0.5, {}, place)
    where = view_of(timeline_of({"data": 1.0}), diagnosis=Diagnosis((finding,)), cwd=tmp_path)["findings"][0][
        "where"
    ]
    assert where["shown"] == "dataset.py:10"
    assert where["source"] == {"first": 7, "lines": [f"line {number}" for number in range(7, 14)]}


def test_numbers_that_are_not_finite_were_not_measured(timeline_of, view_of):
    finding = Finding(
        Cause.HOST_SYNC, Severity.NOTE, 0.1, {"sync_ms": math.nan, "syncs": math.inf, "lines": 2}
    )
    evidence = view_of(timeline_of({"data": 1.0}), diagnosis=Diagnosis((finding,)))["findings"][0]["evidence"]
    assert evidence == {"sync_ms": None, "syncs": None, "lines": 2}


def test_a_run_without_any_timeline_is_refused(views, view_of):
    with pytest.raises(FactError, match="no training process"):
        view_of()


def test_the_probes_own_cost_is_told(views):
    assert views["healthy"]["overhead"] == pytest.approx(0.0004)
    assert views["healthy"]["probe"]["per_step_s"] == pytest.approx(18e-6)
    assert profile_view.__doc__


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        ("{here}/.hotlap/runs/1", ".hotlap/runs/1"),
        ("/elsewhere/1", "/elsewhere/1"),
        ("{here}", "{here}"),
        ("runs/1", "runs/1"),
    ],
)
def test_the_run_folder_is_named_as_one_types_it_here(timeline_of, monkeypatch, tmp_path, run, shown):
    monkeypatch.chdir(tmp_path)
    host = Host("Linux", "a cpu", 1, None, 1, 1, None, None, "fork")
    made = profile_view(
        Job(("a",), "/", "a"), host, [timeline_of({"data": 1.0})], Diagnosis(), run.format(here=tmp_path)
    )
    assert made["run"] == run.format(here=tmp_path)
    assert made["run_shown"] == shown.format(here=tmp_path)
