"""What is published: a wheel with every file of src, beside a torch that it does not touch."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import hotlap
from hotlap.diagnose.checkup import TESTED_TORCH

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BACKEND = "import sys; from setuptools import build_meta as b; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder with both, as the build backend makes them of the files of the repository."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "README.zh-CN.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    made = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-c", BACKEND, str(made)], cwd=tree, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


def metadata_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def test_both_hold_every_file_of_the_packages(dist, wheel):
    source = ROOT / "src"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    files = {each for each in files if "__pycache__" not in each and ".egg-info" not in each}
    with zipfile.ZipFile(wheel) as archive:
        assert files <= set(archive.namelist())
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{each}" for each in files} | {"CHANGELOG.md", "LICENSE"} <= packed
    assert not any(name.startswith("tests") for name in packed)


def test_the_metadata_are_rendered_by_an_index(dist):
    if importlib.util.find_spec("twine") is None:
        pytest.skip("twine is not installed: pip install 'hotlap[release]'")
    files = [str(path) for path in dist.iterdir()]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def stand_in(folder, name, version):
    """A wheel without a file, so that an installer has something to choose."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize("there", ["2.5.1+cpu", "2.99.0"])
def test_a_torch_that_is_there_is_not_replaced(wheel, tmp_path, there):
    if not any(each.name == "pip" for each in metadata.distributions()):
        pytest.skip("pip is not installed")
    index, environment = tmp_path / "index", tmp_path / "environment"
    index.mkdir()
    needed = [re.match(r"[\w-]+", each)[0] for each in PROJECT["dependencies"]]
    for name in needed:
        stand_in(index, name.replace("-", "_"), "99.0")
    stand_in(index, "torch", "2.10.0")  # one that the extra would have
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / f"torch-{there}.dist-info").mkdir()
    (packages / f"torch-{there}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch\nVersion: {there}\n"
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--python",
        str(environment / "bin" / "python"),
        "install",
    ]
    report = tmp_path / "report.json"
    words = [
        "--dry-run",
        "--quiet",
        "--no-index",
        "--find-links",
        str(index),
        "--report",
        str(report),
        str(wheel),
    ]
    base = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "PYTHONPATH"))}
    subprocess.run([*pip, *words], check=True, env=base | {"PIP_CONFIG_FILE": os.devnull})
    chosen = {
        each["metadata"]["name"].replace("_", "-") for each in json.loads(report.read_text())["install"]
    }
    assert chosen == {"hotlap", *needed}


def test_the_extra_asks_for_the_oldest_torch_that_is_tested(wheel):
    (extra,) = PROJECT["optional-dependencies"]["torch"]
    (major, minor), _ = TESTED_TORCH
    assert extra == f"torch>={major}.{minor}", "a newer torch is not held back"
    assert f"torch>={major}.{minor}" in " ".join(metadata_of(wheel).get_all("Requires-Dist"))


def test_the_release_is_what_the_workflow_names():
    (build, publish) = WORKFLOW["jobs"].values()
    commands = "\n".join(step.get("run", "") for step in build["steps"])
    (version,) = re.findall(r"version=\$\((python -c '.*')\)", commands)
    told = subprocess.run(
        ["bash", "-c", version.replace("python", sys.executable, 1)], cwd=ROOT, capture_output=True, text=True
    )
    assert told.stdout.strip() == PROJECT["version"] == hotlap.__version__
    for tool in PROJECT["optional-dependencies"]["release"]:
        assert f'"{tool}"' in commands
    assert publish["needs"] == "build"
