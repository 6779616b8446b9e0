"""What a module under a rewrite costs to import: a file of some thousand lines, in fresh processes, with and without.
CPU time is taken, which other processes disturb less.

    python bench/rewrite_import.py

The original is read from its compiled file, as on every import but the first.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from hotlap.facts.plan import Plan
from hotlap.facts.rewrite import Rewriting
from hotlap.launch.environment import child_environment
from hotlap.launch.planned import pass_plan
from hotlap.rewriting.hook import spotted
from hotlap.source.files import SourceFile
from interleave import host_line

PROMISED_MS = 50.0
ROUNDS = 9
SEEN = {"samples": "torch.Tensor float32 ? cpu"}
FUNCTION = '''
def part_{number}(samples, weights=None, *, scale=1.0, names=()):
    """Adds up some of the samples."""
    if weights is None:
        weights = [scale for _ in samples]
    found = {{name: index for index, name in enumerate(names)}}
    for index, (sample, weight) in enumerate(zip(samples, weights)):
        found[index] = sample * weight + scale
    return found, sum(samples)

'''
CLOCK = """import time
began = time.process_time()
import big
now = time.process_time()
print((now - began) * 1e3, now * 1e3)
"""


def main() -> int:
    print(host_line())
    for functions in (30, 300):
        with tempfile.TemporaryDirectory() as given:
            folder = Path(given)
            path = folder / "big.py"
            path.write_text("".join(FUNCTION.format(number=number) for number in range(functions)))
            (folder / "clock.py").write_text(CLOCK)
            wanted = rewriting(path, "part_3", folder)
            plain: list[list[float]] = []
            under: list[list[float]] = []
            timed(folder, [])
            for _ in range(ROUNDS):
                plain.append(timed(folder, []))
                under.append(timed(folder, [wanted]))
            lines = len(path.read_text().splitlines())
        for part, name in enumerate(("the import", "the whole process")):
            before, after = (median(each[part] for each in runs) for runs in (plain, under))
            more = after - before
            late = "" if more <= PROMISED_MS else "  MISSED"
            print(
                f"{lines} lines, {name}: {before:.1f} ms, under a rewrite {after:.1f} ms: {more:+.1f} ms{late}"
            )
    return 0


def rewriting(path: Path, name: str, folder: Path) -> Rewriting:
    source = SourceFile.read(path)
    function = next(each for each in source.functions if each.qualname == name)
    (site,) = spotted(function, SEEN)
    line, digest = site.site.node.lineno, source.hash_of(function)  # type: ignore[attr-defined]
    file = str(path.relative_to(folder))
    return Rewriting("sum-over-tensor", file, line, name, (site.at,), digest, "rounding", SEEN)


def timed(folder: Path, wanted: list[Rewriting]) -> list[float]:
    """CPU milliseconds of the import, and of the process up to its end."""
    probe = folder / "probe"
    probe.mkdir(exist_ok=True)
    with contextlib.chdir(folder):
        plan = pass_plan(probe, Plan({each.key: each.setting for each in wanted}))
    environment = child_environment(probe, plan=plan, taps=False)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    words = [sys.executable, "clock.py"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return [float(each) for each in done.stdout.split()]


if __name__ == "__main__":
    sys.exit(main())
