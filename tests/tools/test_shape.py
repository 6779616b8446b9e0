"""tools/shape.py on made-up trees: what it counts, what it lets pass and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import shape

Run = tuple[int, str]


def body(lines: int) -> str:
    """A module of exactly that many lines."""
    return "x = 1\n" * lines


def function(lines: int, name: str = "f") -> str:
    """An annotated function of exactly that many lines."""
    return f"def {name}() -> None:\n" + "    x = 1\n" * (lines - 1)


def options(count: int) -> str:
    return "".join(f'parser.add_argument("--option-{number}")\n' for number in range(count))


@pytest.fixture
def run(tmp_path, capsys):
    """Writes files into an otherwise empty tree and measures it: the exit code and what was printed."""

    def write_and_measure(files: dict[str, str]) -> Run:
        for package in shape.PACKAGES:
            (tmp_path / "src" / package).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        code = shape.main([str(tmp_path)])
        return code, capsys.readouterr().out

    return write_and_measure


def test_a_tidy_tree_passes_and_every_figure_is_printed(run):
    code, out = run(
        {
            "src/hotlap/a.py": function(4) + body(46),
            "src/hotlap/b.py": function(8) + body(92),
            "src/hotlap/c.py": function(30) + body(120),
            "src/hotlap_recipes/toy/train.py": function(4),
            "tests/test_a.py": body(360),
            "tests/hotlap_recipes/test_toy.py": body(4),
        }
    )
    assert code == 0
    assert out.splitlines() == [
        "hotlap: 3 files, 300 lines, 3 functions",
        "  file lines         median 100 (of 150)   p95 150 (of 400)   max 150 (of 500)",
        "  function lines     median 8 (of 8)   p95 30 (of 33)   max 30 (of 60)",
        "  test/source lines  1.20 (within 1.0 to 1.5)",
        "  annotated          100%",
        "  on a cycle         0 modules",
        "hotlap_recipes: 1 files, 4 lines, 1 functions",
        "  file lines         median 4 (of 150)   p95 4 (of 400)   max 4 (of 500)",
        "  function lines     median 4 (of 8)   p95 4 (of 33)   max 4 (of 60)",
        "  test/source lines  1.00 (within 1.0 to 1.5)",
        "  annotated          100%",
        "  on a cycle         0 modules",
        "  files beside units     3 (of 260)",
        "  small, imported once   0 (of 10)",
        "  class names twice      0 (of 5)",
        "  cycles of types        0 (of 0)",
        "  pairs that repeat      0 (of 10)",
        "CLI options: 0 of at most 42",
    ]


AT_THE_MAXIMUM = {
    "src/hotlap/a.py": body(shape.FILE_MAX),
    "src/hotlap/b.py": function(shape.FUNCTION_MAX),
    "src/hotlap/knobs/pin.py": body(shape.KNOB_MAX),
    "src/hotlap/knobs/__init__.py": body(shape.KNOB_MAX + 1),
    "src/hotlap_recipes/toy/train.py": body(shape.RECIPE_MAX),
    "src/hotlap_recipes/toy/model.py": body(shape.RECIPE_MAX),
    "src/hotlap_recipes/toy/make_data.py": body(shape.RECIPE_MAX + 1),
    "src/hotlap/cli/profile.py": options(shape.OPTIONS_MAX),
}


def test_what_is_exactly_at_its_maximum_passes(run):
    code, out = run(AT_THE_MAXIMUM)
    assert code == 0, out
    assert f"CLI options: {shape.OPTIONS_MAX} of at most {shape.OPTIONS_MAX}" in out


BREACHES = {
    "file": ("src/hotlap/a.py", body(501), "src/hotlap/a.py: 501 lines, at most 500 in a file"),
    "function": (
        "src/hotlap/b.py",
        "\n" + function(61),
        "src/hotlap/b.py:2 f: 61 lines, at most 60 in a function",
    ),
    "knob": (
        "src/hotlap/knobs/pin.py",
        body(181),
        "src/hotlap/knobs/pin.py: 181 lines, at most 180 in a knob",
    ),
    "recipe": (
        "src/hotlap_recipes/toy/model.py",
        body(351),
        "src/hotlap_recipes/toy/model.py: 351 lines, at most 350 in a recipe's model.py",
    ),
    "options": (
        "src/hotlap/cli/tune.py",
        options(1),
        "src/hotlap/cli: 43 options over all commands, at most 42",
    ),
    "annotation": ("src/hotlap/c.py", "def f(x): ...\n", "src/hotlap/c.py:1 f: not fully annotated"),
    "cycle": (
        "src/hotlap/d.py",
        "from hotlap import d\n",
        "hotlap.d: on an import cycle, none may be",
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_one_more_than_the_maximum_fails_and_is_named(run, breach):
    file, text, message = BREACHES[breach]
    code, out = run({**AT_THE_MAXIMUM, file: text})
    assert code == 1
    assert out.partition("over the maximum:\n")[2].splitlines() == [f"  {message}"]


def test_medians_and_percentiles_over_their_aim_are_marked_but_do_not_fail(run):
    code, out = run({"src/hotlap/a.py": function(50) + body(370), "tests/test_a.py": body(4200)})
    assert code == 0
    assert "file lines         median 420 (over 150)   p95 420 (over 400)   max 420 (of 500)" in out
    assert "function lines     median 50 (over 8)   p95 50 (over 33)   max 50 (of 60)" in out
    assert "test/source lines  10.00 (over 1.0 to 1.5)" in out


def test_files_that_only_mark_a_package_do_not_lower_the_median(run):
    marker = '"""The facts."""\n'
    _, out = run(
        {"src/hotlap/a.py": body(90), "src/hotlap/__init__.py": marker, "src/hotlap/x/__init__.py": ""}
    )
    assert "hotlap: 1 files, 91 lines" in out
    assert "file lines         median 90" in out


def test_tests_of_recipes_and_of_tools_are_counted_apart(run):
    _, out = run(
        {
            "src/hotlap/a.py": body(10),
            "src/hotlap_recipes/toy.py": body(10),
            "tests/conftest.py": body(5),
            "tests/facts/test_a.py": body(6),
            "tests/hotlap_recipes/test_toy.py": body(1),
            "tests/recipes/test_toy.py": body(2),
            "tests/tools/test_shape.py": body(500),
        }
    )
    assert "test/source lines  1.10 (within" in out
    assert "test/source lines  0.30 (under" in out


def test_the_percentile_is_the_nearest_rank():
    assert shape.percentile(range(1, 101), 95) == 95
    assert shape.percentile([3, 1, 2], 95) == 3
    assert shape.percentile([7], 95) == 7


CYCLES = {
    "a ring of three": {
        "a": "import hotlap.b\n",
        "b": "from hotlap.c import value\n",
        "c": "from hotlap import a\n",
    },
    "relative": {"a": "from . import b\n", "b": "from .a import value\n"},
    "relative from a package": {"x/__init__": "from .y import value\n", "x/y": "from .. import x\n"},
    "one folder up": {"a": "from hotlap.x.y import value\n", "x/y": "from ..a import value\n"},
    "inside try, class and if": {
        "a": "try:\n    import hotlap.b\nexcept ImportError:\n    pass\n",
        "b": "class B:\n    if True:\n        import hotlap.a\n",
    },
    "the branch that runs": {
        "a": "if TYPE_CHECKING:\n    pass\nelse:\n    import hotlap.b\n",
        "b": "if not TYPE_CHECKING:\n    import hotlap.a\n",
    },
}


@pytest.mark.parametrize("case", CYCLES)
def test_modules_that_import_each_other_are_refused(run, case):
    files = {f"src/hotlap/{name}.py": text for name, text in CYCLES[case].items()}
    code, out = run(files)
    assert code == 1
    assert f"on a cycle         {len(files)} modules" in out
    names = sorted(f"hotlap.{name}".replace("/__init__", "").replace("/", ".") for name in CYCLES[case])
    assert f"{', '.join(names)}: on an import cycle" in out


NO_CYCLES = {
    "one way": {"a": "import hotlap.b\n", "b": "import json\n"},
    "while type checking": {"a": "import hotlap.b\n", "b": "if TYPE_CHECKING:\n    import hotlap.a\n"},
    "by the module's name": {
        "a": "import hotlap.b\n",
        "b": "if typing.TYPE_CHECKING:\n    import hotlap.a\n",
    },
    "late": {"a": "import hotlap.b\n", "b": "def f() -> None:\n    import hotlap.a\n"},
    "a diamond": {
        "a": "from hotlap import b, c\n",
        "b": "import hotlap.d\n",
        "c": "import hotlap.d\n",
        "d": "",
    },
    "a name of the package": {"__init__": "import hotlap.a\n", "a": "from hotlap import b\n", "b": ""},
}


@pytest.mark.parametrize("case", NO_CYCLES)
def test_other_imports_are_no_cycle(run, case, monkeypatch):
    monkeypatch.setattr(shape, "TYPED_NOW", 2)
    code, out = run({f"src/hotlap/{name}.py": text for name, text in NO_CYCLES[case].items()})
    assert code == 0, out
    assert "on a cycle         0 modules" in out


def test_two_separate_cycles_are_named_apart(run):
    ring = {"a": "b", "b": "a", "c": "d", "d": "c", "e": "a"}  # e leads into a cycle but is not on it
    code, out = run({f"src/hotlap/{name}.py": f"import hotlap.{other}\n" for name, other in ring.items()})
    assert code == 1
    assert out.partition("over the maximum:\n")[2].splitlines() == [
        "  hotlap.a, hotlap.b: on an import cycle, none may be",
        "  hotlap.c, hotlap.d: on an import cycle, none may be",
    ]


def test_an_option_counts_once_for_each_command_and_once_if_shared(run):
    _, out = run(
        {
            "src/hotlap/cli/profile.py": (
                'parser.add_argument("script")\n'
                'parser.add_argument("-o", "--out", help="--not-an-option")\n'
                'group.add_argument("--steps", type=int)\n'
                'other.add_argument("--steps", type=int)\n'
            ),
            "src/hotlap/cli/tune.py": 'def add(parser: Any) -> None:\n    parser.add_argument("--steps")\n',
            "src/hotlap/cli/shared.py": 'parser.add_argument("--json")\n',
            "src/hotlap/report/view.py": 'parser.add_argument("--elsewhere")\n',
        }
    )
    assert "CLI options: 4 of at most 42" in out


@pytest.mark.parametrize("call", ["add_argument(name)", "add_argument(*names)", 'add_argument(f"--{name}")'])
def test_an_option_that_cannot_be_counted_is_refused(run, call):
    code, out = run({"src/hotlap/cli/tune.py": f"x = 1\nparser.{call}\n"})
    assert code == 1
    assert "src/hotlap/cli/tune.py:2: the name of an option must be a literal" in out


@pytest.mark.parametrize(
    ("text", "annotated"),
    [
        ("def f() -> None: ...\n", True),
        ("def f(): ...\n", False),
        ("def f(x: int, *rest: int, y: int, **more: int) -> None: ...\n", True),
        ("def f(x: int, *rest) -> None: ...\n", False),
        ("def f(*, y) -> None: ...\n", False),
        ("def f(**more) -> None: ...\n", False),
        ("def f(x, /) -> None: ...\n", False),
        ("async def f(x) -> None: ...\n", False),
        ("def f(self) -> None: ...\n", False),
        ("class A:\n    def f(self, x: int) -> None: ...\n", True),
        ("class A:\n    def f(self, x) -> None: ...\n", False),
        ("class A:\n    @classmethod\n    def f(cls) -> None: ...\n", True),
        ("class A:\n    @staticmethod\n    def f(x) -> None: ...\n", False),
        ("class A:\n    def __init__(self): ...\n", False),
        ("def f() -> None:\n    def g(x): ...\n", False),
    ],
)
def test_what_counts_as_annotated(run, text, annotated):
    code, out = run({"src/hotlap/a.py": text})
    assert code == (0 if annotated else 1), out
    assert ("not fully annotated" in out) is not annotated


def test_a_decorator_is_not_a_line_of_its_function(run):
    _, out = run({"src/hotlap/a.py": "@decorate\n@again\n" + function(3)})
    assert "function lines     median 3" in out


def test_what_cannot_be_read_is_said_and_is_no_pass(tmp_path, capsys):
    assert shape.main([str(tmp_path / "nowhere")]) == 2
    assert f"there is no folder {tmp_path / 'nowhere' / 'src' / 'hotlap'}" in capsys.readouterr().err
    for package in shape.PACKAGES:
        (tmp_path / "src" / package).mkdir(parents=True)
    (tmp_path / "src/hotlap/torn.py").write_text("def f(:\n")
    assert shape.main([str(tmp_path)]) == 2
    assert "torn.py" in capsys.readouterr().err


def test_as_a_script_it_measures_its_own_repository_and_returns_the_code(tmp_path):
    for package in shape.PACKAGES:
        (tmp_path / "src" / package).mkdir(parents=True)
    (tmp_path / "src/hotlap/long.py").write_text(body(501))
    script = tmp_path / "tools" / "shape.py"
    script.parent.mkdir()
    script.write_text(Path(shape.__file__).read_text())
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "src/hotlap/long.py: 501 lines" in ended.stdout


HIDDEN = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import hotlap.search.a\n"


def test_what_makes_a_thing_hard_to_find_is_counted(run, monkeypatch):
    monkeypatch.setattr(shape, "TYPED_NOW", 2)
    code, out = run(
        {
            "src/hotlap/search/a.py": "import hotlap.search.b\n\n\nclass Budget: ...\n" + body(60),
            "src/hotlap/search/b.py": HIDDEN + "class Budget: ...\nclass _Own: ...\n",
            "src/hotlap/search/__init__.py": "",
            "src/hotlap/late.py": "def f() -> None:\n    import hotlap.small\n" + body(60),
            "src/hotlap/small.py": "class _Own: ...\n",
            "src/hotlap/knobs/pin.py": body(3),
            "src/hotlap/knobs/__init__.py": '"""Knobs."""\n',
        }
    )
    assert code == 0, "within what the code has come down to"
    assert "files beside units     4 (of 260)" in out
    assert "small, imported once   2 (of 10)" in out  # search.b and small, not the large ones and no package
    assert "class names twice      1 (of 5)" in out
    assert "cycles of types        2 (over 0)" in out


STEPS = [f"step_{number} = {number}\n" for number in range(shape.REPEATED)]


def test_two_files_that_share_lines_of_code_are_a_pair(run, monkeypatch):
    monkeypatch.setattr(shape, "PAIRS_MAX", 0)
    monkeypatch.setattr(shape, "PAIRS_NOW", 0)
    apart = "# a comment\n\n".join(STEPS)
    code, out = run({"src/hotlap/a.py": "".join(STEPS), "src/hotlap/b.py": "import os\n" + apart})
    assert code == 1
    assert "pairs that repeat: 1, at most 0: src/hotlap/a.py ~ src/hotlap/b.py" in out


@pytest.mark.parametrize(
    "text",
    ["".join(STEPS[1:]), "from os import (\n" + "    path,\n" * 9 + ")\n", body(shape.REPEATED)],
    ids=["too few", "imports", "one line again and again"],
)
def test_what_is_no_repeat_of_code_is_no_pair(run, text):
    _, out = run({"src/hotlap/a.py": text, "src/hotlap/b.py": text})
    assert "pairs that repeat      0 (of 10)" in out


def test_more_than_the_code_has_come_down_to_fails_with_the_names(run, monkeypatch):
    monkeypatch.setattr(shape, "TWICE_MAX", 0)
    monkeypatch.setattr(shape, "TWICE_NOW", 0)
    files = {"src/hotlap/a.py": "class Budget: ...\n", "src/hotlap/b.py": "class Budget: ...\n"}
    code, out = run(files)
    assert code == 1
    assert "class names twice: 1, at most 0: Budget" in out
