"""`hotlap selftest`: one real run on the CPU, shared by the tests; one that fails; one that is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from rich.cells import cell_len

from hotlap.cli import main
from hotlap.pipeline import selftest
from hotlap.report.locale import LANGUAGES

COMMAND = (sys.executable, "-m", "hotlap", "selftest")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run once more where others disturbed its times."""
    done = _run(tmp_path_factory.mktemp("selftest"))
    return done if done.returncode == 0 else _run(tmp_path_factory.mktemp("selftest"))


def _run(folder: Path):
    return subprocess.run(
        [*COMMAND, "--json", "-"], cwd=folder, env=environment(folder), capture_output=True, text=True
    )


def environment(folder: Path, *first: str) -> dict[str, str]:
    source = str(Path(selftest.__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*first, source]), "TMPDIR": str(folder)}


@pytest.mark.alone
def test_every_planted_answer_is_found_on_the_cpu(ran):
    found = json.loads(ran.stdout)
    told = [(check["family"], check["figures"].get("stage"), check["state"]) for check in found["checks"]]
    assert ran.stderr == "" and ran.returncode == 0 and found["missed"] == 0, ran.stdout
    assert [(family, state) for family, stage, state in told if stage == "transfer"] == [
        ("attribution", "not-run")
    ]
    booked = {
        stage: state for family, stage, state in told if family == "attribution" and stage != "transfer"
    }
    assert booked == dict.fromkeys(selftest.DELAYS, "reached")
    rest = [(family, state) for family, stage, state in told if stage is None]
    families = ["sameness", "overhead", "experiment", "knob", "knob"]
    assert [family for family, _ in rest] == families
    undecided = [family for family, state in rest if state != "reached"]
    assert undecided in ([], ["experiment"]), "an experiment that others disturb is not decided"
    assert found["device"] == "cpu" and found["versions"]["torch"]


@pytest.mark.alone
@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_table_has_each_check_in_100_columns(ran, lang, monkeypatch, capsys):
    found = json.loads(ran.stdout)
    monkeypatch.setattr(selftest, "selftest", lambda version, say: found)
    assert main(["selftest", "--lang", lang]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= 100
    word = {"en": "reached", "zh": "达到"}[lang]
    assert sum(line.endswith(word) for line in lines) == sum(
        each["state"] == "reached" for each in found["checks"]
    )
    assert any("num-workers=2" in line for line in lines) and any(
        found["versions"]["torch"] in line for line in lines
    )


def test_a_torch_that_cannot_be_imported_is_told_and_ends_with_1(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('no device driver here')\n")
    done = subprocess.run(
        [*COMMAND, "--json", "-"],
        cwd=tmp_path,
        env=environment(tmp_path, str(tmp_path)),
        capture_output=True,
        text=True,
    )
    checks = {check["family"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1 and set(checks) == {
        "attribution",
        "sameness",
        "overhead",
        "experiment",
        "knob",
    }
    alone = checks["attribution"]
    assert (alone["state"], alone["reason"]) == ("not-run", "failed-alone") and "no device driver" in alone[
        "detail"
    ]
    assert checks["knob"]["state"] == "missed" and "exit code 1" in checks["knob"]["detail"]


@pytest.mark.skipif(os.name != "posix", reason="signals are sent")
def test_an_interrupt_ends_its_jobs_and_leaves_nothing(tmp_path):
    started = subprocess.Popen(
        COMMAND,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "selftest" in started.stderr.readline()
    process = psutil.Process(started.pid)
    while not (jobs := process.children(recursive=True)):
        assert started.poll() is None
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130 and "interrupted" in err and "Traceback" not in err and out == ""
    psutil.wait_procs(jobs, timeout=20)
    assert not [job for job in jobs if job.is_running()]
    assert not list(tmp_path.glob("hotlap-selftest-*"))
