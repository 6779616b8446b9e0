"""Scripts where a pattern holds a third of the step: is it recognised, proved, and worth what a change by hand is?

    python bench/rewrite_gains.py [NAME ...]

Each script is profiled; the rewrite goes through the guard; then the original, the plan, the file as `hotlap patch`
changes it and a version changed by hand take turns, each in fresh processes with one thread, and the script's own clock
says what a step takes. A script takes about a minute; names choose some of them, so that a machine need not be quiet
for all of that time.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from hotlap.facts import codec
from hotlap.facts.plan import Plan
from hotlap.facts.rewrite import Recognised, Recognition, Rewriting
from hotlap.facts.verdict import Sameness, Witness
from hotlap.judge.guard import LEAST_SEEDS, bitwise, rewritten
from hotlap.launch.command import to_job
from hotlap.launch.process import Signals
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect
from hotlap.plan.file import plan_text
from hotlap.rewriting.hook import edits_of
from hotlap.source.files import SourceFile, edited
from interleave import host_line

ROUNDS, GUARD_STEPS = 3, 16
PROFILED_S, TIMED_S, MOST_STEPS = 4.0, 1.0, 1600
PROMISED_RECOGNISED, PROMISED_GAIN, LEAST_SHARE = 0.95, 0.9, 1 / 3
SCRIPT = """import copy, json, os, re, sys, time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
STEPS = int(sys.argv[1])
{setup}

