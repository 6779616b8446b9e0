"""Mutates plans, profiles and what other commands store, and reads them: no traceback, no message above 2 KB, no wrong
acceptance.

    python bench/fuzz.py --plans 2000 --runs 2000 --stored 2000 --seed 0 [--run FOLDER]

Without --run, a small script is profiled first. Prints how many were read, how many refused, and every fault.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from fuzz_stored import all_stored
from hotlap.errors import HotlapError
from hotlap.pipeline import view_of
from hotlap.pipeline.outcome import outcome_of
from hotlap.plan.catalogue import all_knobs
from hotlap.plan.file import plan_text, read_plan
from hotlap.report.renderers import html, markdown, perfetto, terminal
from hotlap.report.renderers import json as plain

MOST_BYTES = 2048
SCRIPT = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
rows = torch.utils.data.TensorDataset(torch.randn(640, 8))
for (row,) in torch.utils.data.DataLoader(rows, batch_size=8):
    optimizer.zero_grad()
    model(row).pow(2).mean().backward()
    optimizer.step()
"""
PLAN = """hotlap: 1
settings:
  # the reason of a setting
  num-workers: 2
  pin-memory: true
  precision: bf16-mixed
  compile: off
  prefetch-factor: 4
proof:
  gain: 0.31
  interval: {low: 0.2, high: 0.4}
  guard: same
  host: 2 cores
  versions: {torch: 2.4.0}
"""
SCRAPS = [
    "010",
    "1:30",
    "0x1F",
    "1_000",
    "!!float",
    "!!python/name:os.system",
    "&a",
    "*a",
    "<<",
    ":",
    "-",
    "?",
    "[",
    "]",
    "{",
    "}",
    ",",
    "#",
    "|",
    ">",
    "'",
    '"',
    "%",
    "@",
    "`",
    "~",
    "null",
    "on",
    "off",
    "yes",
    "2001-99-99",
    ".nan",
    ".inf",
    "-.inf",
    "1e999",
    "-1",
    "\\Uffffffff",
    "\x1b[2J",
    "\u202e",
    "\x00",
    "\ufeff",
    "\ud7ff",
    "😀",
    "settings",
    "hotlap",
    "proof",
    "---",
    "...",
    "\t",
]
VALUES = (
    10**400,
    -(10**30),
    1e308,
    float("nan"),
    float("inf"),
    -1,
    0,
    True,
    None,
    "",
    "x" * 5000,
    "\x1b[2J",
    [],
    {},
    [[[]]],
    {"a": {}},
)
DRAWN = {
    "markdown": markdown.Markdown,
    "terminal": terminal.Terminal,
    "html": html.Html,
    "json": plain.Json,
    "perfetto": perfetto.Perfetto,
}


class Tally:
    """What became of each, and the first lines of every fault."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.faults: collections.Counter[str] = collections.Counter()

    def attempt(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
            self.counts[f"{what} read"] += 1
        except HotlapError as error:
            self.counts[f"{what} refused"] += 1
            if len(str(error).encode("utf-8", "replace")) > MOST_BYTES or error.exit_code != 2:
                self.faults[f"{what}: a message of {len(str(error)):,} characters"] += 1
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self.faults[
                f"{what}: {type(error).__name__}: {error!s:.80} at {Path(last.filename).name}:{last.lineno}"
            ] += 1


def mutated(text: str, chance: random.Random) -> str:
    """A few changes of lines, words and characters."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice((0, 0, 1, 3, 12)))
        kind = chance.randrange(6)
        if kind < 3:
            text = text[:at] + chance.choice(SCRAPS) + text[end:]
        elif kind == 3:
            text = text[:at] + chance.choice("[{(- \n") * chance.choice((1, 30, 3000)) + text[at:]
        elif kind == 4:
            text = text[:at] + "9" * chance.choice((2, 50, 5000)) + text[at:]
        else:
            lines = text.split("\n")
            lines.insert(chance.randrange(len(lines)), chance.choice(lines))
            text = "\n".join(lines)
    return text


