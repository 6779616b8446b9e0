"""A plan's rewrites in real processes: modules, scripts, spawned workers; the files on disk stay as they are."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.facts.plan import Plan
from hotlap.facts.rewrite import Rewriting
from hotlap.launch.environment import child_environment
from hotlap.launch.planned import pass_plan
from hotlap.rewriting.hook import spotted
from hotlap.source.files import SourceFile

pytestmark = pytest.mark.runs

FACTS = '''
import inspect, json, marshal, os, pickle, sys, traceback


class Tensor:
    """Says which way it was summed."""

    def __init__(self, broken=False):
        self.broken = broken

    def __iter__(self):
        if self.broken:
            raise ValueError("broken")
        return iter([1, 2])

    def sum(self):
        if self.broken:
            raise ValueError("broken")
        return 30


def torn(samples):
    # A comment that stays.
    return (
        "total", sum(samples))


def doubled(samples):
    return [sum(samples) for _ in range(2)]


def untouched(samples):
    return sum(samples)


def facts():
    try:
        torn(Tensor(broken=True))
    except ValueError as error:
        frame = traceback.extract_tb(error.__traceback__)[1]
    return {
        "torn": torn(Tensor())[1],
        "doubled": doubled(Tensor()),
        "untouched": untouched(Tensor()),
        "line": frame.lineno,
        "text": frame.line,
        "source": inspect.getsource(torn),
        "pickled": pickle.loads(pickle.dumps(torn)) is torn,
        "name": __name__,
        "file": __file__,
        "path": sys.path[0],
        "spec": __spec__ is None,
        "argv": sys.argv[1:],
        "doc": __doc__,
        "lines": [[*torn.__code__.co_lines()][0][2], max(line for *_, line in torn.__code__.co_lines())],
        "others": [repr(marshal.dumps(each.__code__)) for each in (untouched, facts, Tensor.__iter__)],
    }
'''
SCRIPT = f'''"""A script."""
from __future__ import annotations
{FACTS}
if __name__ == "__main__":
    print(json.dumps(facts()))
    if "spawn" in sys.argv:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            print(json.dumps(pool.apply(facts)))
'''
CHANGES = """
import pathlib, subprocess, sys
path = pathlib.Path("facts_of_hook_test.py")
path.write_text(path.read_text().replace("A comment that stays.", "Another comment."))
print(subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout, end="")
"""
SEEN = {"samples": "torch.Tensor float32 ? cpu"}


def entry(path, function, folder):
    source = SourceFile.read(path)
    found = next(each for each in source.functions if each.qualname == function)
    (site,) = spotted(found, SEEN)
    file = os.path.relpath(path, folder)
    line = site.site.node.lineno
    return Rewriting(
        "sum-over-tensor", file, line, function, (site.at,), source.hash_of(found), "rounding", SEEN
    )


def ran(folder, words, wanted, *, prepared=True):
    """The facts that a process prints under a plan."""
    probe = folder / "probe"
    probe.mkdir(exist_ok=True)
    with contextlib.chdir(folder):
        plan = pass_plan(probe, Plan({each.key: each.setting for each in wanted}))
    passed = json.loads(plan.read_text())
    if not prepared:
        plan.write_text(json.dumps({**passed, "prepared": {}}))
    environment = child_environment(probe, plan=plan, taps=False)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def wanted_of(path, folder):
    return [entry(path, "torn", folder), entry(path, "doubled", folder)]


def check(facts, text):
    assert facts["torn"] == 30
    assert facts["doubled"] == [30, 30]
    assert facts["untouched"] == 3
    assert facts["text"] == '"total", sum(samples))'
    assert facts["line"] == 1 + text.splitlines().index('        "total", sum(samples))')
    assert "# A comment that stays." in facts["source"]
    assert facts["pickled"]


@pytest.mark.parametrize("prepared", [True, False])
def test_a_script_is_run_with_rewritten_functions_and_is_otherwise_as_python_runs_it(prepared, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    wanted = wanted_of(path, tmp_path)
    ((here, there), errors) = ran(tmp_path, ["train.py", "spawn"], wanted, prepared=prepared)
    check(here, SCRIPT)
    check(there, SCRIPT)
    assert (here["name"], there["name"]) == ("__main__", "__mp_main__")
    (plain, _), _ = ran(tmp_path, ["train.py", "spawn"], [])
    same = ("name", "file", "path", "spec", "argv", "doc", "lines", "others")
    assert {key: here[key] for key in same} == {key: plain[key] for key in same}
    assert path.read_text() == SCRIPT
    assert "hotlap" not in errors


def test_from_another_folder_and_through_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    path = tmp_path / "there" / "train.py"
    path.write_text(SCRIPT)
    link = tmp_path / "link.py"
    link.symlink_to(path)
    for word in ("there/train.py", str(path), str(link)):
        (here,), _ = ran(tmp_path, [word], wanted_of(path, tmp_path))
        check(here, SCRIPT)
        (plain,), _ = ran(tmp_path, [word], [])
        assert (here["path"], here["file"]) == (plain["path"], plain["file"])


@pytest.mark.parametrize("prepared", [True, False])
def test_a_module_and_one_run_by_its_name(prepared, tmp_path):
    path = tmp_path / "facts_of_hook_test.py"
    path.write_text(SCRIPT)
    (tmp_path / "train.py").write_text(
        "import json, facts_of_hook_test as it\nprint(json.dumps(it.facts()))\n"
    )
    for words in (["train.py"], ["-m", "facts_of_hook_test"]):
        (here,), _ = ran(tmp_path, words, wanted_of(path, tmp_path), prepared=prepared)
        check(here, SCRIPT)
    cached = ran(tmp_path, ["train.py"], [])[0][0]
    assert cached["torn"] == 3, "the rewritten code must not be stored for other runs"


def test_a_changed_source_is_loaded_as_it_is(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    wanted = wanted_of(path, tmp_path)
    path.write_text(SCRIPT.replace("# A comment that stays.", "# Another comment."))
    (here,), _ = ran(tmp_path, ["train.py"], wanted)
    assert (here["torn"], here["doubled"]) == (3, [30, 30])


def test_what_the_parent_has_prepared_counts_for_its_text_alone(tmp_path):
    """The script changes its module after the parent has looked, and starts a process that loads it."""
    path = tmp_path / "facts_of_hook_test.py"
    path.write_text(SCRIPT)
    (tmp_path / "train.py").write_text(CHANGES)
    (here,), _ = ran(tmp_path, ["train.py"], wanted_of(path, tmp_path))
    assert (here["torn"], here["doubled"]) == (3, [30, 30])


def test_a_function_that_has_moved_is_still_rewritten(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    wanted = wanted_of(path, tmp_path)
    path.write_text(SCRIPT.replace("import inspect", "\n\nimport inspect"))
    (here,), _ = ran(tmp_path, ["train.py"], wanted)
    assert (here["torn"], here["doubled"]) == (30, [30, 30])


@pytest.mark.parametrize("setting", ["{}", "no JSON", '{"at": 3}'])
def test_what_is_no_rewrite_stops_no_script(tmp_path, setting):
    (tmp_path / "train.py").write_text("print(1)\n")
    probe = tmp_path / "probe"
    probe.mkdir()
    plan = probe / "plan.json"
    plan.write_text(json.dumps({"settings": {"sum-over-tensor@train.py:1": setting}, "home": str(tmp_path)}))
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=child_environment(probe, plan=plan, taps=False),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1\n")


COMPILED = """
import json
import torch


def total(samples):
    return sum(samples)


def counted(graph, _):
    print(json.dumps(sum(node.op == "call_method" or node.op == "call_function" for node in graph.graph.nodes)))
    return graph.forward


x = torch.arange(6.0)
print(json.dumps(float(torch.compile(total, backend=counted, fullgraph=True)(x))))
"""


def test_torch_compile_compiles_the_rewritten_function(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(COMPILED)
    (operations, value), _ = ran(tmp_path, ["train.py"], [entry(path, "total", tmp_path)])
    assert (operations, value) == (1, 15.0)


def test_it_imports_no_torch(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("print(json.dumps(facts()))", "print(json.dumps('torch' in sys.modules))"))
    (there,), _ = ran(tmp_path, ["train.py"], wanted_of(Path(path), tmp_path))
    assert there is False
