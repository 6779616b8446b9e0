"""README.md and README.zh-CN.md are twins: the same headings, commands, figures and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotlap.cli import build_parser, command_modules, demo

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))
TWINS = (ENGLISH, CHINESE)


def blocks(text):
    return re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def prose(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text):
    return re.findall(r"^(#+) (.+)$", prose(text), flags=re.MULTILINE)


def commands(text):
    """Of the blocks, without what is said about them."""
    lines = (line for kind, body in blocks(text) if not kind for line in body.splitlines())
    return [line.partition("#")[0].rstrip() for line in lines]


def named(text):
    """What stands in backticks and is typed: commands and options."""
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(text)))
    return sorted(span for span in spans if re.match(r"hotlap|make|pip|python|-", span))


def figures(text):
    """Numbers of a table's rows: what was measured is the same in both."""
    rows = [line for line in prose(text).splitlines() if line.startswith("|") and "bench/" in line]
    return [sorted(re.findall(r"\d+(?:[.,]\d+)*", row)) for row in rows]


def test_headings_are_as_many_and_as_deep():
    assert [level for level, _ in headings(ENGLISH)] == [level for level, _ in headings(CHINESE)]
    assert headings(ENGLISH)[0] == headings(CHINESE)[0] == ("#", "hotlap")
    translated = [title for _, title in headings(CHINESE)[1:]]
    assert len(translated) >= 5 and all(re.search("[\u4e00-\u9fff]", title) for title in translated)


def test_commands_are_the_same():
    assert commands(ENGLISH) == commands(CHINESE)
    assert named(ENGLISH) == named(CHINESE)
    assert len(commands(ENGLISH)) >= 6


def test_links_are_the_same_and_lead_somewhere():
    found = [
        sorted(set(re.findall(r"\]\(([^)]+)\)", text)) - {"README.md", "README.zh-CN.md"}) for text in TWINS
    ]
    assert found[0] == found[1]
    assert [link for link in found[0] if not (ROOT / link).exists()] == []


def test_measured_figures_are_the_same_and_their_bench_is_there():
    assert figures(ENGLISH) == figures(CHINESE) and len(figures(ENGLISH)) >= 4
    assert all((ROOT / name).exists() for name in re.findall(r"`(bench/\w+\.py)", ENGLISH))


def test_they_are_read_in_a_minute():
    assert all(len(text.splitlines()) <= 120 for text in TWINS)


def test_the_demos_output_is_of_its_commands():
    output = next(
        body for kind, body in blocks((ROOT / "docs/demo.md").read_text(encoding="utf-8")) if kind == "text"
    )
    shown = [line.removeprefix("$ ").split() for line in output.splitlines() if line.startswith("$ ")]
    known = [words[:2] for words in demo.commands(Path("nowhere"))]
    assert shown and all(words[:2] in known for words in shown)
    assert "Traceback" not in output and "hotlap_recipes.printer_tcn.train" in output


@pytest.mark.parametrize("text", TWINS, ids=["en", "zh"])
def test_every_command_is_there(text):
    names = {module.__name__.rpartition(".")[2] for module in command_modules()}
    told = set(re.findall(r"`hotlap (\w+)", text))
    assert told == names, "the READMEs name every command, and no other"
    assert build_parser().prog == "hotlap"
