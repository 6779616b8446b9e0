"""Runs scripts under one integration alone, with a Stager that only counts, and writes down what each of them reached.

    python recorder.py <integration id> <result.json> '[["script.py", "--steps", "20"], ...]'

Run as a process of its own, since importing a framework cannot be undone; the scripts share that import.
"""

import functools
import importlib
import json
import runpy
import sys
from pathlib import Path

from hotlap import integrations
from hotlap.discover import units
from hotlap.launch.import_hook import Doorman
from hotlap.ports.integration import Integration
from hotlap.probe import boundary


class Recorder:
    """Counts calls by `Class.method`, and keeps what was asked for but is not there."""

    def __init__(self):
        self.calls = {}
        self.stages = {}
        self.missing = []
        self.notes = []

    def begin(self):
        """Of the next script."""
        self.calls = dict.fromkeys(self.calls, 0)
        self.notes = []

    def stage(self, owner, name, stage, *, lasting=True):
        point = f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"
        if not hasattr(owner, name):
            self.missing.append(point)
            return
        self.stages[point] = stage.value
        self.calls.setdefault(point, 0)
        self.wrap(owner, name, functools.partial(self._counting, point))

    def note(self, key, value):
        self.notes.append([key, value])

    def wrap(self, owner, name, around):
        original = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
        setattr(owner, name, around(original))

    def _counting(self, point, original):
        @functools.wraps(original)
        def counted(*args, **kwargs):
            self.calls[point] += 1
            return original(*args, **kwargs)

        return counted


def _importable(name):
    """Also the modules that the script did not need are imported, so that their points are looked for."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def main():
    wanted, result, scripts = sys.argv[1:]
    integration = next(each for each in units(integrations, Integration) if each.id == wanted)
    recorder, doorman = Recorder(), Doorman()
    for name in integration.modules:
        doorman.expect(name, lambda module: integration.attach(module, recorder))
    sys.meta_path.insert(0, doorman)
    reached = []
    for command in json.loads(scripts):
        recorder.begin()
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
        reached.append({"calls": dict(recorder.calls), "notes": list(recorder.notes)})
    known = set(recorder.calls)
    absent = [name for name in integration.modules if not _importable(name)]
    uncalled = dict.fromkeys(recorder.calls.keys() - known, 0)
    found = {
        "stages": recorder.stages,
        "missing": recorder.missing,
        "absent": absent,
        "faults": boundary.faults,
    }
    seen = [found | each | {"calls": uncalled | each["calls"]} for each in reached]
    Path(result).write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
