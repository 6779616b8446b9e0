"""The command line as users see it: all commands and all options, kept in tests/cli_surface.txt.

HOTLAP_REGOLD=1 writes the file anew; a change of it is a change for every user and belongs in the changelog.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.cli import build_parser

SURFACE = Path(__file__).parents[1] / "cli_surface.txt"


def surface() -> str:
    parser = build_parser()
    commands = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    lines = []
    for name, command in sorted(commands.choices.items()):
        words = [_word(action) for action in command._actions if action.dest != "help"]
        lines.append(" ".join(["hotlap", name, *words]))
    return "\n".join(lines) + "\n"


def _word(action: argparse.Action) -> str:
    name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
    choices = f"={{{','.join(map(str, action.choices))}}}" if action.choices else ""
    return f"{name}{choices}" if action.option_strings else f"[{name}]"


def test_the_surface_is_as_written_down():
    if os.environ.get("HOTLAP_REGOLD"):
        SURFACE.write_text(surface())
    assert surface() == SURFACE.read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad-input")
    (folder / "empty.py").write_text("print('no training here')\n")
    (folder / "torch_only.py").write_text("import torch\nprint(torch.ones(1).sum())\n")
    (folder / "fails.py").write_text("import sys\nsys.exit(7)\n")
    (folder / "taken").write_text("a file, not a folder\n")

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hotlap", "profile", *words],
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.mark.parametrize(
    ("words", "code", "message", "remedy"),
    [
        ((), 2, "no command to run", "hotlap profile train.py"),
        (("missing.py",), 2, "there is no script 'missing.py'", "check the path"),
        (("--", "no-such-launcher"), 2, "no command 'no-such-launcher'", "spelling"),
        (("--", sys.executable, "-I", "empty.py"), 2, "python -I ignores", "leave -I away"),
        (("--steps", "0", "empty.py"), 2, "--steps is 0", "from 1 on"),
        (("--full", "--experiments", "60s", "empty.py"), 2, "--full has none", "--steps N"),
        (("--experiments", "20", "empty.py"), 2, "--experiments 20 is no time", "60s, 2m or off"),
        (("--out", "taken/run", "empty.py"), 2, "taken/run cannot be written", "--out DIR"),
        (("empty.py",), 0, "never imported torch", "the script that trains"),
        (("torch_only.py",), 0, "no training step was seen", "the script that trains"),
        (("fails.py",), 7, "never imported torch", ""),
        (("--", "true"), 0, "no Python process", "is it a Python program"),
    ],
    ids=lambda value: "-".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_bad_input_gets_one_message_a_remedy_and_the_right_exit_code(run, words, code, message, remedy):
    ended = run(*words)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr
    assert remedy in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_hotlap_inside_the_first_steps_aside(run, tmp_path):
    ended = run("fails.py", HOTLAP_PROBE=str(tmp_path), HOTLAP_ORIGIN="0")
    assert ended.returncode == 7
    assert "already runs under hotlap" in ended.stderr
