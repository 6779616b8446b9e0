"""The words after `hotlap profile`: every form of a command, and every refusal with its remedy."""

from __future__ import annotations

import sys

import pytest

from hotlap.errors import UsageError
from hotlap.launch.command import to_job

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "evaluate.py").touch()
    (tmp_path / "launch").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "bare").write_text("import torch\n")
    (tmp_path / "run.sh").write_text("#!/bin/bash\n")
    (tmp_path / "tool").write_text("#!/bin/bash\n")
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0\0\0")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "argv", "name"),
    [
        (["train.py"], (PYTHON, "train.py"), "train"),
        (["train.py", "--epochs", "1"], (PYTHON, "train.py", "--epochs", "1"), "train"),
        (["train.py", "-m", "--", "-I"], (PYTHON, "train.py", "-m", "--", "-I"), "train"),
        (["./train.py"], (PYTHON, "./train.py"), "train"),
        (["launch", "x"], (PYTHON, "launch", "x"), "launch"),
        (["bare"], (PYTHON, "bare"), "bare"),
        (["app"], (PYTHON, "app"), "app"),
        (["-m", "package.train", "-v"], (PYTHON, "-m", "package.train", "-v"), "train"),
        (["-m", "train"], (PYTHON, "-m", "train"), "train"),
        (["--", "torchrun", "--nproc", "2", "train.py"], ("torchrun", "--nproc", "2", "train.py"), "train"),
        (["--", "torchrun", "-m", "package.train"], ("torchrun", "-m", "package.train"), "train"),
        (["--", "python", "-u", "train.py"], ("python", "-u", "train.py"), "train"),
        (["--", "bash", "run.sh"], ("bash", "run.sh"), "bash"),
        (["--", "./run.sh"], ("./run.sh",), "run"),
        (["--", "python"], ("python",), "job"),
    ],
)
def test_forms(folder, words, argv, name):
    job = to_job(words)
    assert (job.argv, job.name, job.cwd) == (argv, name, str(folder))


def test_a_name_may_be_given():
    assert to_job(["train.py"], "mine").name == "mine"


@pytest.mark.parametrize(
    ("words", "what", "remedy"),
    [
        ([], "there is no command to run.", "hotlap profile train.py --epochs 1"),
        (["--"], "there is no command after '--'.", "hotlap profile -- torchrun"),
        (["-m"], "-m needs the name of a module.", "hotlap profile -m package.train"),
        (["trian.py"], "there is no script 'trian.py'.", "did you mean 'train.py'?"),
        (["empty/train.py"], "there is no script 'empty/train.py'.", "check the path"),
        (["zzzzzz.py"], "there is no script 'zzzzzz.py'.", "beside it are: evaluate.py, train.py"),
        (["no/such/train.py"], "there is no script 'no/such/train.py'.", "check the path"),
        (["torchrun", "train.py"], "there is no script 'torchrun'.", "hotlap profile -- torchrun ..."),
        (["run.sh"], "'run.sh' is not a Python script.", "hotlap profile -- run.sh ..."),
        (["tool"], "'tool' is not a Python script.", "hotlap profile -- tool ..."),
        (["binary"], "'binary' is not a Python script.", "hotlap profile -- binary ..."),
        (["empty"], "'empty' is not a Python script.", "hotlap profile -- empty ..."),
    ],
)
def test_refusals(words, what, remedy):
    with pytest.raises(UsageError) as refusal:
        to_job(words)
    assert refusal.value.what == what
    assert remedy in refusal.value.remedy
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["python", "-I", "train.py"], "I"),
        (["/usr/bin/python3.11", "-E", "train.py"], "E"),
        (["python3", "-S", "train.py"], "S"),
        (["python", "-uI", "train.py"], "I"),
        (["python", "-W", "ignore", "-X", "dev", "-I", "train.py"], "I"),
        (["nice", "-n", "5", "python", "-I", "train.py"], "I"),
        (["env", "A=1", "python", "-E", "-m", "train"], "E"),
    ],
)
def test_a_python_that_would_keep_the_probe_out_is_refused(words, flag):
    with pytest.raises(UsageError, match=f"python -{flag} ignores the environment") as refusal:
        to_job(["--", *words])
    assert f"leave -{flag} away" in refusal.value.remedy


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "-I"],
        ["python", "-m", "train", "-S"],
        ["python", "-c", "print('ISE')", "-I"],
        ["python", "-um", "train", "-I"],
        ["python", "-Wignore::ImportWarning", "train.py"],
        ["python", "-W", "ignore::SyntaxWarning", "train.py"],
        ["python", "-Xfrozen_modules=off", "-s", "-P", "-B", "train.py"],
        ["python", "-", "-I"],
        ["torchrun", "train.py", "python", "-I"],
        ["python3-config", "-I"],
    ],
)
def test_other_flags_pass(words):
    assert to_job(["--", *words]).argv == tuple(words)
