"""What is exported is what the view holds: figures that were measured, by names that every tool can take."""

from __future__ import annotations

import json
from pathlib import Path

from hotlap.export.sending import parcel_of
from hotlap.facts import codec
from hotlap.ports.exporter import Parcel


def figures(parcel):
    return {each.path: each.value for each in parcel.metrics}


def test_of_a_profile(view):
    found = figures(parcel_of(view, Path("runs/one")))
    assert len(found) == len(parcel_of(view, Path("runs/one")).metrics)  # no two have one name
    for stage, each in view["stages"].items():
        assert found[f"hotlap/stage/share/{stage}"] == each["share"]
        assert found[f"hotlap/stage/ms/{stage}"] == each["ms"]
    assert found["hotlap/step/ms_median"] == view["step"]["ms_median"]
    assert found["hotlap/throughput/samples_per_s"] == view["throughput"]["samples_per_s"]
    first = view["findings"][0]
    assert found[f"hotlap/finding/share/{first['cause']}"] == first["share"]
    tried = next(each for each in view["experiments"] if each["gain"] is not None)
    assert found[f"hotlap/experiment/gain/{tried['knob']}/{tried['setting']}"] == tried["gain"]


def test_flops_and_mfu(view, tmp_path):
    step = {"flops": 9e9, "flops_per_s": 3e11, "mfu": None, "products_at_roof": 0.7}
    found = {
        each.path: each.value for each in parcel_of({**view, "compute": {"step": step}}, tmp_path).metrics
    }
    assert (found["hotlap/compute/flops"], found["hotlap/compute/flops_per_s"]) == (9e9, 3e11)
    assert "hotlap/compute/mfu" not in found


def test_what_was_not_measured_is_no_metric(view):
    changed = {**view, "throughput": {"samples_per_s": None, "steps_per_s": 3.0}, "experiments": None}
    found = figures(parcel_of(changed, Path("one")))
    assert "hotlap/throughput/samples_per_s" not in found
    assert not any(path.startswith("hotlap/experiment") for path in found)


def test_the_tags_and_the_series(view):
    parcel = parcel_of(view, Path("runs/one"))
    assert parcel.tags["hotlap.verdict"] == view["verdict"]
    assert parcel.tags["hotlap.command"] == view["job"]["shown"]
    walls = next(each for each in parcel.series if each.path == "hotlap/by_step/step/ms")
    assert list(walls.values) == view["series"]["wall"]["mean_ms"]
    assert list(walls.steps) == view["series"]["step"]


def test_each_rank_where_there_are_several(two_ranks):
    found = figures(parcel_of(two_ranks, Path("one")))
    for rank in two_ranks["ranks"]:
        assert found[f"hotlap/rank/ms_median/{rank['rank']}"] == rank["step"]["ms_median"]


def test_of_a_run_under_a_plan():
    view = {"kind": "run", "command": "python train.py", "exit_code": 0, "starts": 1, "steps": 10, "steps_per_s": None,
            "fitted": [], "step_downs": [{}], "breaches": [], "settings": {"num-workers": 2}}  # fmt: skip
    parcel = parcel_of(view, Path("one"))
    assert figures(parcel) == {
        "hotlap/run/steps": 10,
        "hotlap/run/starts": 1,
        "hotlap/run/exit_code": 0,
        "hotlap/run/step_downs": 1,
        "hotlap/run/breaches": 0,
    }
    assert parcel.tags["hotlap.settings"] == "num-workers=2"


def test_of_a_comparison():
    rows = [
        {"name": "none", "throughput": 100.0, "step_ms": 10.0, "data_ms": None, "utilisation": 0.5,
         "memory_bytes": 1 << 20, "ratio": None},
        {"name": "plan.yaml", "throughput": 200.0, "step_ms": 5.0, "data_ms": 1.0, "utilisation": 0.9,
         "memory_bytes": 1 << 20, "ratio": {"value": 2.0, "low": 1.9, "high": 2.1}},
    ]  # fmt: skip
    found = figures(parcel_of({"kind": "comparison", "command": "c", "variants": rows}, Path("one")))
    assert found["hotlap/variant/throughput/plan.yaml"] == 200.0
    assert found["hotlap/variant/ratio/low/plan.yaml"] == 1.9
    assert "hotlap/variant/data_ms/none" not in found


def test_it_travels_as_json(view):
    parcel = parcel_of(view, Path("one"), summary="# words", report="report.html")
    again = codec.from_plain(Parcel, json.loads(json.dumps(codec.to_plain(parcel))))
    assert codec.to_plain(again) == codec.to_plain(parcel)
    assert figures(again) == figures(parcel)
