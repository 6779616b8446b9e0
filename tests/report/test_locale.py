"""Both languages say everything, with the same figures, for every cause that hotlap names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotlap.errors import HotlapError
from hotlap.facts.diagnosis import Cause, Severity
from hotlap.facts.timeline import Ending, Stage
from hotlap.report.locale import LANGUAGES, LOOKED_UP, WRITTEN, Phrases, fields, texts

CAUSES_PAGE = Path(__file__).parents[2] / "docs" / "causes.md"
CHINESE = re.compile("[\u4e00-\u9fff]")
# The same in every language: names of machines, settings of torch, and pure arrangements of figures.
SAME = re.compile(
    r"knob\.|column\.rank|host\.(cpu|gpu|shm|cpu_formats|gpu_figures|storage_figures)$|word\.(shm|foreach)|section\.cpu$"
    r"|html\.(axis_memory|cpu_iowait|tokens_per_s)|verdict\.without_share|list\.comma|basis\.also_experiment|experiments\.(gain|one|cause)$|workers\.of_loader|lines\.through"
    r"|tuned\.guard$|checked\.why$|compared\.busy$"
)


def documented() -> dict[str, tuple[set[str], set[str]]]:
    """Per cause: the evidence that is always there, and all of it."""
    rows = {}
    for line in CAUSES_PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] in set(Cause):
            keys = re.findall(r"`(\w+)`( \*optional\*)?", cells[1])
            rows[cells[0]] = ({key for key, optional in keys if not optional}, {key for key, _ in keys})
    return rows


def test_both_languages_have_the_same_keys_and_figures():
    english, chinese = texts("en"), texts("zh")
    assert set(english) == set(chinese)
    assert [key for key in english if fields(english[key]) != fields(chinese[key])] == []


def test_the_chinese_report_is_chinese():
    assert [
        key for key, text in texts("zh").items() if not CHINESE.search(text) and not SAME.match(key)
    ] == []


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_cause_stage_ending_and_severity_has_its_words(lang):
    say = Phrases(lang)
    wanted = [f"{part}.{cause}" for part in ("verdict", "why", "todo") for cause in Cause]
    wanted += [f"stage.{stage}" for stage in Stage] + [f"ending.{ending}" for ending in Ending]
    wanted += [f"word.{severity}" for severity in Severity]
    assert [key for key in wanted if key not in say] == []


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("cause", list(Cause))
def test_sentences_ask_for_the_evidence_that_the_cause_has(lang, cause):
    always, known = documented()[cause]
    for part in ("why", "todo"):
        text = texts(lang)[f"{part}.{cause}"]
        assert fields(text) <= known
        assert fields(re.sub(r"\[\[.*?\]\]", "", text)) <= always, "an optional figure must stand in brackets"


@pytest.mark.parametrize("cause", list(Cause))
def test_the_why_of_a_cause_uses_all_that_is_always_known(cause):
    always, _ = documented()[cause]
    assert always - fields(texts("en")[f"why.{cause}"]) == set()


def test_all_causes_are_documented():
    assert set(documented()) == set(Cause)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_way_of_writing_is_known(lang):
    used = {way for text in texts(lang).values() for way in re.findall(r"\{\w+:(\w+)\}", text)}
    assert used <= {*WRITTEN, *LOOKED_UP}


def test_an_unknown_language_is_refused_with_the_known_ones():
    with pytest.raises(HotlapError) as refused:
        Phrases("fr")
    assert "'fr'" in str(refused.value) and "en, zh" in str(refused.value)


def test_what_was_not_measured_is_said_or_left_away(monkeypatch):
    say = Phrases("en")
    monkeypatch.setitem(texts("en"), "test", "a {a:ms}[[, b {b:share}]][[, c {c}]].")
    assert say("test", a=2, b=0.5, c="x") == "a 2.00 ms, b 50 %, c x."
    assert say("test", b=None, c="") == "a not measured."
    assert say("test", a=float("nan"), b=float("inf")) == "a not measured."
    assert say("test", a=0, b=0, c=0) == "a 0 us, b 0 %, c 0."


@pytest.mark.parametrize(
    ("count", "shown"),
    [(1, "1 step is"), (0, "0 steps are"), (2, "2 steps are"), (None, "not measured steps are")],
)
def test_one_is_not_many(monkeypatch, count, shown):
    monkeypatch.setitem(texts("en"), "test", "{n:count} {n?step is|steps are}")
    assert Phrases("en")("test", n=count) == shown


def test_no_count_stands_before_a_plural_that_cannot_change():
    """`1 epochs` reads badly: `{epochs:count} {epochs?epoch|epochs}`."""
    several = {
        "diff.batch",
        "diff.no_proof",
        "html.bucket",
        "why.straggler-rank",
        "why.comm-exposed",
        "why.step-outliers",
        "why.repeated-work",
    }
    odd = [key for key, text in texts("en").items() if re.search(r"\{\w+:count\} (steady )?[a-z]+s\b", text)]
    assert set(odd) <= several


def test_values_are_not_read_as_texts(monkeypatch):
    monkeypatch.setitem(texts("en"), "test", "{a} [[{b}]]")
    assert Phrases("en")("test", a="{b} [[x]]", b="{a}") == "{b} [[x]] {a}"


@pytest.mark.parametrize(
    ("value", "written", "shown"),
    [
        (0.0004, "share", "<0.1 %"),
        (0.004, "share", "0.4 %"),
        (0.0, "share", "0 %"),
        (1234567, "count", "1,234,567"),
        (1.45, "gain", "+145 %"),
        (-0.1, "gain", "-10 %"),
        (1536, "mib", "1.50 GiB"),
        (250, "us", "250 us"),
        (12.5, "ms", "12.5 ms"),
        (1.214, "cores", "1.21"),
        (2.0, "", "2"),
        (None, "ms", "not measured"),
        ("fork", "ms", "fork"),
    ],
)
def test_numbers_as_people_read_them(value, written, shown):
    assert Phrases("en").number(value, written) == shown


def test_words_of_facts_are_translated_where_there_is_a_word():
    assert Phrases("zh").word("critical") == "严重"
    assert Phrases("zh").word("never seen") == "never seen"
