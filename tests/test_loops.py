"""Every way of writing a loop, run for real with and without the probe.

The probe attaches, counts the steps right, names at least nine tenths of the time, and changes not one bit of the
parameters or of the state of any random generator.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from hotlap.facts.arrow import read_timelines

pytestmark = pytest.mark.alone  # what has a name is a share of the time, which others would stretch
LOOPS = Path(__file__).parent / "loops"
IN_TURN = str(LOOPS.with_name("in_turn.py"))
ALWAYS = {"data", "forward", "backward", "optimizer"}
OCCASIONAL = {"log", "validate", "checkpoint"}
STEPS = 30


@dataclass(frozen=True)
class Kind:
    """A loop and what the probe must say of it. `says` is compared with the view, key by key."""

    script: str
    arguments: tuple[str, ...] = ()
    stages: set[str] = field(default_factory=set)
    framework: str = "plain"
    says: dict[str, Any] = field(default_factory=dict)
    needs: str = "torch"
    launcher: tuple[str, ...] = ()
    ranks: int = 1
    steps: int = STEPS

    @property
    def words(self) -> tuple[str, ...]:
        return (str(LOOPS / self.script), *self.arguments, "--steps", str(STEPS), "--dump", "dump.pt")

    @property
    def company(self) -> str:
        """Loops of one company run without the probe in one process, one after the other."""
        return " ".join(self.launcher) or self.needs


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone")
KINDS = {
    "raw": Kind("raw.py", stages=OCCASIONAL, needs="tensorboard"),
    "accumulation": Kind("accumulation.py", stages={"log"}, says={"step.backward_passes": 4.0}),
    "gan": Kind("gan.py", stages={"log"}, says={"step.backward_passes": 2.0}),
    "lbfgs": Kind("lbfgs.py", stages={"log"}),
    "no-loader": Kind("no_loader.py", stages={"log"}, says={"inferred": ["data"], "loaders": []}),
    "iterable": Kind("iterable.py", stages={"log"}),
    "prefetch-thread": Kind("prefetch_thread.py", stages={"log"}, says={"inferred": ["data"]}),
    # Its steps end where the next one begins, and none follows the last.
    "no-optimizer": Kind("no_optimizer.py", stages={"log"}, says={"step.ends_with": "backward"}),
    "autocast": Kind("autocast.py", says={"runtime.autocast": "bfloat16", "runtime.grad_scaler": False}),
    "grad-scaler": Kind(
        "autocast.py", ("--scaler",), says={"runtime.autocast": "float16", "runtime.grad_scaler": True}
    ),
    "module-compile": Kind("compiled.py", says={"model.compiled": True}, needs="c++"),
    "compile-fullgraph": Kind("compiled.py", ("--fullgraph",), says={"model.compiled": True}, needs="c++"),
    "lightning": Kind(
        "lightning_trainer.py", stages={"transfer"} | OCCASIONAL, framework="lightning", needs="lightning"
    ),
    "fabric": Kind("fabric_loop.py", stages={"log", "checkpoint"}, framework="fabric", needs="lightning"),
    "hf-trainer": Kind("hf_trainer.py", stages=OCCASIONAL, framework="hf-trainer", needs="transformers"),
    "accelerate": Kind("accelerate_loop.py", stages=OCCASIONAL, framework="accelerate", needs="accelerate"),
    "mmengine": Kind("mmengine_runner.py", stages=OCCASIONAL, framework="mmengine", needs="mmengine"),
    "torchrun": Kind("ddp.py", launcher=TORCHRUN, ranks=2),
}


@dataclass(frozen=True)
class Run:
    """A loop's two runs: what the probe saw of one, and what both left behind."""

    kind: Kind
    view: dict[str, Any]
    timelines: tuple[Any, ...]
    watched: list[Path]
    alone: list[Path]

    def look(self, path: str) -> Any:
        value: Any = self.view
        for key in path.split("."):
            value = value[key]
        return value


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Iterator[Callable[[Kind], Callable[[], Path]]]:
    """Starts a loop without the probe, with all of its company; what it returns waits for the folder of that loop."""
    home = tmp_path_factory.mktemp("alone")
    started: dict[str, subprocess.Popen[str]] = {}

    def begin(kind: Kind) -> Callable[[], Path]:
        if kind.company not in started:
            started[kind.company] = start(home, *in_company(home, kind))
        return partial(folder_when_finished, started[kind.company], folder_of(home, kind))

    yield begin
    for process in started.values():
        process.kill()
        process.communicate()


