"""Each setting gets its place once, its refusal is told with the reason, and everything can be taken back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Seam, Trainer
from hotlap.ports.values import Whole
from hotlap.probe import boundary
from hotlap.sameness import breach
from hotlap.seams.fitter import Fitted, Fitter, StepDown


class Mark(Knob):
    """Writes its setting on the target."""

    id = "mark"
    seam = Seam.MODEL
    numerics = Numerics.BITWISE
    values = Whole(0, 9)
    relieves = frozenset()

    def settings(self, host, timeline):
        return ()

    def ceiling(self, timeline, host):
        return 0.0

    def apply(self, target, setting):
        before = vars(target).get(self.id)
        setattr(target, self.id, setting)
        return lambda: setattr(target, self.id, before)


class Other(Mark):
    id = "other"


class Shy(Mark):
    id = "shy"

    def apply(self, target, setting):
        raise CannotActError("the module is frozen")


class Broken(Mark):
    id = "broken"

    def apply(self, target, setting):
        raise ZeroDivisionError("oh")


class OfLoader(Mark):
    id = "of-loader"
    seam = Seam.LOADER

    def numerics_at(self, target, setting):
        return Numerics.STATISTICAL


KNOBS = {each.id: each() for each in (Mark, Other, Shy, Broken, OfLoader)}


@pytest.fixture(autouse=True)
def _faults():
    yield
    boundary.faults.clear()


@pytest.fixture
def target():
    return SimpleNamespace()


def fitter(*ids, **options):
    return Fitter(dict.fromkeys(ids, 3), KNOBS, **options)


def test_a_setting_acts_at_its_own_seam_alone(target):
    fit = fitter("mark", "of-loader")
    fit.offer(Seam.MODEL, target, "train.py:7")
    assert vars(target) == {"mark": 3}
    assert fit.fitted == [Fitted("mark", 3, acts=True, place="train.py:7")]


def test_what_it_does_to_the_numbers_is_asked_at_the_target(target):
    fit = fitter("of-loader")
    fit.offer(Seam.LOADER, target)
    assert fit.fitted[0].numerics is Numerics.STATISTICAL


def test_a_refusal_and_a_fault_stop_neither_the_script_nor_the_other_settings(target):
    fit = fitter("shy", "broken", "other", "mark")
    fit.offer(Seam.MODEL, target, "here")
    told = {each.knob: each.reason for each in fit.fitted if not each.acts}
    assert told == {"shy": "the module is frozen", "broken": "ZeroDivisionError: oh"}
    assert vars(target) == {"mark": 3, "other": 3}
    assert [fault.partition(":")[0] for fault in boundary.faults] == ["knob broken"]


def test_settings_are_applied_in_the_same_order_however_the_plan_is_written(target):
    orders = []
    for ids in (("other", "mark"), ("mark", "other")):
        fit = fitter(*ids)
        fit.offer(Seam.MODEL, target)
        orders.append([each.knob for each in fit.fitted])
    assert orders[0] == orders[1] == ["mark", "other"]


def test_what_is_told_once_is_not_told_again(target):
    fit, told = fitter("mark"), []
    fit.changed.append(told.append)
    for _ in range(3):
        fit.offer(Seam.MODEL, SimpleNamespace(), "train.py:7")
    fit.offer(Seam.MODEL, target, "train.py:9")
    assert [each.place for each in told] == ["train.py:7", "train.py:9"]
    assert target.mark == 3


def test_what_a_trainer_takes_is_offered_to_nobody_else(target):
    fit, given = fitter("mark", "other"), []

    def take(setting):
        given.append(setting)
        return lambda: given.append("undone")

    fit.trainer(Trainer("a framework", {"mark": take, "shy": take}))
    fit.offer(Seam.MODEL, target)
    assert (given, vars(target)) == ([3], {"other": 3})
    assert [(each.knob, each.place) for each in fit.fitted] == [("mark", "a framework"), ("other", "")]
    assert fit.has_taken("mark") and not fit.has_taken("other")
    fit.undo()
    assert given == [3, "undone"]


def test_settings_that_nobody_asked_for_are_told_with_the_reason(target):
    fit = fitter("mark", "of-loader")
    fit.offer(Seam.MODEL, target)
    assert [(each.knob, each.reason) for each in fit.unmet()] == [
        ("of-loader", "the script builds no DataLoader")
    ]


def test_everything_is_taken_back_the_newest_first(target):
    fit = fitter("mark", "other")
    fit.offer(Seam.MODEL, target)
    fit.settings["mark"] = 5
    fit.offer(Seam.MODEL, target)
    fit.undo("other")
    assert vars(target) == {"mark": 5, "other": None}
    fit.undo()
    assert vars(target) == {"mark": None, "other": None}


def test_a_knob_that_is_only_asked_leaves_nothing_behind(target):
    fit = fitter("mark", "shy", asking=True)
    fit.offer(Seam.MODEL, target)
    assert target.mark is None
    assert {each.knob: each.acts for each in fit.fitted} == {"mark": True, "shy": False}


def test_a_presets_setting_that_does_more_to_the_numbers_here_is_refused(target):
    allowed = {"mark": ["bitwise"], "of-loader": ["bitwise", "rounding"]}
    fit = fitter("mark", "of-loader", options={"bounds": allowed})
    fit.offer(Seam.MODEL, target)
    fit.offer(Seam.LOADER, target)
    assert vars(target) == {"mark": 3}
    assert "without --allow statistical" in fit.fitted[1].reason


def test_seams_are_told_of_what_was_built_before_them(target):
    fit, met = fitter(), []
    fit.meets[Seam.MODEL].append(met.append)
    fit.meet(Seam.OPTIMIZER, target)
    fit.meet(Seam.MODEL, target)
    assert met == [target]


def test_a_worker_fits_and_tells_nothing(target):
    fit, told = fitter("mark"), []
    fit.changed.append(told.append)
    fit.retire()
    fit.offer(Seam.MODEL, target)
    fit.trainer(Trainer("a framework", {"mark": lambda _: told.append}))
    assert (vars(target), fit.fitted, told) == ({}, [], [])


def test_a_step_down_replaces_the_setting_and_is_told(target):
    fit, told = fitter("mark"), []
    fit.changed.append(told.append)
    fit.offer(Seam.MODEL, target)
    down = StepDown("mark", 3, 2, "it was too much", step=7)
    fit.stepped_down(down)
    fit.offer(Seam.MODEL, target)
    assert target.mark == 2
    assert told[1] == down and fit.step_downs == [down]


def test_a_class_that_was_lowered_stays_so_where_a_script_builds_anew() -> None:
    fitted = fitter("mark")
    fitted.offer(Seam.MODEL, SimpleNamespace(), "train.py:1")
    fitted.lower("mark", "train.py:1", "it takes too long to compare")
    fitted.offer(Seam.MODEL, SimpleNamespace(), "train.py:1")
    assert [each.numerics for each in fitted.fitted] == [Numerics.AUDITED]
    fitted.offer(Seam.MODEL, SimpleNamespace(), "train.py:2")
    assert [each.numerics for each in fitted.fitted] == [Numerics.AUDITED, Numerics.BITWISE]


def test_a_setting_with_a_breach_is_not_fitted_again() -> None:
    fitted, target = fitter("mark"), SimpleNamespace()
    breach.found[:] = [breach.Breach("mark", "a batch differs")]
    try:
        fitted.offer(Seam.MODEL, target)
    finally:
        breach.found.clear()
    assert not vars(target)
    assert [each.acts for each in fitted.fitted] == [False] and "same model" in fitted.fitted[0].reason
