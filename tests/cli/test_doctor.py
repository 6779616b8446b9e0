from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from hotlap.cli import doctor
from hotlap.errors import UsageError
from hotlap.facts.codec import from_plain
from hotlap.facts.host import Host
from hotlap.host import machine as launch_host


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    return doctor.run(parser.parse_args(words))


def test_the_text_tells_every_check_within_100_columns_and_without_colour(capsys):
    assert run() == 0
    text = capsys.readouterr().out
    for topic in (
        "GPU",
        "cores",
        "CPU",
        "memory",
        "/dev/shm",
        "start method",
        "storage",
        "compiler",
        "torch",
    ):
        assert f"  {topic} " in text
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= 100
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in text
    assert "hotlap doctor FOLDER" in lines[-1]


def test_json_to_standard_output_is_nothing_but_json(capsys):
    assert run("--json", "-") == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts) == ["schema", "host", "checks"]
    assert facts["schema"] == 1
    assert from_plain(Host, facts["host"]).cores >= 1
    assert {"topic", "value", "meaning", "level"} == set(facts["checks"][0])
    assert {check["level"] for check in facts["checks"]} <= {"ok", "hint", "warning"}


def test_json_to_a_file_comes_beside_the_text(tmp_path, capsys):
    assert run("--json", str(tmp_path / "host.json")) == 0
    facts = json.loads((tmp_path / "host.json").read_text())
    assert "warning" in capsys.readouterr().out
    assert {check["topic"] for check in facts["checks"]} >= {"cores", "/dev/shm"}


def test_json_to_a_place_that_is_not_there_names_it(tmp_path):
    with pytest.raises(UsageError, match="json cannot be written"):
        run("--json", str(tmp_path / "gone" / "host.json"))


def test_a_folder_is_measured_or_told_why_not(tmp_path, capsys):
    assert run(str(tmp_path), "--json", "-") == 0
    host = json.loads(capsys.readouterr().out)["host"]
    if host["storage"] is None:
        assert host["storage_note"]
    else:
        assert host["storage"]["folder"] == str(tmp_path)
        assert host["storage"]["read_bytes_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_names_it(tmp_path):
    with pytest.raises(UsageError, match=r"no folder '.*gone'"):
        run(str(tmp_path / "gone"))


def test_names_with_brackets_are_printed_as_they_are_and_warnings_counted(monkeypatch, capsys):
    odd = replace(
        launch_host.inspect_host(), cpu="Odd [bold] CPU :smile:", cores=1, affinity_cores=1, compiler=None
    )
    monkeypatch.setattr(launch_host, "inspect_host", lambda folder: odd)
    run()
    text = capsys.readouterr().out
    assert "Odd [bold] CPU :smile:" in text
    assert sum(line.startswith("warning ") for line in text.splitlines()) >= 2
    assert "2 warnings" in text or "3 warnings" in text


def test_asking_for_help_imports_neither_torch_nor_rich_nor_psutil():
    program = (
        "import argparse, sys; from hotlap.cli.doctor import add_arguments as add;"
        "add(argparse.ArgumentParser());"
        "print([name for name in ('torch', 'rich', 'psutil', 'numpy') if name in sys.modules])"
    )
    path = str(doctor.__file__).rsplit("/hotlap/", 1)[0]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": path})  # fmt: skip
    assert done.stdout.strip() == "[]"
