"""Is the plan that `tune` chooses as good as the best of an exhaustive grid, at a tenth of the grid's cost?

usage: python bench/tune_grid.py [--job data|compute|mixed] [--part grid|search|final] [--minutes 6] [--quick]
The grid runs every combination once, in a fresh process each. `tune` and Optuna's TPE get a tenth of the time that the
grid took; loadtune and pytorch-autotune tune what they can. In the end all choices take turns, beside the script as it
is; and those of the grid, of tune and of TPE once more beside each other, as `hotlap compare` runs them. Parts are
kept in DIR, so that a long grid may be run in pieces. Needs: pip install optuna loadtune pytorch-autotune
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.launch.process import Signals
from hotlap.measure.contest import Contest, Variant, contest, run_trial
from hotlap.measure.interleaved_round import possible
from hotlap.measure.ledger import Ledger, key_of
from hotlap.measure.runner import Bench, disturbed
from hotlap.pipeline import collect
from hotlap.pipeline.tune import tune
from hotlap.plan.catalogue import all_knobs
from hotlap.ports.knob import Numerics
from hotlap.search.candidates import Said, SearchBudget, Wish
from interleave import BENCH, PYTHON, host_line

STEPS, ROUNDS = 20, 4
COST, CLOSE, AGAIN = 0.10, 0.03, 0.02
LEAST_BUDGET_S = 40.0
NO = None  # the knob is left alone
Space = Mapping[str, tuple[Any, ...]]
SPACES: dict[str, Space] = {
    "data": {
        "num-workers": (NO, 1, 2, 4),
        "prefetch-factor": (NO, 4),
        "persistent-workers": (NO, True),
        "cache-dataset": (NO, "memory"),
        "fused-optimizer": (NO, "fused"),
        "channels-last": (NO, True),
    },
    "compute": {
        "precision": (NO, "bf16-mixed"),
        "channels-last": (NO, True),
        "fused-optimizer": (NO, "foreach", "fused"),
        "num-workers": (NO, 1, 2),
        "compile": (NO, "default"),
    },
    "mixed": {
        "num-workers": (NO, 1, 2),
        "prefetch-factor": (NO, 4),
        "cache-dataset": (NO, "memory"),
        "precision": (NO, "bf16-mixed"),
        "fused-optimizer": (NO, "fused"),
        "channels-last": (NO, True),
    },
}
QUICK: Space = {"num-workers": (NO, 2), "cache-dataset": (NO, "memory"), "fused-optimizer": (NO, "fused")}
RIVALS = ("grid", "tune", "tpe")  # the first is what the others are held against
OF_WORKERS = ("prefetch-factor", "persistent-workers")


class Case:
    """One job and what was found out about it so far."""

    def __init__(self, name: str, out: Path, signals: Signals, space: Space) -> None:
        self.name, self.space = name, space
        self.folder = out / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.job = Job((PYTHON, str(BENCH / "tune_job.py"), name), str(BENCH), name)
        self.bench = Bench(self.job, self.folder, collect, signals, STEPS)
        self.ledger = Ledger(self.folder, self.job)
        self.path = self.folder / "found.json"
        self.found: dict[str, Any] = json.loads(self.path.read_text()) if self.path.is_file() else {}

    def keep(self, **facts: Any) -> None:
        self.found |= facts
        self.path.write_text(json.dumps(self.found, indent=1, default=str))

    def points(self) -> Iterator[dict[str, Any]]:
        """Every combination that differs from the others: what belongs to workers is nothing without them."""
        for values in itertools.product(*self.space.values()):
            point = {key: value for key, value in zip(self.space, values, strict=True) if value is not NO}
            if "num-workers" in point or not any(key in point for key in OF_WORKERS):
                yield point

    @property
    def grid_s(self) -> float:
        return sum(trial.seconds for trial in self.ledger.trials)

    @property
    def budget_s(self) -> float:
        return max(LEAST_BUDGET_S, COST * self.grid_s)


def grid(case: Case, until: float) -> None:
    known = {key_of(trial.plan.settings) for trial in case.ledger.trials}
    for point in case.points():
        if key_of(point) not in known and time.monotonic() < until:
            run_trial(case.bench, case.ledger, Plan(point), lambda _: None)
    done = len({key_of(trial.plan.settings) for trial in case.ledger.trials})
    rates = {key_of(t.plan.settings): t.figures.throughput for t in case.ledger.trials if t.figures}
    best = max(rates, key=lambda key: rates[key])
    case.keep(grid=json.loads(best), points=done, of=len(list(case.points())), grid_s=case.grid_s)


def search(case: Case) -> None:
    """`tune` as the command runs it."""
    wish = Wish("speed", frozenset({Numerics.BITWISE, Numerics.ROUNDING}))
    said = Said(lambda _: None, lambda _: None, lambda _: None)
    began = time.monotonic()
    out = case.folder / f"tune-{int(time.time())}"
    budget = SearchBudget(seconds=case.budget_s)
    _, tuning = tune(case.job, all_knobs(), wish, budget, STEPS, str(out), said, lambda _: None)
    case.keep(
        tune=dict(tuning.plan.settings),
        tune_s=time.monotonic() - began,
        tune_trials=tuning.trials,
        guard=tuning.guard.sameness.value if tuning.guard else "not asked",
        table=1.0 + tuning.gain.value if tuning.gain else 1.0,
        table_rate=tuning.tuned.throughput if tuning.tuned else tuning.baseline.throughput,
    )


def tpe(case: Case) -> None:
    """Optuna's TPE over the grid's own space, a trial in a fresh process each, for as long as tune took."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    own = case.folder / "tpe"
    own.mkdir(exist_ok=True)
    number = itertools.count(1)
    bench = Bench(case.job, own, collect, case.bench.signals, STEPS)

    def objective(trial: Any) -> float:
        chosen = {key: trial.suggest_categorical(key, list(values)) for key, values in case.space.items()}
        if chosen.get("num-workers") is NO:
            chosen |= dict.fromkeys(OF_WORKERS, NO)
        point = {key: value for key, value in chosen.items() if value is not NO}
        trial.set_user_attr("point", point)
        done, _ = bench.trial(next(number), Plan(point))
        return done.figures.throughput if done.figures else 0.0

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    with case.bench.signals:
        study.optimize(objective, timeout=float(case.found.get("tune_s", case.budget_s)))
    case.keep(tpe=study.best_trial.user_attrs["point"], tpe_trials=len(study.trials))


