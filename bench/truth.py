"""How often is `hotlap profile` right? Jobs with a known answer (bench/truth_jobs), profiled as a user would do it.

Half of the jobs, by a hash of their name, are sealed. They are for figures, not for work on rules: whoever looks at
what hotlap answers on them, or at their scripts, has spoilt them, since rules would then be fitted to them. So
`--sealed` prints totals and no names, and `--reveal` is for the day when they are given up and replaced.

    python bench/truth.py                    the open half
    python bench/truth.py --only 'images-*' --repeat 3
    python bench/truth.py --sealed --out sealed.jsonl
    python bench/truth.py --verify           do the planted causes hold? Nothing of hotlap is asked
    python bench/truth.py --advice --out open.jsonl    gains that were shown, against fresh processes

A job counts as right if the verdict is among its accepted causes; its place, if the first finding names a line of the
planted range; a healthy one, if no finding is above "note".
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import truth_advice
import truth_verify
from interleave import host_line
from truth_jobs import Job, catalogue

LIMIT_S = 420
SOURCES = Path(__file__).parents[1] / "src"


@dataclass(frozen=True)
class Answer:
    """What one profile said of a job. `first` is empty where nothing was found; `error` where it failed."""

    name: str
    run: int
    verdict: str = ""
    first: str = ""
    line: int | None = None
    own_file: bool = False
    loud: tuple[str, ...] = ()
    claims: tuple[dict[str, Any], ...] = ()
    step_ms: float | None = None
    foreign: float | None = None
    seconds: float = 0.0
    error: str = ""

    def right(self, job: Job) -> bool:
        if not job.causes:
            return not self.loud and not self.error
        return self.verdict in job.accepted

    def placed(self, job: Job) -> bool | None:
        """None where the cause has no place, or was not found."""
        if not job.places or not self.right(job):
            return None
        return self.own_file and any(low <= (self.line or 0) <= high for low, high in job.places)


def environment(job: Job) -> dict[str, str]:
    """One job's: its threads, and memory kept in the process unless the opposite is planted."""
    search = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH", "")]))
    chosen = {**os.environ, "OMP_NUM_THREADS": str(job.threads), "PYTHONPATH": search}
    chosen |= job.parts().environment
    return {key: value for key, value in chosen.items() if value or not key.startswith("MALLOC_")}


def profile(job: Job, run: int, folder: Path) -> Answer:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(job.script.text, encoding="utf-8")
    words = ["-m", "hotlap", "profile", "--json", "answer.json", "--out", "run", "train.py"]
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=environment(job),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return Answer(job.name, run, error=f"no end within {LIMIT_S} s", seconds=LIMIT_S)
    seconds = time.monotonic() - start
    target = folder / "answer.json"
    if done.returncode or not target.is_file():
        return Answer(job.name, run, error=f"exit {done.returncode}: {done.stderr[-400:]}", seconds=seconds)
    return read_answer(job, run, json.loads(target.read_text(encoding="utf-8")), seconds)


def read_answer(job: Job, run: int, view: dict[str, Any], seconds: float = 0.0) -> Answer:
    findings = view["findings"]
    first = findings[0] if findings else {"cause": "", "where": None}
    where = first["where"] or {}
    return Answer(
        name=job.name,
        run=run,
        verdict=view["verdict"] or "",
        first=first["cause"],
        line=where.get("line"),
        own_file=Path(where.get("file") or "").name == "train.py",
        loud=tuple(each["cause"] for each in findings if each["severity"] != "note"),
        claims=tuple(truth_advice.claims(view)),
        step_ms=(view.get("step") or {}).get("ms_median"),
        foreign=(view.get("cpu") or {}).get("foreign"),
        seconds=round(seconds, 1),
    )


