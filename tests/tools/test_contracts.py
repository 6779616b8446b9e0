"""The import contracts of pyproject.toml: each breaks on a planted violation and allows what it should."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
UNIT_FOLDERS = ("knobs", "diagnose/rules", "integrations", "report/renderers", "data/formats", "export/tools")

LAYERS = "The layers of hotlap"
TORCH_FREE = "Facts and what is computed from them know neither torch nor numpy"
INSIDE = "What runs inside the training process needs nothing but the standard library, torch and numpy"
RECIPES = "Recipes are plain scripts: of hotlap they know at most data and watch"
NO_RECIPES = "hotlap knows its recipes in no place but the demo"


def layer_names() -> list[str]:
    (layers,) = [each["layers"] for each in CONTRACTS if each["name"] == LAYERS]
    return re.findall(r"\w+", " ".join(layers))


def named_modules() -> list[str]:
    """Those that a contract names in a layer: a contract on a module that is not there cannot be checked."""
    (inside,) = [each["source_modules"] for each in CONTRACTS if each["name"] == INSIDE]
    return [module for module in inside if module.count(".") > 1]


@pytest.fixture
def plant(tmp_path):
    """Plants files in a tree of empty layers: the names of the contracts that break, and the whole output."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    source = tmp_path / "src"

    def write(name: str, text: str) -> None:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(source).parents[:-1]:
            (source / folder / "__init__.py").touch()
        path.write_text(text)

    def write_and_lint(files: dict[str, str]) -> tuple[list[str], str]:
        for name, text in files.items():
            write(name, text)
        ended = subprocess.run(
            [sys.executable, "-c", "import importlinter.cli as c; c.lint_imports_command()", "--no-cache"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": "src", "COLUMNS": "200", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        found = dict(re.findall(r"^(.*?) (KEPT|BROKEN)\b", ended.stdout, flags=re.MULTILINE))
        assert set(found) == {each["name"] for each in CONTRACTS}, ended.stdout + ended.stderr
        broken = [name for name, state in found.items() if state == "BROKEN"]
        assert ended.returncode == (1 if broken else 0)
        return broken, ended.stdout

    write("hotlap_recipes/__init__.py", "")
    for module in named_modules():
        write(f"{module.replace('.', '/')}.py", "")
    for folder in (*layer_names(), *UNIT_FOLDERS):
        write(f"hotlap/{folder}/__init__.py", "")
    return write_and_lint


VIOLATIONS = {
    "a lower layer imports a higher one": ({"hotlap/facts/job.py": "import hotlap.cli"}, LAYERS),
    "late imports count too": ({"hotlap/stats/x.py": "def f():\n    import hotlap.launch"}, LAYERS),
    "siblings": ({"hotlap/report/view.py": "from hotlap import diagnose"}, LAYERS),
    "siblings at the bottom": ({"hotlap/units/x.py": "import hotlap.errors"}, LAYERS),
    "a folder without a place": ({"hotlap/extra/__init__.py": ""}, LAYERS),
    "a file without a place": ({"hotlap/extra.py": ""}, LAYERS),
    "a recipe reaches inside": ({"hotlap_recipes/toy/train.py": "import hotlap.facts"}, RECIPES),
    "a recipe imports hotlap": ({"hotlap_recipes/toy/train.py": "import hotlap"}, RECIPES),
    "hotlap knows a recipe": ({"hotlap/pipeline/x.py": "import hotlap_recipes"}, NO_RECIPES),
    "the probe needs more, through a lower layer": (
        {"hotlap/probe/x.py": "import hotlap.ports.y", "hotlap/ports/y.py": "import rich.console"},
        INSIDE,
    ),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_a_violation_breaks_its_contract_and_no_other(plant, case):
    files, contract = VIOLATIONS[case]
    assert plant(files)[0] == [contract]


def test_units_of_one_folder_may_not_import_each_other(plant):
    files = {f"hotlap/{folder}/a.py": "from . import b" for folder in UNIT_FOLDERS}
    others = {f"hotlap/{folder}/b.py": "" for folder in UNIT_FOLDERS}
    broken, _ = plant({**files, **others})
    assert broken == [
        "Knobs do not import each other",
        "Rules do not import each other",
        "Integrations do not import each other",
        "Renderers do not import each other",
        "Exports do not import each other",
        "Data formats do not import each other",
    ]


@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_torch_and_numpy_are_refused_wherever_facts_are_computed(plant, package):
    torch_free = set(layer_names()) - {
        *("__main__", "testing", "cli", "notebook", "pipeline", "search", "measure", "watch"),
        *("launch", "host", "plan", "seams", "integrations", "knobs", "probe", "data", "sameness"),
    }
    broken, output = plant(
        {f"hotlap/{layer}/x.py": f"def f():\n    import {package}" for layer in torch_free}
    )
    assert broken == [TORCH_FREE]
    refused = re.findall(rf"hotlap\.(\w+)\S* is not allowed to import {package}:", output)
    assert set(refused) == torch_free


INSIDE_MODULES = ("hotlap.integrations", "hotlap.launch.bootstrap", "hotlap.probe")
ON_THE_PATH = ROOT / "src/hotlap/launch/site"  # a folder for PYTHONPATH, with one file and no package
CONFIGS = ROOT / "src/hotlap_recipes/lss_swin/configs"  # files that mmengine reads and nobody imports


@pytest.mark.parametrize(
    "place", ["probe/taps/x.py", "integrations/x.py", "seams/x.py", "launch/bootstrap.py"]
)
def test_what_a_foreign_environment_lacks_may_not_be_imported_there(plant, place):
    absent = {"accelerate", "lightning", "mmengine", "psutil", "pyarrow", "pynvml", "rich", "transformers"}
    broken, output = plant({f"hotlap/{place}": "\n".join(f"import {name}" for name in (*absent, "yaml"))})
    assert broken == [INSIDE]
    assert set(re.findall(r"is not allowed to import (\w+):", output)) == {*absent, "yaml"}


def test_what_is_allowed_passes(plant):
    broken, output = plant(
        {
            "hotlap/cli/demo.py": "import hotlap_recipes.toy.make_data\nimport hotlap.pipeline",
            "hotlap_recipes/toy/make_data.py": "import torch, numpy, scipy\n",
            "hotlap_recipes/toy/train.py": "import hotlap.data.x, hotlap.watch\nfrom . import make_data",
            "hotlap/data/x.py": "import hotlap.facts.codec",
            "hotlap/facts/codec.py": "def read():\n    import pyarrow",
            "hotlap/probe/session.py": "import torch, numpy, json\nimport hotlap.facts.codec",
            "hotlap/probe/taps/loader.py": "import hotlap.probe.session",
            "hotlap/probe/taps/model.py": "import hotlap.probe.taps.loader",
            "hotlap/report/renderers/terminal.py": "import rich\nimport hotlap.facts.codec",
            "hotlap/measure/runner.py": "import torch, psutil\nimport hotlap.launch",
        }
    )
    assert not broken, output


def test_every_folder_of_the_tree_is_a_package():
    """The linter does not look into a folder without `__init__.py`: all contracts would hold there unseen."""
    folders = {path.parent for path in (ROOT / "src").rglob("*.py")} - {
        ON_THE_PATH,
        CONFIGS,
        CONFIGS / "_base_",
    }
    assert folders
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("inside", INSIDE_MODULES)
def test_what_runs_inside_reaches_the_standard_library_torch_and_numpy(inside):
    """The contract can only list packages by name; this looks at every import of the tree as it is."""
    graph = grimp.build_graph("hotlap", include_external_packages=True, cache_dir=None)
    for link in graph.find_matching_direct_imports("hotlap.facts.* -> pyarrow"):
        graph.remove_import(**link)
    reached = graph.find_upstream_modules(inside, as_package=True)
    assert reached
    foreign = {name for name in reached if name.partition(".")[0] not in {"hotlap", *sys.stdlib_module_names}}
    assert foreign <= {"torch", "numpy"}


def test_the_bootstrap_runs_where_nothing_is_installed():
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from hotlap import integrations
from hotlap.discover import units
from hotlap.ports.integration import Integration
import hotlap.launch.bootstrap
print(*(unit.id for unit in units(integrations, Integration)))
"""
    command = [sys.executable, "-S", "-E", "-c", code, str(ROOT / "src")]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert "lightning" in ended.stdout.split()


def test_facts_import_arrow_only_when_an_arrow_file_is_read_or_written():
    code = """
import importlib, pkgutil, sys
import hotlap.facts
for each in pkgutil.iter_modules(hotlap.facts.__path__):
    importlib.import_module(f"hotlap.facts.{each.name}")
print(*{"torch", "numpy", "pyarrow"} & set(sys.modules))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
    assert ended.stdout.split() == []
