"""The knobs of compute on real scripts of every framework: numbers, undo, and checkpoints that know nothing of them.

Raw loops are what most other tests of these knobs train with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
LOOPS = HERE.parent / "loops"
RUN_SECONDS = 240  # a limit that turns a hang into a failure

SAME = {"set-to-none": True, "fused-optimizer": "foreach", "grad-checkpointing": True}
CLOSE = {"precision": "bf16-mixed", "compile": "default", "fused-optimizer": "fused"}
BLOCKLESS = {"grad-checkpointing"}


@dataclass(frozen=True)
class Case:
    """A script, the plans it runs under, and where it leaves a checkpoint."""

    loop: str
    checkpoint: str
    same: tuple[str, ...] = ("set-to-none", "fused-optimizer", "grad-checkpointing")
    close: tuple[str, ...] = ("precision", "compile", "fused-optimizer")
    cannot: frozenset[str] = frozenset(BLOCKLESS)

    @property
    def plans(self) -> dict[str, dict[str, object]]:
        close = {key: CLOSE.get(key, False) for key in self.close}
        return {"plain": {}, "same": {key: SAME[key] for key in self.same}, "close": close}


CASES = [
    Case("lightning_trainer", "checkpoints/last.ckpt"),
    # Its optimizer is fused already; `sdpa: false` turns to the eager attention. Compiling a transformer takes long.
    Case(
        "hf_trainer",
        "out/checkpoint-20/optimizer.pt",
        ("set-to-none", "grad-checkpointing"),
        ("precision", "sdpa"),
        frozenset(),
    ),
    Case("accelerate_loop", "state/optimizer.bin", close=("precision", "fused-optimizer")),
    Case("mmengine_runner", "work_dir/epoch_2.pth", close=("precision", "fused-optimizer")),
]


class Ran:
    """What is there after the plans of a case."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        command = [sys.executable, HERE / "several_plans.py", LOOPS / f"{case.loop}.py", folder]
        environment = os.environ | {"HOTLAP_COMPILE_BACKEND": "eager", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*map(str, command), json.dumps(case.plans)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        self.told = json.loads((folder / "told.json").read_text())

    def dump(self, plan: str) -> dict:
        return torch.load(self.folder / plan / "dump.pt", weights_only=False)

    def checkpoint(self, plan: str) -> object:
        return torch.load(self.folder / plan / self.case.checkpoint, weights_only=False)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.loop)
def ran(request, tmp_path_factory) -> Ran:
    return Ran(request.param, tmp_path_factory.mktemp(request.param.loop))


def leaves(value, path=""):
    """Every value in nested containers, with its path."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from leaves(each, f"{path}[{index}]")
    else:
        yield path, value


def test_every_setting_acts_or_says_why_not(ran):
    same, close = ran.told["same"], ran.told["close"]
    assert set(same["acts"]) == set(ran.case.same) - ran.case.cannot
    assert set(same["cannot"]) == ran.case.cannot
    assert set(close["acts"]) == set(ran.case.close) and not close["cannot"]
    assert set(same["acts"].values()) == {"bitwise"}
    assert "bitwise" not in close["acts"].values(), "what rounds is marked"


def test_nothing_failed_and_everything_was_taken_back(ran):
    for plan in ran.told.values():
        assert plan["undone"] and not plan["faults"] and not plan["step_downs"]


def test_bitwise_settings_leave_the_bits(ran):
    plain, same = dict(leaves(ran.dump("plain"))), dict(leaves(ran.dump("same")))
    assert plain.keys() == same.keys()
    for path, value in plain.items():
        equal = value.equal(same[path]) if isinstance(value, torch.Tensor) else value == same[path]
        assert equal if isinstance(equal, bool) else equal.all(), path


def test_rounding_settings_come_close(ran):
    plain, close = (dict(leaves(ran.dump(plan)["params"])) for plan in ("plain", "close"))
    assert plain.keys() == close.keys()
    apart = max(
        (value - close[path]).abs().max().item() for path, value in plain.items() if value.is_floating_point()
    )
    assert 0 < apart < 0.05
    assert {value.dtype for value in close.values()} == {value.dtype for value in plain.values()}


@pytest.mark.parametrize("plan", ["same", "close"])
def test_checkpoints_are_those_of_the_script_alone(ran, plan):
    """The same keys, and no `fused` or `foreach` that the script did not write."""
    plain, planned = dict(leaves(ran.checkpoint("plain"))), dict(leaves(ran.checkpoint(plan)))
    # Of the run itself; mmengine's hub is shared by all runs that begin within a second.
    stamps = ("time", "seed", "experiment", "message_hub")
    named = {path for path in plain if not any(word in path for word in stamps)}
    assert named == {path for path in planned if not any(word in path for word in stamps)}
    switches = [path for path in named if path.endswith((".fused", ".foreach"))]
    assert all(plain[path] == planned[path] for path in switches)