def damaged(content: bytes, name: str, chance: random.Random) -> bytes:
    """A stored file, cut, flipped, replaced, or sound JSON with another value somewhere."""
    kind = chance.randrange(6)
    if kind == 0:
        return content[: chance.randrange(len(content) + 1)]
    if kind == 1 and content:
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed)
    if kind == 2:
        return chance.choice(
            (b"", b"[" * 100_000, b"\xff\xfe", b"null", b"[]", b'{"schema": 99}', chance.randbytes(200))
        )
    if name.endswith("jsonl") and kind == 3:
        return mutated(content.decode("latin-1"), chance).encode("utf-8")
    if not name.endswith(("json", "jsonl")):
        return mutated(content.decode("latin-1"), chance).encode("utf-8")
    bodies = [json.loads(line) for line in (content.splitlines() if name.endswith("jsonl") else [content])]
    _replace_one(chance.choice(bodies), chance)
    return b"".join(json.dumps(body).encode() + b"\n" for body in bodies)


def _replace_one(body: object, chance: random.Random) -> None:
    """A value anywhere in it becomes another, or goes."""
    while True:
        keys = (
            list(body) if isinstance(body, dict) else list(range(len(body))) if isinstance(body, list) else []
        )
        if not keys:
            return
        key = chance.choice(keys)
        inner = body[key]  # type: ignore[index]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            body = inner
            continue
        if chance.random() < 0.2:
            del body[key]  # type: ignore[attr-defined]
        else:
            body[key] = chance.choice(VALUES)  # type: ignore[index]
        return


def fuzz_plans(count: int, seed: int, tally: Tally) -> None:
    knobs = all_knobs()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"

        def one(number: int) -> None:
            text = mutated(PLAN, random.Random(number))
            path.write_bytes(text.encode("utf-8", "replace"))

            def read() -> None:
                plan = read_plan(path)
                for key, value in plan.settings.items():
                    assert knobs[key].values.read(value) == value, f"{key} took {value!r}"
                path.write_text(plan_text(plan), encoding="utf-8")
                assert read_plan(path).settings == plan.settings, "it does not come back as it was written"

            tally.attempt("plans", read)

        _each(one, count, seed)


def fuzz_runs(count: int, seed: int, tally: Tally, run: Path) -> None:
    names = sorted(path.name for path in run.iterdir() if path.suffix in (".json", ".arrow", ".jsonl"))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("trials", "*.html"))

        def one(number: int) -> None:
            chance = random.Random(number)
            name = chance.choice(names)
            original = (run / name).read_bytes()
            (copy / name).write_bytes(damaged(original, name, chance))
            tally.attempt("runs", lambda: _drawn(copy, chance.choice(sorted(DRAWN))))
            (copy / name).write_bytes(original)

        _each(one, count, seed)


def fuzz_stored(count: int, seed: int, tally: Tally) -> None:
    """Folders of searches, baselines and runs under a plan, each as the command that reads it does."""
    with tempfile.TemporaryDirectory() as folder:
        every = all_stored(Path(folder))

        def one(number: int) -> None:
            chance = random.Random(number)
            stored = chance.choice(every)
            path = stored.folder / chance.choice(stored.files)
            original = path.read_bytes()
            path.write_bytes(damaged(original, path.name, chance))
            tally.attempt(stored.name, lambda: stored.read(stored.folder, chance))
            path.write_bytes(original)

        for stored in every:  # as they were written they are read, or the rest says nothing
            stored.read(stored.folder, random.Random(seed))
        _each(one, count, seed)


def _drawn(run: Path, form: str) -> None:
    view = outcome_of(run)
    if view is None:
        DRAWN[form]().render(view_of(run))


def _each(one: Callable[[int], None], count: int, seed: int) -> None:
    """Hypothesis chooses; a fault is counted and does not end it, so nothing is to be made smaller."""

    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**48))
    def drive(number: int) -> None:
        one(number)

    drive()


def profiled(folder: Path) -> Path:
    """A real run folder."""
    (folder / "train.py").write_text(SCRIPT)
    words = [
        sys.executable,
        "-m",
        "hotlap",
        "profile",
        "--steps",
        "40",
        "--experiments",
        "off",
        "--out",
        "run",
        "train.py",
    ]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return folder / "run"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--stored", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path)
    options = parser.parse_args()
    tally = Tally()
    fuzz_plans(options.plans, options.seed, tally)
    fuzz_stored(options.stored, options.seed, tally)
    with tempfile.TemporaryDirectory() as folder:
        fuzz_runs(options.runs, options.seed, tally, options.run or profiled(Path(folder)))
    for what, count in sorted(tally.counts.items()):
        print(f"{what}: {count:,}")
    for what, count in tally.faults.most_common():
        print(f"FAULT {count:4} x {what}")
    print("MISSED" if tally.faults else "no traceback, no message above 2 KB, no wrong acceptance")
    return bool(tally.faults)


if __name__ == "__main__":
    sys.exit(main())
