"""`searched`: a whole search of a made-up job (worlds.py, which tests import by its name)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotlap.facts.job import Job
from hotlap.measure.ledger import Ledger
from hotlap.plan.file import read_plan
from hotlap.ports.knob import Numerics
from hotlap.search import passes
from hotlap.search.candidates import Said, SearchBudget, Wish
from hotlap.search.run import run as run_search
from hotlap.search.search import Search

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """`searched(world, offers)`: a whole search in one folder; the offers stand in for what a diagnosis proposes."""
    from worlds import KNOBS, FakeBench

    (tmp_path / "train.py").write_text("")
    job = Job(("python", "train.py"), str(tmp_path), "train")
    said = []

    def run(world, offers, *, wish=None, budget=None, seconds=1.0):
        def offered(bounded, _, __, plan, ___, tried):
            standing = plan.settings.get
            new = [each for each in bounded if each.key not in tried and standing(each.knob) != each.setting]
            return sorted(new, key=lambda each: -each.bound)

        world.offers = tuple(offers)
        tuples = [(each.knob, each.setting, each.bound, each.beside) for each in offers]
        monkeypatch.setattr(passes, "candidates_for", lambda *_: tuples)
        monkeypatch.setattr(passes, "candidates", offered)
        bench = FakeBench(world, tmp_path, seconds=seconds)
        tell = Said(lambda _: None, lambda _: None, said.append)
        wish = wish or Wish("speed", frozenset(Numerics))
        host = SimpleNamespace(named="a host")
        search = Search(
            bench, Ledger(tmp_path, job), host, KNOBS, wish, budget or SearchBudget(seconds=600), tell
        )
        tuning = run_search(search)
        return tuning, read_plan(tmp_path / "plan.yaml", KNOBS)

    run.said = said
    return run
