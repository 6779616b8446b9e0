"""Attacks on bit-equality: scripts in which data change, alias or draw, each plain and under a setting.

Every case runs the plain script and `hotlap run --set ...` of the same script in processes of their own, and compares
parameters, random states and the hash of every batch. Verdicts:

EQUAL        all bits are the same, and the setting acted
REFUSED      all bits are the same, and the setting did not act
NOT CLAIMED  bits differ, and the class that was shown is not bitwise
ENDED        bits differ, and the run folder names a breach of that setting
SILENT       bits differ, and nothing was shown: must be 0
CRASH        exit code or output differ from the plain script's
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from attacks import CONTROL, Attack, catalogue

LIMIT_S = 240
FALSE_ALARM = "false alarm: "
VERDICTS = ("EQUAL", "REFUSED", "NOT CLAIMED", "ENDED", "SILENT", "CRASH")
SETTINGS: dict[str, tuple[int, tuple[str, ...]]] = {
    "cache-dataset=memory": (0, ("cache-dataset=memory",)),
    "cache-dataset=file": (0, ("cache-dataset=file",)),
    "batched-fetch": (0, ("cache-dataset=memory", "batched-fetch=true")),
    "loader": (0, ("loader=true",)),
    "num-workers=2": (0, ("num-workers=2",)),
    "cache-dataset=memory, workers": (2, ("cache-dataset=memory",)),
    "loader, workers": (2, ("loader=true",)),
    "num-workers=0": (2, ("num-workers=0",)),
    "persistent-workers": (2, ("persistent-workers=true",)),
    "prefetch-factor": (2, ("prefetch-factor=8",)),
}
"""A label, the workers of the script, and what is set. More than one setting: the last is named by the label."""

QUICK = ("cache-dataset=memory", "num-workers=2", "persistent-workers")


@dataclass(frozen=True)
class Case:
    attack: Attack
    label: str

    @property
    def workers(self) -> int:
        return SETTINGS[self.label][0]

    @property
    def settings(self) -> tuple[str, ...]:
        return SETTINGS[self.label][1]


@dataclass(frozen=True)
class Verdict:
    """`delay`: for ENDED, batches from the first that differs to the last."""

    name: str
    kind: str
    label: str
    verdict: str
    shown: str
    detail: str
    delay: int | None = None


@dataclass(frozen=True)
class Run:
    code: int
    output: str
    result: dict[str, Any] | None
    applied: dict[str, Any]
    error: str


class Runs:
    """Runs scripts in folders below `root`; each plain script once."""

    def __init__(self, root: Path, *, warm: bool = False) -> None:
        self._root, self._warm = root, warm
        self._plain: dict[tuple[str, int], Run] = {}
        self._locks: dict[tuple[str, int], Lock] = {}
        self._lock = Lock()

    def plain(self, attack: Attack, workers: int) -> Run:
        key = (attack.name, workers)
        with self._lock:
            mine = self._locks.setdefault(key, Lock())
        with mine:
            if key not in self._plain:
                self._plain[key] = self.run(attack, workers, "plain", ())
        return self._plain[key]

    def run(self, attack: Attack, workers: int, label: str, settings: Iterable[str]) -> Run:
        slug = "".join(each if each.isalnum() else "_" for each in f"{attack.name} {workers} {label}")
        folder = self._root / slug
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(attack.script(workers), encoding="utf-8")
        result, out = folder / "result.json", folder / f"run{time.monotonic_ns()}"
        result.unlink(missing_ok=True)
        if self._warm:
            from same_model_warm import read, run_warm

            return Run(**run_warm(folder, settings, result, LIMIT_S), result=read(result))
        words = [word for setting in settings for word in ("--set", setting)]
        python = [sys.executable, "train.py"]
        hotlap = [sys.executable, "-m", "hotlap", "run", "--out", str(out), *words, "train.py"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ATTACK_RESULT": str(result)}
        try:
            done = subprocess.run(
                hotlap if words else python,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return Run(-1, "", None, {}, f"no end within {LIMIT_S} s")
        applied = out / "applied.json"
        return Run(
            done.returncode,
            done.stdout,
            json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None,
            json.loads(applied.read_text(encoding="utf-8")) if applied.is_file() else {},
            done.stderr[-600:],
        )


def judge(case: Case, plain: Run, run: Run) -> Verdict:
    knob = case.settings[-1].partition("=")[0]
    knobs = {each.partition("=")[0] for each in case.settings}
    fitted = [each for each in run.applied.get("fitted", ()) if each["knob"] in knobs]
    breaches = [each for each in run.applied.get("breaches", ()) if each["knob"] in knobs]
    acting = [each for each in fitted if each["acts"]]
    shown = ", ".join(sorted({each["numerics"] for each in acting})) or "does not act"
    reasons = "; ".join(dict.fromkeys(each["reason"] for each in fitted if each["reason"]))
    acts = any(each["knob"] == knob for each in acting)

    def verdict(word: str, detail: str = reasons, delay: int | None = None) -> Verdict:
        return Verdict(case.attack.name, case.attack.kind, case.label, word, shown, detail, delay)

    if plain.code or plain.result is None:
        return verdict("CRASH", f"the plain script fails: {plain.error[-300:]}")
    told_otherwise = run.output != plain.output and not breaches  # the scripts print how many steps they made
    if run.code != plain.code or run.result is None or told_otherwise:
        return verdict("CRASH", f"exit code {run.code}: {run.error[-300:]}")
    if run.result == plain.result:
        alarm = f"{FALSE_ALARM}{breaches[0]['what']}" if breaches else reasons
        return verdict("EQUAL" if acts else "REFUSED", alarm)
    pairs = list(zip(plain.result["batches"], run.result["batches"], strict=False))
    apart = [number for number, (one, two) in enumerate(pairs) if one != two]
    where = (
        f"batches {apart[0]} to {apart[-1]} of {len(pairs)}" if apart else "no batch: states or parameters"
    )
    if breaches:
        return verdict("ENDED", f"{where}; {breaches[0]['what']}", apart[-1] - apart[0] + 1 if apart else 0)
    claims = [each for each in acting if each["numerics"] == "bitwise"]
    if acting and not claims:
        return verdict("NOT CLAIMED", where)
    return verdict("SILENT", f"{where} {reasons}")


def decide(case: Case, runs: Runs) -> Verdict:
    """The file form is run twice: what the first run has stored is served in the second."""
    plain = runs.plain(case.attack, case.workers)
    times = 2 if case.label.endswith("=file") else 1
    found = [
        judge(case, plain, runs.run(case.attack, case.workers, case.label, case.settings))
        for _ in range(times)
    ]
    return max(found, key=lambda each: VERDICTS.index(each.verdict))


class Stored:
    """Verdicts in a file, one in a line, so that a run which was ended goes on. A changed script is decided again."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._lock = path, Lock()
        self._found: dict[tuple[str, str, str], Verdict] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self._found[row["script"], row["verdict"]["name"], row["verdict"]["label"]] = Verdict(
                    **row["verdict"]
                )

    def __contains__(self, case: Case) -> bool:
        return self._key(case) in self._found

    def decided(self, case: Case, runs: Runs) -> Verdict:
        key = self._key(case)
        if key not in self._found:
            self._found[key] = verdict = decide(case, runs)
            if self._path is not None:
                with self._lock, self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"script": key[0], "verdict": asdict(verdict)}) + "\n")
        return self._found[key]

    @staticmethod
    def _key(case: Case) -> tuple[str, str, str]:
        script = hashlib.sha256(case.attack.script(case.workers).encode()).hexdigest()[:16]
        return script, case.attack.name, case.label


