"""Units are found by walking a folder; a typo gets the nearest name."""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod

import pytest

from hotlap.discover import card, pick, units
from hotlap.errors import UsageError


class Unit(ABC):
    @abstractmethod
    def name(self) -> str: ...


FILES = {
    "__init__.py": "",
    "beta.py": '"""The card of beta."""\nfrom unitkind import Unit\n'
    'class Beta(Unit):\n    def name(self): return "beta"\n',
    "alpha.py": "from unitkind import Unit\nfrom made_units.beta import Beta\n"
    'class Alpha(Unit):\n    def name(self): return "alpha"\n'
    "class Half(Unit): pass\nclass Other: pass\nkind = Unit\n",
    "nothing.py": "",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "unitkind", sys.modules[__name__])
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_units").mkdir()
    for name, text in FILES.items():
        (tmp_path / "made_units" / name).write_text(text)
    yield importlib.import_module("made_units")
    for name in [name for name in sys.modules if name.startswith("made_units")]:
        del sys.modules[name]


def test_every_concrete_class_is_found_once_in_the_module_that_defines_it(package):
    assert [unit.name() for unit in units(package, Unit)] == ["alpha", "beta"]


def test_a_units_card_is_the_docstring_of_its_module(package):
    alpha, beta = units(package, Unit)
    assert card(beta) == "The card of beta."
    assert card(alpha) == ""


def test_an_entry_point_adds_units_of_other_packages(package, monkeypatch):
    class Entry:
        def load(self):
            return package.beta.Beta

    units(package, Unit)
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [Entry()] if group == "hotlap.units" else []
    )
    assert [unit.name() for unit in units(package, Unit, "hotlap.units")] == ["alpha", "beta", "beta"]


def test_a_known_name_is_picked():
    assert pick("knob", "pin-memory", ["pin-memory", "compile"]) == "pin-memory"


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [("pin-memroy", "did you mean 'pin-memory'?"), ("zzz", "known are: compile, pin-memory")],
)
def test_a_typo_gets_the_nearest_name_or_all_of_them(wanted, remedy):
    with pytest.raises(UsageError) as refusal:
        pick("knob", wanted, ["pin-memory", "compile"])
    assert (refusal.value.what, refusal.value.remedy) == (f"no knob is called '{wanted}'.", remedy)
