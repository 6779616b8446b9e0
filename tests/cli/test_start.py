"""Commands that only read answer at once: they import neither torch nor numpy, nor what they do not need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hotlap.cli import build_parser, command_modules
from hotlap.report.advice import COMMANDS

ALWAYS = {"torch", "numpy", "lightning", "transformers"}
STORED = ALWAYS | {"psutil", "plotly", "jinja2", "hotlap.diagnose.run", "hotlap.launch.process"}


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (("--help",), STORED | {"pyarrow", "rich", "yaml", "hotlap.facts.timeline"}),
        (("profile", "--help"), STORED | {"pyarrow", "rich", "yaml"}),
        (("explain", "host-sync"), ALWAYS | {"pyarrow", "rich", "yaml", "psutil"}),
        (("knobs",), ALWAYS | {"pyarrow", "rich", "yaml", "psutil"}),
        (("knobs", "show", "compile"), ALWAYS | {"pyarrow", "rich", "yaml", "psutil"}),
        (("plan", "--allow", "rounding,statistical", "train.py"), ALWAYS | {"rich"}),
        (("report", "last", "--format", "json"), STORED | {"rich", "yaml"}),
        (("report", "last", "--format", "terminal"), STORED),
        (("report", "last"), ALWAYS | {"psutil", "rich"}),
        (("diff", "last", "last"), STORED),
        (("diagnose", "last"), ALWAYS | {"psutil"}),
    ],
)
def test_what_is_not_needed_is_not_imported(profiled, words, unwanted):
    # As the console script does it: `main()` with the words in sys.argv.
    code = (
        "import sys\nfrom hotlap.cli import main\n"
        "try:\n    assert not main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"sys.stderr.write(' '.join(sorted({unwanted!r} & set(sys.modules))))"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=profiled,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


def test_numpy_is_at_hand_after_a_timeline_was_read_without_it(profiled):
    code = (
        "import sys\nfrom hotlap.cli import main\nassert not main()\n"
        "import numpy\nassert numpy.arange(3).sum() == 3"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", code, "report", "last", "--format", "json"]
    assert subprocess.run(command, cwd=profiled, env=environment, stdout=subprocess.DEVNULL).returncode == 0


def test_only_commands_that_exist_are_offered_by_reports():
    assert set(COMMANDS) <= {module.__name__.rpartition(".")[2] for module in command_modules()}


def test_every_command_says_what_it_does():
    for module in command_modules():
        assert (module.__doc__ or "").partition("\n")[0].endswith("."), module.__name__
    assert "report" in build_parser().format_help()
