"""Do the planted causes hold? Each job as it is and mended by hand, in turn, timed from within (truth_jobs/clock.py).

A remedy must bring 15 %, and in a pair the first cause must weigh more than the second (with --rivals also more than
usual changes that have nothing to do with it); what keeps memory must make it
grow; on a healthy job none of four usual changes may bring 5 %. Runs are forks of a process that has imported torch,
one such process for each environment, and the time in which other processes held the cores is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from truth_jobs import BF16, Job
from truth_jobs.render import Parts, render

LEAST, NOTHING = 1.15, 1.05
GROWS_MIB, STAYS_MIB = 0.15, 0.05
LIMIT_S = 900  # a run takes seconds; on a machine that others fill, minutes
AS_IS = "as it is"
RELIEVES = {
    "workers": {"workers-too-few"},
    "compile": {"uncompiled", "recompiling"},
    "precision": {"precision-unused"},
    "batch": {"batch-too-small"},
}
"""Usual changes and the causes that they relieve: no rivals of those."""
MODULES = (
    "lightning",
    "accelerate",
    "transformers",
    "mmengine.runner",
    "torch.utils.tensorboard",
)  # slow to import


@dataclass(frozen=True)
class Variant:
    name: str
    text: str
    environment: Mapping[str, str]
    samples: float = 1.0


class Servers:
    """One process for each environment, which forks what it is asked to run."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._runs = folder, 0
        self._servers: dict[tuple[tuple[str, str], ...], subprocess.Popen[str]] = {}

    def run(self, variant: Variant, steps: int, threads: int) -> dict[str, float] | str:
        """The figures of a run, or what it printed last; nothing where it did not end in time."""
        self._runs += 1
        folder = self._folder / str(self._runs)
        folder.mkdir()
        script, target = folder / "train.py", folder / "figures.json"
        script.write_text(variant.text, encoding="utf-8")
        wish: dict[str, object] = {"script": str(script), "target": str(target), "folder": str(folder)}
        wish["modules"] = [
            name for name in MODULES if f"{name} import" in variant.text or f"import {name}" in variant.text
        ]
        server = self._server(variant.environment)
        assert server.stdin and server.stdout
        server.stdin.write(json.dumps({**wish, "steps": steps, "threads": threads, "limit": LIMIT_S}) + "\n")
        server.stdin.flush()
        server.stdout.readline()
        if target.is_file():
            return dict(json.loads(target.read_text(encoding="utf-8")))
        output = folder / "output.txt"
        text = output.read_text(encoding="utf-8") if output.is_file() else ""
        return text[-400:] if "Traceback" in text else ""

    def _server(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        key = tuple(sorted(environment.items()))
        if key not in self._servers:
            chosen = {**os.environ, **environment, "OMP_NUM_THREADS": "1"}
            clock = Path(__file__).parent / "truth_jobs" / "clock.py"
            self._servers[key] = subprocess.Popen(
                [sys.executable, str(clock), "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={name: value for name, value in chosen.items() if value or "MALLOC" not in name},
                text=True,
            )
        return self._servers[key]

    def close(self) -> None:
        for server in self._servers.values():
            assert server.stdin
            server.stdin.close()
            server.wait()


def variants(job: Job, *, rivals: bool = False) -> list[Variant]:
    """The job, and without each of its causes; healthy ones, and with `rivals` all, under usual changes too."""
    plain = job.parts()
    found = [Variant(AS_IS, job.script.text, plain.environment)]
    for cause in job.causes:
        parts = job.parts(without=cause)
        found.append(Variant(f"without {cause}", render(parts).text, parts.environment, parts.samples))
    if job.causes and not rivals:
        return found
    return [*found, *(each for each in _usual(job) if not RELIEVES[each.name] & job.accepted)]


def _usual(job: Job) -> list[Variant]:
    """What guides advise: workers, a compiled model, the other precision, twice the batch."""
    changed: dict[str, Parts] = {name: job.parts() for name in ("workers", "compile", "precision", "batch")}
    changed["workers"].loader |= {"num_workers": 1, "persistent_workers": True}
    changed["compile"].add("prepare_model", "$model.compile()")
    changed["precision"].slots["setup"] = changed["precision"].slots["setup"].replace(BF16, "")
    if changed["precision"].slots["setup"] == job.parts().slots["setup"]:
        changed["precision"].add("setup", 'torch.set_autocast_enabled("cpu", True)')
    changed["batch"].numbers["batch"] = str(2 * changed["batch"].batch)
    changed["batch"].samples = 2.0
    return [
        Variant(name, render(parts).text, parts.environment, parts.samples) for name, parts in changed.items()
    ]


def verify(jobs: Sequence[Job], options: argparse.Namespace, folder: Path) -> int:
    """Prints what was measured; of sealed jobs, only the names of those that do not hold."""
    kept = Path(options.out) if options.out else None
    known = _known(kept)
    servers, end = Servers(folder), time.monotonic() + options.budget
    for job in jobs:
        if job.name in known:
            continue
        if time.monotonic() > end:
            print("the budget is spent; the same command with --out goes on", file=sys.stderr)
            break
        line, holds = _verified(job, servers, options)
        if holds is None:
            print(f"not measured: {job.name if options.reveal else 'a job'}: {line}", flush=True)
            continue
        known[job.name] = holds
        if kept:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"verified": job.name, "holds": holds, "line": line}) + "\n")
        if options.reveal:
            print(f"{'holds' if holds else 'FAILS'} {job.name}: {line}", flush=True)
    servers.close()
    seen = [job for job in jobs if job.name in known]
    failed = [job.name for job in seen if not known[job.name]]
    print(f"{len(seen) - len(failed)} of {len(seen)} jobs hold, {len(jobs) - len(seen)} were not run")
    print(*(f"does not hold: {name}" for name in failed), sep="\n")
    return bool(failed)


