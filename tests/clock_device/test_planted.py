"""Planted jobs on the clock device: what is reported of a step is what was planted, and watching changes nothing."""

from __future__ import annotations

import pytest

WITHIN = 0.02  # of the step, for each part of it
STAGES = ("data", "transfer", "forward", "backward", "optimizer", "other")
PROBE_NS = 20_000  # of host time that the probe may take in a step


def test_there_are_many_jobs(results):
    assert len(results) >= 40
    assert all(each["accelerator"] == "clock" for each in results.values())
    assert not {name: each["faults"] for name, each in results.items() if each["faults"]}


def test_steps_take_what_was_planted(results):
    wrong = {
        name: (each["step"], each["truth"]["step"])
        for name, each in results.items()
        if each["step"] != pytest.approx(each["truth"]["step"], rel=WITHIN)
    }
    assert not wrong


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_is_booked_what_was_planted(results, stage):
    wrong = {
        name: (each["stages"][stage], each["truth"][stage])
        for name, each in results.items()
        if abs(each["stages"][stage] - each["truth"][stage]) > WITHIN * each["truth"]["step"]
    }
    assert not wrong


def test_the_device_is_idle_as_long_as_it_was_left_without_work(results):
    wrong = {
        name: (each["idle"], each["truth"]["idle"], each["idle_by"])
        for name, each in results.items()
        if each["idle"] is None or abs(each["idle"] - each["truth"]["idle"]) > WITHIN * each["truth"]["step"]
    }
    assert not wrong


def test_waits_for_values_are_timed_by_their_lines(results):
    wrong = {}
    for name, each in results.items():
        if each["waits"] is None:
            continue
        ms = (sum(seconds for *_, seconds in each["syncs"]) * 1e3 - each["first_wait"]) / each["steps"]
        if abs(ms - each["waits"]) > WITHIN * each["truth"]["step"]:
            wrong[name] = (ms, each["waits"], each["syncs"])
    assert not wrong
    lines = {file for each in results.values() for file, *_ in each["syncs"]}
    assert all(file.endswith("jobs.py") for file in lines), (
        "a library's read is the script's line that called it"
    )


def test_the_probe_waits_for_nothing(results):
    """The device counts who waits for it, and how."""
    assert all(sum(each["alone"].values()) for name, each in results.items() if "read" in name)
    assert not {
        name: (each["alone"], each["watched"])
        for name, each in results.items()
        if each["alone"] != each["watched"]
    }


def test_the_job_takes_no_longer_than_the_probe_may(results):
    """Each question to the device takes a planted fifth of a microsecond of the host."""
    wrong = {
        name: each["watched_ns"] - each["alone_ns"]
        for name, each in results.items()
        if each["watched_ns"] - each["alone_ns"] > PROBE_NS * each["steps"]
    }
    assert not wrong


NOTED = 0.02  # of the step: less is not reported


def test_transfers_are_a_cause_where_they_are_exposed_and_nowhere_else(results):
    wrong = {}
    for name, each in results.items():
        exposed = each["truth"]["transfer"] / each["truth"]["step"]
        reported = each["found"].get("transfer-exposed", 0.0)
        if abs(reported - exposed) > WITHIN or (reported > 0) != (exposed >= NOTED):
            wrong[name] = (reported, exposed)
    assert not wrong


def test_reading_values_is_a_cause_where_the_device_then_waits_for_the_host(results):
    """Between two parts; for reads within one, only the time in the calls is known."""
    wrong = {}
    for name, each in results.items():
        if each["reads"] not in ("", "middle"):
            lost = each["truth"]["idle"] / each["truth"]["step"]
            reported = each["found"].get("host-sync", 0.0)
            if abs(reported - lost) > WITHIN or (reported > 0) != (lost >= NOTED):
                wrong[name] = (reported, lost)
        elif not each["reads"] and "host-sync" in each["found"]:
            wrong[name] = each["found"]["host-sync"]
    assert not wrong