def table(verdicts: list[Verdict]) -> list[str]:
    """By class and knob, and in all. Controls that do not act are shown: to refuse always is no defence."""
    lines = [f"{'class':<12} {'setting':<32}" + "".join(f"{word:>13}" for word in VERDICTS)]
    groups = sorted({(each.kind, each.label) for each in verdicts})
    for kind, label in groups:
        counts = Counter(each.verdict for each in verdicts if (each.kind, each.label) == (kind, label))
        lines.append(f"{kind:<12} {label:<32}" + "".join(f"{counts[word]:>13}" for word in VERDICTS))
    total = Counter(each.verdict for each in verdicts)
    lines.append(f"{'all':<12} {'':<32}" + "".join(f"{total[word]:>13}" for word in VERDICTS))
    return lines


def listed(verdicts: list[Verdict]) -> list[str]:
    bad = [each for each in verdicts if each.verdict in ("SILENT", "CRASH", "ENDED")]
    idle = [
        each
        for each in verdicts
        if each.kind == CONTROL and (each.verdict != "EQUAL" or each.detail.startswith(FALSE_ALARM))
    ]
    lines = [f"{each.verdict:<7} {each.label:<30} {each.name}: {each.detail}" for each in bad]
    lines += [f"control not served: {each.label:<30} {each.name}: {each.detail}" for each in idle]
    delays = [each.delay for each in verdicts if each.delay is not None]
    if delays:
        lines.append(
            f"detection delay: median {statistics.median(delays):g} steps, worst {max(delays)} steps"
        )
    return lines


