"""Plans that YAML would take for something else, or choke on, are refused with the line and one remedy."""

from __future__ import annotations

import pytest

from hotlap.cli import main
from hotlap.errors import FactError
from hotlap.plan.file import read_plan

DEEP = "[" * 3000 + "]" * 3000
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


def settings(text):
    return f"hotlap: 1\nsettings: {text}\n"


def refused(tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FactError) as caught:
        read_plan(path)
    assert caught.value.exit_code == 2
    assert caught.value.remedy
    assert len(str(caught.value)) < 2000
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (settings("{? [a, b] : 1}"), "line 2: a sequence stands where a key belongs"),
        (settings("{? {a: b} : 1}"), "line 2: a mapping stands where a key belongs"),
        (settings("{num-workers: 2001-99-99}"), "'2001-99-99' is not allowed"),
        (settings("{num-workers: !!float x}"), "is a tag"),
        (settings("{num-workers: !!int x}"), "is a tag"),
        (settings("{num-workers: !!python/object/apply:os.system [id]}"), "is a tag"),
        (settings("{num-workers: ! 4}"), "is a tag"),
        (settings(f"{{num-workers: {DEEP}}}"), "more than 20 levels"),
        (settings(f"{{num-workers: {'9' * 5000}}}"), "has 5,000 digits"),
        (BOMB + settings("{num-workers: *h}"), "is an anchor or an alias"),
        (settings("{<<: {num-workers: 4}}"), "no knob is called '<<'"),
        (settings("0"), "settings are a mapping, not a number"),
        (settings("false"), "settings are a mapping, not a truth value"),
        (settings("[]"), "settings are a mapping, not a list"),
        (settings("''"), "settings are a mapping, not text"),
        (settings("{num-workers: 010}"), "write 10 or 8"),
        (settings("{num-workers: 1:30}"), 'write 90 or "1:30"'),
        (settings("{num-workers: 1_000}"), "write 1000"),
        (settings('{num-workers: "\\Uffffffff"}'), "not readable YAML"),
        ("hotlap: 1\n# " + "x" * (1 << 20), "more than 1,048,576 bytes"),
        ("hotlap: 1\nproof: 0\n", "proof should be a mapping"),
    ],
)
def test_a_plan_that_yaml_reads_otherwise_is_refused_in_few_words(tmp_path, text, what):
    assert what in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("value", "read"),
    [("4", 4), ("'4'", 4), ("0x10", 16), ('"010"', 10)],
    ids=["plain", "text", "hex", "quoted"],
)
def test_a_number_that_means_what_it_looks_like_is_read(tmp_path, value, read):
    (tmp_path / "plan.yaml").write_text(settings(f"{{num-workers: {value}}}"))
    assert read_plan(tmp_path / "plan.yaml").settings == {"num-workers": read}


@pytest.mark.parametrize("word", ["off", "no", "false"])
def test_words_of_yaml_for_no_are_still_off(tmp_path, word):
    (tmp_path / "plan.yaml").write_text(settings(f"{{compile: {word}}}"))
    assert read_plan(tmp_path / "plan.yaml").settings == {"compile": "off"}


def test_the_command_line_shows_a_foreign_key_without_its_escape_sequence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "plan.yaml").write_text(settings('{"\\e]0;owned\\a\\u202eknob": 1}'))
    assert main(["run", "--plan", "plan.yaml", "train.py"]) == 2
    shown = capsys.readouterr().err
    assert "\\x1b]0;owned\\x07\\u202eknob" in shown
    assert not set("\x1b\x07\u202e") & set(shown)
