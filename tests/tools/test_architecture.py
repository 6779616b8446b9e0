"""ARCHITECTURE.md is true: its walks lead through files that there are, each reached from one before it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import shape

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## Five walks\n")[2].partition("\n## ")[0]
WALKS = {
    title: re.findall(r"^\d+\. `([^`]+)`(.*)$", body, flags=re.MULTILINE)
    for title, body in re.findall(
        r"^\*\*`?(.+?)`?\*\*:(.*?)(?=^\*\*|\Z)", SECTION, flags=re.MULTILINE | re.DOTALL
    )
}
PLACES = re.findall(r"^\|[^|`]+\| `([\w/]+\.py)` \| `(\w+)` \|$", TEXT, flags=re.MULTILINE)
ELSEWHERE = (
    "in the job's own process",
    "in the parent again",
    "draws that data",
)  # reached by files, not by imports


def imports_of(path: Path, known: set[str]) -> set[str]:
    """All modules that a file names in imports, those inside of functions too; with what `__init__` stands for."""
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    module = shape.Module(name, str(path), 0, ast.parse(path.read_text(encoding="utf-8")), is_package)
    nodes = [node for node in ast.walk(module.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {target for node in nodes for target in shape._targets(node, module, known)}


def name_of(shown: str) -> str:
    return "hotlap." + shown.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_there_are_five_walks():
    assert list(WALKS) == ["hotlap profile", "hotlap tune", "hotlap run", "Loader", "A report"]


@pytest.mark.parametrize("walk", WALKS)
def test_each_file_of_a_walk_is_imported_by_one_before_it(walk):
    files = [shown for shown, _ in WALKS[walk]]
    assert [shown for shown in files if not (ROOT / "src/hotlap" / shown).is_file()] == []
    known = {module.name for module in shape.read_package(ROOT, "hotlap")}
    reached: set[str] = set()
    lost = []
    for shown, words in WALKS[walk]:
        starts = not reached or any(each in words for each in ELSEWHERE)
        if not starts and name_of(shown) not in reached:
            lost.append(shown)
        reached |= imports_of(ROOT / "src/hotlap" / shown, known)
    assert lost == []


def test_places_are_listed():
    assert len(PLACES) >= 10


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_an_idea_is_in_the_file_that_is_named_for_it(file, name):
    body = ast.parse((ROOT / "src/hotlap" / file).read_text(encoding="utf-8")).body
    assert name in {each.name for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef)}


def test_each_module_of_the_search_has_tests_of_its_own():
    modules = {path.stem for path in (ROOT / "src/hotlap/search").glob("*.py")} - {"__init__"}
    tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests/search").glob("test_*.py")}
    assert modules <= tested