class Results:
    """Answers by job, kept in a file of JSON lines where one is named, so that a run goes on where it ended."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self.answers: dict[tuple[str, int], Answer] = {}
        if self._path and self._path.is_file():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                if "verdict" in (plain := json.loads(line)):
                    kept = {
                        key: tuple(value) if isinstance(value, list) else value
                        for key, value in plain.items()
                    }
                    self.add(Answer(**kept), stored=True)

    def add(self, answer: Answer, *, stored: bool = False) -> None:
        self.answers[answer.name, answer.run] = answer
        if not stored:
            self.write(asdict(answer))

    def write(self, plain: dict[str, Any]) -> None:
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain) + "\n")

    def of(self, job: Job) -> list[Answer]:
        return [answer for (name, _), answer in sorted(self.answers.items()) if name == job.name]


def wilson(right: int, of: int) -> str:
    """A share with its 95 % interval."""
    if not of:
        return "none"
    z, share = 1.96, right / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return f"{right} of {of}, {share:.0%} ({max(0.0, middle - half):.0%} to {min(1.0, middle + half):.0%})"


def table(jobs: Sequence[Job], results: Results, title: str, key: Callable[[Job], str]) -> list[str]:
    lines = [f"{title:<20} {'jobs':>5} {'right':>6} {'placed':>7} {'of':>4}"]
    for group in sorted({key(job) for job in jobs}):
        inside = [(job, results.of(job)[0]) for job in jobs if key(job) == group and results.of(job)]
        places = [answer.placed(job) for job, answer in inside if answer.placed(job) is not None]
        right = sum(answer.right(job) for job, answer in inside)
        lines.append(f"{group:<20} {len(inside):>5} {right:>6} {sum(map(bool, places)):>7} {len(places):>4}")
    return lines


def totals(jobs: Sequence[Job], results: Results) -> list[str]:
    seen = [(job, results.of(job)) for job in jobs if results.of(job)]
    planted = [(job, answers[0]) for job, answers in seen if job.causes]
    healthy = [(job, answers[0]) for job, answers in seen if not job.causes]
    places = [place for job, answer in planted if (place := answer.placed(job)) is not None]
    several = [answers for _, answers in seen if len(answers) > 1]
    same = sum(len({each.verdict for each in answers}) == 1 for answers in several)
    failed = sum(bool(answer.error) for _, answers in seen for answer in answers)
    lines = [
        f"first finding right: {wilson(sum(answer.right(job) for job, answer in planted), len(planted))}",
        f"place right, where the finding is: {wilson(sum(places), len(places))}",
        f"healthy left alone: {wilson(sum(answer.right(job) for job, answer in healthy), len(healthy))}",
    ]
    if several:
        lines.append(f"same first finding when run again: {wilson(same, len(several))}")
    if failed:
        lines.append(f"profiles that failed: {failed}")
    return lines


def told(jobs: Iterable[Job], results: Results) -> list[str]:
    """Each wrong answer of the open half, for those who work on rules."""
    lines = []
    for job in jobs:
        for answer in results.of(job):
            heard = answer.error or (answer.verdict if job.causes else ", ".join(answer.loud))
            if not answer.right(job):
                wanted = "/".join(sorted(job.accepted))
                lines.append(f"WRONG {job.name} run {answer.run}: {wanted} wanted, {heard} found")
            elif answer.placed(job) is False:
                lines.append(f"PLACE {job.name} run {answer.run}: line {answer.line}, right is {job.places}")
    return lines


def seconds_of(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text} is no time: write 90s, 30m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def chosen(options: argparse.Namespace) -> list[Job]:
    pattern = options.only if any(sign in options.only for sign in "*?[") else f"*{options.only}*"
    jobs = [job for job in catalogue() if job.sealed == options.sealed]
    jobs = [job for job in jobs if fnmatch.fnmatch(job.name, pattern)]
    alike = {job.name: [each.name for each in jobs if each.answer == job.answer] for job in jobs}
    return sorted(jobs, key=lambda job: alike[job.name].index(job.name))  # every cause has its turn early


def listed(jobs: Sequence[Job], named: bool) -> list[str]:
    lines = [f"{job.name:<66} {job.places or ''} {job.plan or ''}" for job in jobs] if named else []
    for title, key in {
        **KEYS,
        "style": lambda job: job.style,
        "threads": lambda job: str(job.threads),
    }.items():
        counts = Counter(key(job) for job in jobs)
        lines.append(f"{title}: " + ", ".join(f"{group} {count}" for group, count in sorted(counts.items())))
    return [*lines, f"{len(jobs)} jobs"]


KEYS: dict[str, Callable[[Job], str]] = {
    "family": lambda job: job.family,
    "cause": lambda job: job.answer if len(job.causes) < 2 else "two causes",
    "framework": lambda job: job.framework,
}


def ask(jobs: Sequence[Job], options: argparse.Namespace, results: Results, root: Path) -> None:
    end = time.monotonic() + options.budget
    for run in range(options.repeat):
        for place, job in enumerate(jobs, 1):
            if (job.name, run) in results.answers:
                continue
            if time.monotonic() > end:
                print("the budget is spent; the same command with --out goes on", file=sys.stderr)
                return
            answer = profile(job, run, root / f"{job.digest[:12]}-{run}")
            results.add(answer)
            word = f"{job.name} {answer.verdict or answer.error[-120:]}" if options.reveal else "done"
            print(f"{place:>4}/{len(jobs)} {answer.seconds:>6.0f} s {word}", file=sys.stderr, flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sealed", action="store_true", help="the sealed half: totals only")
    parser.add_argument("--reveal", action="store_true", help="with --sealed: print names; this spoils them")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="jobs whose name has this")
    parser.add_argument("--list", action="store_true", help="print the jobs and run nothing")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="profile each job N times")
    parser.add_argument("--verify", action="store_true", help="whether the planted causes hold")
    parser.add_argument("--threads", type=int, help="with --verify: compute threads, whatever the job has")
    parser.add_argument(
        "--rounds", type=int, default=3, help="with --verify: runs of each script (default 3)"
    )
    parser.add_argument(
        "--rivals", action="store_true", help="with --verify: the remedy must bring more than usual changes"
    )
    parser.add_argument("--advice", action="store_true", help="try shown gains in fresh processes")
    parser.add_argument(
        "--out", metavar="FILE", help="append results as JSON lines; what is there is not run again"
    )
    parser.add_argument("--budget", type=seconds_of, default=math.inf, metavar="TIME", help="90s, 30m, 2h")
    parser.add_argument("--render", metavar="DIR", help="write the open scripts and their facts there")
    options = parser.parse_args()
    options.reveal = options.reveal or not options.sealed
    return options


def rendered(jobs: Sequence[Job], folder: Path) -> None:
    for job in jobs:
        target = folder / job.name
        target.mkdir(parents=True, exist_ok=True)
        (target / "train.py").write_text(job.script.text, encoding="utf-8")
        (target / "facts.json").write_text(json.dumps(job.facts(), indent=1), encoding="utf-8")
        for cause in job.causes:
            (target / f"without-{cause}.py").write_text(job.mended(cause).text, encoding="utf-8")


def main() -> int:
    options = parsed()
    jobs = chosen(options)
    if options.list or options.render:
        if options.render:
            rendered(jobs, Path(options.render))
        print(*listed(jobs, options.reveal), sep="\n")
        return 0
    print(host_line(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if options.verify:
            return truth_verify.verify(jobs, options, Path(folder))
        results = Results(options.out)
        ask(jobs, options, results, Path(folder))
        lines = []
        for title, key in KEYS.items() if options.reveal else ():
            lines += ["", *table(jobs, results, title, key)]
        print(*lines, "", *totals(jobs, results), sep="\n")
        if options.reveal:
            print(*told(jobs, results), sep="\n")
        if options.advice:
            asked = [(job, answer) for job in jobs for answer in results.of(job)[:1]]
            print(*truth_advice.advice(asked, environment, results.write, options, Path(folder)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