def peer(case: Case, name: str) -> None:
    words = [PYTHON, str(BENCH / "tune_peers.py"), case.name, name, "--seconds", str(round(case.budget_s))]
    began = time.monotonic()
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    lines = ended.stdout.strip().splitlines()
    told = json.loads(lines[-1]) if ended.returncode == 0 and lines else {"error": ended.stderr[-300:]}
    case.keep(**{name: told, f"{name}_s": time.monotonic() - began})


def final(case: Case) -> None:
    """All choices in turn. The base comes first."""
    base = case.job
    variants = [Variant("as it is", base, Plan())]
    for name in ("grid", "tune", "tpe"):
        if name in case.found:
            variants.append(Variant(name, base, Plan(case.found[name])))
    for name in ("loadtune", "autotune"):
        told = case.found.get(name, {})
        if "settings" in told:
            variants.append(Variant(name, with_threads(base, told.get("threads")), Plan(told["settings"])))
    held = contest(case.bench, variants, ROUNDS, lambda *_: None)
    rivals = [each for each in variants if each.name in RIVALS]
    beside = contest(case.bench, rivals, ROUNDS, lambda *_: None, sliced=possible(len(rivals)))
    rates = {each.name: held.rates(each.name) for each in variants}
    case.keep(rates=rates, ratios=ratios(held), beside=ratios(beside), sliced=beside.sliced)


def with_threads(job: Job, threads: int | None) -> Job:
    words = ("env", f"OMP_NUM_THREADS={threads}", *job.argv) if threads else job.argv
    return Job(words, job.cwd, job.name)


def ratios(held: Contest) -> dict[str, Any]:
    found = {each.name: held.ratio(each.name) for each in held.variants[1:]}
    return {name: [r.value, r.low, r.high] for name, r in found.items() if r}


