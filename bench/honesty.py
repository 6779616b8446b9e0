"""Does `compare` tell the truth? A job beside itself, and beside itself with a planted slow-down of 5 %.

usage: python bench/honesty.py [--comparisons 40] [--minutes 5] [--out DIR] [--quick]
Each comparison runs the job, the job again, and the slowed job, in fresh processes, as `hotlap compare` runs them, and
is judged as it judges. Results are kept in DIR: run it again to go on until all comparisons are made.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.launch.process import Signals
from hotlap.measure.contest import Contest, Variant, contest
from hotlap.measure.interleaved_round import possible
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect
from interleave import BENCH, PYTHON, host_line

SLOWER = 0.05
ROUNDS, STEPS = 8, 60
FALSE_ALARMS, FOUND = 2 / 40, 36 / 40
RESULTS = "comparisons.jsonl"


def job(name: str, *words: str) -> Job:
    return Job((PYTHON, str(BENCH / "tune_job.py"), name, "--threads", "1", *words), str(BENCH), "job")


def compared(bench: Bench, kind: str) -> dict[str, object]:
    """One comparison each with itself and with the slowed job; the base is shared."""
    variants = [
        Variant("base", job(kind), Plan()),
        Variant("itself", job(kind), Plan()),
        Variant("slowed", job(kind, "--slower", str(SLOWER)), Plan()),
    ]
    held = contest(bench, variants, ROUNDS, lambda *_: None, sliced=possible(len(variants)))
    if held.interrupted:
        raise KeyboardInterrupt
    return {
        "job": kind,
        "itself": word(held, "itself"),
        "slowed": word(held, "slowed"),
        "ratios": ratios(held),
    }


def word(held: Contest, name: str) -> str:
    found = held.ratio(name)
    if found is None or not found.decided:
        return "no difference"
    return "faster" if found.value > 1 else "slower"


def ratios(held: Contest) -> dict[str, object]:
    found = {name: held.ratio(name) for name in ("itself", "slowed")}
    shown = {name: [each.value, each.low, each.high] for name, each in found.items() if each}
    return {**shown, "rounds": len(held.rates("base"))}


def show(results: list[dict[str, object]], wanted: int) -> None:
    count = len(results)
    itself = [str(each["itself"]) for each in results]
    slowed = [str(each["slowed"]) for each in results]
    alarms = sum(word != "no difference" for word in itself)
    found = slowed.count("slower")
    print(f"{'compared with':<24}{'faster':>8}{'slower':>8}{'no difference':>15}")
    for name, words in (("itself", itself), (f"itself, {SLOWER:.0%} slower", slowed)):
        cells = [words.count(each) for each in ("faster", "slower", "no difference")]
        print(f"{name:<24}{cells[0]:>8}{cells[1]:>8}{cells[2]:>15}")
    rounds = sum(each["ratios"]["rounds"] for each in results)  # type: ignore[index]
    print(f"{count} of {wanted} comparisons, {rounds / max(1, count):.1f} rounds each")
    scope = "" if count >= wanted else f" so far, after {count} of {wanted}"
    honest, seen = alarms <= FALSE_ALARMS * count, found >= FOUND * count
    print(f"target: at most {FALSE_ALARMS:.0%} false alarms: {alarms}, {verdict(honest)}{scope}")
    print(f"target: the slow-down found in at least {FOUND:.0%}: {found}, {verdict(seen)}{scope}")


def verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--comparisons", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--job", default="mixed")
    parser.add_argument("--out", default=".hotlap/honesty")
    parser.add_argument("--quick", action="store_true", help="two comparisons")
    options = parser.parse_args()
    wanted = 2 if options.quick else options.comparisons
    folder = Path(options.out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS
    results = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    print(host_line())
    until = time.monotonic() + options.minutes * 60
    with Signals() as signals:
        while len(results) < wanted and time.monotonic() < until:
            results.append(compared(Bench(job(options.job), folder, collect, signals, STEPS), options.job))
            with path.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
    show(results, wanted)


if __name__ == "__main__":
    main()