class Items(Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(1)
        self.x = torch.randn(64, {width}, generator=made)
        {init}

    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = self.x[index]
        {item}
        return x, index % 2


model = nn.Sequential(nn.Linear({width}, 16), nn.ReLU(), nn.Linear(16, 2))
{build}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
made, times = 0, []


def step(x, y):
    global made
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    {stepping}
    optimizer.step()
    made += 1
    times.append(time.perf_counter())


while made < STEPS:
    for x, y in DataLoader(Items(), batch_size=8, shuffle=True):
        if made < STEPS:
            step(x, y)
late = [b - a for a, b in zip(times[STEPS // 3 :], times[STEPS // 3 + 1 :])]
print("STEP", sorted(late)[len(late) // 2])
"""


CASES = Path(__file__).with_suffix(".txt")
"""Each begins with `=== name: pattern in place, N wide`; what stands below `--- part` is that part of the script."""


@dataclass(frozen=True)
class Case:
    """`slow` and `fast` are what a user wrote and what one would write by hand, in the same place: item or stepping."""

    pattern: str
    place: str
    width: int
    parts: Mapping[str, str]

    def source(self, *, by_hand: bool) -> str:
        own = self.parts
        init = own.get("fast_init", own.get("init", "pass")) if by_hand else own.get("init", "pass")
        changed = {
            "item": "pass",
            "stepping": "pass",
            self.place: own.get("fast" if by_hand else "slow", "pass"),
        }
        build = "" if by_hand and self.pattern == "debug-left-on" else own.get("build", "")
        return SCRIPT.format(
            setup=own.get("setup", ""),
            width=self.width,
            init=init.replace("\n", "\n" + " " * 8),
            item=changed["item"].replace("\n", "\n" + " " * 8),
            build=build,
            stepping=changed["stepping"].replace("\n", "\n" + " " * 4),
        )


def cases() -> dict[str, Case]:
    found = {}
    for each in re.split(r"^=== ", CASES.read_text(), flags=re.MULTILINE)[1:]:
        head, _, rest = each.partition("\n")
        match = re.fullmatch(r"(\S+): (\S+) in (\w+), (\d+) wide", head)
        assert match is not None, head
        pieces = re.split(r"^--- (\w+)\n", rest, flags=re.MULTILINE)[1:]
        parts = {name: text.rstrip("\n") for name, text in zip(pieces[::2], pieces[1::2], strict=True)}
        found[match[1]] = Case(match[2], match[3], int(match[4]), parts)
    return found


def main(words: list[str]) -> int:
    os.environ["OMP_NUM_THREADS"] = "1"  # of so small models; several threads wait for each other
    print(host_line())
    print(
        f"{'script':10} {'pattern':22} share  guard     ms a step: original    plan patched by hand   of the gain: "
        "plan patched"
    )
    recognised, fast, tried = 0, 0, 0
    known = cases()
    for name in words or known:
        found = run(name, known[name])
        tried += found[0]
        recognised += found[1]
        fast += found[2]
    late = missed(recognised, tried, PROMISED_RECOGNISED)
    print(f"recognised {recognised} of {tried} where the pattern holds a third of the step{late}")
    late = missed(fast, recognised, 1.0)
    print(f"proved, and {PROMISED_GAIN:.0%} of what the change by hand gains: {fast} of {recognised}{late}")
    return 0


def missed(count: int, of: int, promised: float) -> str:
    return "" if of and count / of >= promised else "  MISSED"


def run(name: str, case: Case) -> tuple[bool, bool, bool]:
    """Whether the pattern held enough of the step, was recognised, and gained what a change by hand does."""
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        (folder / "train.py").write_text(case.source(by_hand=False))
        (folder / "hand.py").write_text(case.source(by_hand=True))
        each = timed(folder, "train.py", 24)
        steps = max(24, min(MOST_STEPS, round(TIMED_S / each)))
        fast_steps = min(MOST_STEPS, 8 * steps)
        found = profiled(folder, case.pattern, max(24, min(400, round(PROFILED_S / each))))
        if found is None or found.rewriting is None:
            print(f"{name:10} {case.pattern:22} not recognised", flush=True)
            return True, False, False
        setting = {found.rewriting.key: found.rewriting.setting}
        (folder / "plan.yaml").write_text(plan_text(Plan(setting, None)))
        guard = guarded(folder, Plan(setting, None), found.rewriting.numerics, steps)
        (folder / "patched.py").write_bytes(patched(folder / "train.py", found.rewriting))
        times: dict[str, list[float]] = {"train.py": [], "plan": [], "patched.py": [], "hand.py": []}
        for _ in range(ROUNDS):
            for way, taken in times.items():
                taken.append(timed(folder, way, steps if way == "train.py" else fast_steps))
        slow, plan, change, hand = (median(each) for each in times.values())
        of, alone = ((slow / each - 1) / (slow / hand - 1) for each in (plan, change))
        enough = found.share >= LEAST_SHARE
        fast = of >= PROMISED_GAIN and guard == Sameness.SAME.value
        print(
            f"{name:10} {case.pattern:22} {found.share:5.0%}  {guard:14} {slow * 1e3:14.2f} {plan * 1e3:7.2f} "
            f"{change * 1e3:7.2f} {hand * 1e3:7.2f} {of:18.0%} {alone:7.0%}"
            f"{'' if enough else '  below a third'}{'' if fast else '  MISSED'}",
            flush=True,
        )
        return enough, enough, fast and enough


def patched(path: Path, rewriting: Rewriting) -> bytes:
    source = SourceFile.read(path)
    return edited(source.text, edits_of(source, [rewriting]))


def timed(folder: Path, way: str, steps: int) -> float:
    """Seconds a step by the script's own clock."""
    under = [sys.executable, "-m", "hotlap", "run", "--plan", "plan.yaml"]
    words = [*under, "train.py"] if way == "plan" else [sys.executable, way]
    done = subprocess.run([*words, str(steps)], cwd=folder, capture_output=True, text=True, check=True)
    return float(re.findall(r"^STEP (\S+)$", done.stdout, re.MULTILINE)[0])


def profiled(folder: Path, pattern: str, steps: int) -> Recognised | None:
    words = ["profile", "--experiments", "off", "--out", "run", "train.py", str(steps)]
    subprocess.run([sys.executable, "-m", "hotlap", *words], cwd=folder, capture_output=True, check=True)
    path = folder / "run" / "rewrites.json"
    known: Recognition = codec.read_json(path, Recognition) if path.exists() else Recognition()
    return next((each for each in known.found if each.id == pattern), None)


def guarded(folder: Path, plan: Plan, numerics: str, steps: int) -> str:
    """hotlap's own guard on real runs of the script."""
    with contextlib.chdir(folder), Signals() as signals:
        job = to_job(["train.py", str(steps)])
        bench = Bench(job, folder / "guard", collect, signals, GUARD_STEPS)
        seeds = 1 if numerics == "bitwise" else LEAST_SEEDS

        def seen(which: Plan, name: str) -> list[Witness]:
            runs = (bench.witness(f"{name}-{seed}", which, GUARD_STEPS, seed)[0] for seed in range(seeds))
            return [each for each in runs if each is not None]

        base, other = seen(Plan(), "base"), seen(plan, "plan")
    if len(base) < seeds or len(other) < seeds:
        return "did not finish"
    found = bitwise(base, other) if numerics == "bitwise" else rewritten(base, other, numerics)
    return found.sameness.value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