def _known(path: Path | None) -> dict[str, bool]:
    if not path or not path.is_file():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {line["verified"]: line["holds"] for line in lines if "verified" in line}


def _verified(job: Job, servers: Servers, options: argparse.Namespace) -> tuple[str, bool | None]:
    """In turn, A B, B A, ...; a job that clearly holds is not run further."""
    steps = job.first.steps if job.first else 60
    figures: dict[str, list[dict[str, float]]] = {}
    every = variants(job, rivals=options.rivals)
    for turn in range(options.rounds):
        for variant in every if turn % 2 == 0 else every[::-1]:
            seen = servers.run(variant, steps, options.threads or job.threads)
            if seen == "":
                return f"{variant.name} did not end within {LIMIT_S} s", None
            if isinstance(seen, str):
                return f"{variant.name} does not run: {seen}", False
            seen["samples_per_s"] = seen["steps_per_s"] * variant.samples
            figures.setdefault(variant.name, []).append(seen)
        line, holds, clear = _judged(job, figures)
        if clear:
            break
    return line, holds


def _judged(job: Job, figures: Mapping[str, list[dict[str, float]]]) -> tuple[str, bool, bool]:
    """What was measured, whether the job holds, and whether by so much that one round is enough."""
    speed = {
        name: max(run["samples_per_s"] for run in runs) for name, runs in figures.items()
    }  # least disturbed
    base = speed[AS_IS]
    step = f"step {1000 / median(run['steps_per_s'] for run in figures[AS_IS]):.1f} ms"
    ratios = {name: value / base for name, value in speed.items() if name != AS_IS}
    line = f"{step}; " + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
    if job.first and job.first.proof == "memory":
        grown = [median(run["mib_per_step"] for run in runs) for runs in figures.values()]
        line += f"; {grown[0]:.2f} MiB a step, {grown[1]:.2f} without"
        return line, grown[0] > GROWS_MIB and grown[1] < STAYS_MIB, True
    if not job.causes:
        most = max(ratios.values())
        return line, most < NOTHING, most < 1.0
    first, *others = ratios.values()
    holds = first >= LEAST and all(first > other for other in others)
    return line, holds, first >= 1.25 and all(first > 1.2 * other for other in others)