def show(case: Case) -> tuple[bool, bool, float] | None:
    found = case.found
    print(
        f"\n{case.name}: grid of {found.get('points')} of {found.get('of')} points in {found.get('grid_s', 0):.0f} s"
    )
    beside = sum(map(disturbed, case.ledger.trials))
    print(
        f"  {beside} of {len(case.ledger.trials)} runs of the grid had others beside them; they were repeated once"
    )
    if "ratios" not in found:
        print("  not yet: " + ", ".join(part for part in PARTS if part not in found))
        return None
    for name, rates in found["rates"].items():
        ratio = found["ratios"].get(name)
        times = f"{ratio[0]:5.2f} x ({ratio[1]:.2f} to {ratio[2]:.2f})" if ratio else " " * 22
        cost = found.get({"grid": "grid_s", "tpe": "tune_s"}.get(name, f"{name}_s"))
        spent = f"{cost:4.0f} s" if cost is not None else "      "
        told = found.get(name, "") if name != "as it is" else ""
        print(f"  {name:<9}{median(rates):>9,.0f} samples/s  {spent}  {times}  {told}")
    how = "in slices" if found["sliced"] else "one after the other"
    for name, ratio in found["beside"].items():
        print(f"  {name} beside the grid's best, {how}: {ratio[0]:.3f} ({ratio[1]:.3f} to {ratio[2]:.3f})")
    rate, best = (median(found["rates"][name]) for name in ("tune", "grid"))
    print(f"  by medians of runs one after the other: {rate / best - 1:+.1%} of the grid's best; "
          f"measured again {rate / found['table_rate'] - 1:+.1%} of the samples/s in tune's own table")  # fmt: skip
    close = found["beside"]["tune"][0] >= 1 - CLOSE
    cheap = found["tune_s"] <= COST * found["grid_s"]
    again = found["ratios"]["tune"][0] / found["table"] - 1
    print(f"  guard: {found['guard']}; {found['tune_trials']} trials; "
          f"measured again {again:+.1%} of the {found['table']:.2f} x in tune's own table")  # fmt: skip
    print(f"  within {CLOSE:.0%} of the grid's best: {verdict(close)}; "
          f"a tenth of its time ({found['tune_s']:.0f} s of {found['grid_s']:.0f} s): {verdict(cheap)}")  # fmt: skip
    return close, cheap, abs(again)


def verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


PARTS: dict[str, Callable[[Case], None]] = {
    "tune": search,
    "tpe": tpe,
    "loadtune": lambda case: peer(case, "loadtune"),
    "autotune": lambda case: peer(case, "autotune"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=list(SPACES), action="append")
    parser.add_argument("--part", choices=("grid", "search", "final", "show"), action="append")
    parser.add_argument("--minutes", type=float, default=60.0, help="for the grid: it goes on when run again")
    parser.add_argument("--out", default=".hotlap/tune_grid")
    parser.add_argument("--quick", action="store_true", help="one job, a grid of eight points")
    options = parser.parse_args()
    names = ["data"] if options.quick else options.job or list(SPACES)
    wanted = options.part or ["grid", "search", "final"]
    out = Path(f"{options.out}-quick" if options.quick else options.out).resolve()
    print(host_line())
    until = time.monotonic() + options.minutes * 60
    signals = Signals()
    cases = [Case(name, out, signals, QUICK if options.quick else SPACES[name]) for name in names]
    for case in cases:
        if "grid" in wanted:
            with signals:
                grid(case, until)
        for name, part in PARTS.items():
            if "search" in wanted and name not in case.found:
                attempt(case, name, part)
        if "final" in wanted:
            with signals:
                final(case)
    results = [show(case) for case in cases]
    done = [each for each in results if each is not None]
    print(f"\ntarget, of {len(done)} jobs: {sum(close for close, *_ in done)} within {CLOSE:.0%}, "
          f"{sum(cheap for _, cheap, _ in done)} at a tenth of the grid's cost")  # fmt: skip
    if done:
        off = median(again for *_, again in done)
        print(f"target, measured again within {AGAIN:.0%} of tune's own table: {off:.1%} in the median, "
              f"{verdict(off <= AGAIN)}")  # fmt: skip


def attempt(case: Case, name: str, part: Callable[[Case], None]) -> None:
    """A peer that is not installed, or does not run here, is told, and holds nothing up."""
    try:
        part(case)
    except (ImportError, subprocess.TimeoutExpired) as fault:
        case.keep(**{f"{name}_error": str(fault)})
        print(f"{name}: not measured: {fault}")


if __name__ == "__main__":
    main()