def in_company(home: Path, kind: Kind) -> tuple[str, ...]:
    company = [each for each in KINDS.values() if each.company == kind.company]
    turns = [[str(folder_of(home, each)), *each.words] for each in company]
    return (*(kind.launcher or (sys.executable,)), IN_TURN, json.dumps(turns))


def folder_of(home: Path, kind: Kind) -> Path:
    return home / next(name for name, each in KINDS.items() if each is kind)


def folder_when_finished(process: subprocess.Popen[str], folder: Path) -> Path:
    """Whoever waits first is shown what the process complained of."""
    complaint = process.communicate(timeout=280)[1] if process.returncode is None else "told before"
    assert process.returncode == 0, complaint[-4000:]
    return folder


@pytest.fixture(scope="module", params=list(KINDS))
def run(request, tmp_path_factory, alone):
    kind = KINDS[request.param]
    if kind.needs == "c++" and not shutil.which("g++"):
        pytest.skip("needs a C++ compiler")
    if kind.needs != "c++" and find_spec(kind.needs) is None:
        pytest.skip(f"needs {kind.needs}")
    watched, without = tmp_path_factory.mktemp("watched"), alone(kind)
    options = ("profile", "--full", "--out", "run", "--json", "view.json")
    job = ("--", *kind.launcher, *kind.words) if kind.launcher else kind.words
    folder_when_finished(start(watched, sys.executable, "-m", "hotlap", *options, *job), watched)
    return Run(
        kind=kind,
        view=json.loads((watched / "view.json").read_text()),
        timelines=read_timelines(watched / "run" / "timeline.arrow"),
        watched=sorted(watched.glob("dump.pt*")),
        alone=sorted(without().glob("dump.pt*")),
    )


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    # One thread each: two processes with two threads on two cores spend most of their time at barriers.
    environment = os.environ | {"PYTHONPATH": str(LOOPS.parents[1] / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def test_it_attaches_without_a_fault(run):
    assert run.look("probe.faults") == []
    assert run.look("runtime.framework") == run.kind.framework
    assert all(each.model is not None and each.model.parameters for each in run.timelines)


def test_it_counts_the_steps(run):
    assert [len(timeline.steps) for timeline in run.timelines] == [run.kind.steps] * run.kind.ranks


def test_it_names_the_time(run):
    assert run.look("coverage") >= 0.9


def test_it_sees_the_stages(run):
    for timeline in run.timelines:
        seen = {stage.value for stage, column in timeline.steps.stages.items() if sum(column)}
        assert seen >= ALWAYS | run.kind.stages


def test_it_says_what_is_particular(run):
    assert {path: run.look(path) for path in run.kind.says} == run.kind.says


def test_it_changes_nothing(run):
    assert len(run.watched) == len(run.alone) == run.kind.ranks
    for watched, alone in zip(run.watched, run.alone, strict=True):
        assert_equal(torch.load(watched, weights_only=False), torch.load(alone, weights_only=False))


def assert_equal(one: Any, other: Any, where: str = "dump") -> None:
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, (mine, yours) in enumerate(zip(one, other, strict=True)):
            assert_equal(mine, yours, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        # As bytes: equal numbers may differ in the sign of a zero, and a NaN equals nothing.
        assert one.shape == other.shape and one.dtype == other.dtype, where
        assert one.numpy().tobytes() == other.numpy().tobytes(), where
    else:
        same = one == other
        assert same if isinstance(same, bool) else bool(same.all()), where