def cases(only: str, knob: str, quick: bool) -> list[Case]:
    labels = [
        each for each in SETTINGS if (each in QUICK or not quick) and fnmatch.fnmatch(each, f"*{knob}*")
    ]
    chosen = [each for each in catalogue() if fnmatch.fnmatch(f"{each.kind}/{each.name}", f"*{only}*")]
    return [Case(each, label) for each in chosen for label in labels if SETTINGS[label][0] in each.workers]


def unstable(attacks: Iterable[Attack], runs: Runs) -> list[str]:
    """Scripts that are not the same when they run twice without hotlap: they could not judge anything."""
    found = []
    for attack in attacks:
        for workers in attack.workers:
            one, two = runs.plain(attack, workers), runs.run(attack, workers, "plain again", ())
            if one.code or one.result != two.result:
                found.append(f"{attack.name}, {workers} workers: {one.error[-200:]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="attacks whose class/name has this")
    parser.add_argument("--knob", default="", metavar="PATTERN", help="settings whose label has this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--warm", action="store_true", help="fork the training processes with torch imported")
    parser.add_argument("--check", action="store_true", help="only run each plain script twice")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many cases, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument(
        "--store", metavar="FILE", type=Path, help="verdicts as they come; those in it are not run again"
    )
    parser.add_argument("--stored", action="store_true", help="run nothing: only show what the file holds")
    options = parser.parse_args()
    chosen = cases(options.only, options.knob, options.quick)
    if options.sample is not None and options.sample < len(chosen):
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    stored = Stored(options.store)
    if options.stored:
        chosen = [case for case in chosen if case in stored]
    if options.warm:
        from same_model_warm import import_for

        import_for(case.attack for case in chosen if case not in stored)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        runs = Runs(Path(folder), warm=options.warm)
        if options.check:
            found = unstable({case.attack: None for case in chosen}, runs)
            print(*found, f"{len(found)} scripts are not the same in every run", sep="\n")
            return bool(found)
        verdicts: list[Verdict] = []
        for verdict in pool.map(lambda case: stored.decided(case, runs), chosen):
            verdicts.append(verdict)
            done = f"{len(verdicts)}/{len(chosen)}"
            print(
                f"{done:>9} {verdict.verdict:<12} {verdict.label:<30} {verdict.name}",
                file=sys.stderr,
                flush=True,
            )
    print(*table(verdicts), *listed(verdicts), sep="\n")
    if options.json:
        facts = {"schema": 1, "cases": [asdict(each) for each in verdicts]}
        Path(options.json).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    bad = sum(each.verdict in ("SILENT", "CRASH") for each in verdicts)
    print(f"{len(verdicts)} cases, {bad} of them SILENT or CRASH: {'MISSED' if bad else 'reached'}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
