"""Rewrites as a patch: what a plan has proved, one hunk each with its gain, and apart from it what is advised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotlap.diagnose.rewrites import diff_of
from hotlap.errors import FactError, UsageError
from hotlap.facts import codec
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.rewrite import Rewriting, is_rewrite
from hotlap.facts.verdict import Gain, Ruling, Sameness, Tuning
from hotlap.launch import runfolder
from hotlap.pipeline import stored_rewrites
from hotlap.pipeline.outcome import TUNING
from hotlap.plan.file import read_plan
from hotlap.ports.rewrite import Edit
from hotlap.rewriting.hook import edits_of
from hotlap.source.files import SourceFile, UnreadableError, edited


@dataclass(frozen=True)
class Patch:
    """`text` is what `git apply` takes, `files` the new contents by path. `apart` is what the patch leaves out, each
    with the reason."""

    text: str
    files: Mapping[Path, bytes]
    apart: tuple[str, ...] = ()


def patch_of(named: str) -> Patch:
    """Of a plan's file, of the folder of a search, or of a profile."""
    path = Path(named)
    if path.is_file():
        return _of_plan(path, Path.cwd())
    folder = runfolder.find_run(named)
    if (folder / runfolder.PLAN).is_file():
        return _of_plan(folder / runfolder.PLAN, _home(folder))
    found = stored_rewrites(folder)
    if found is None or not found.found:
        raise FactError(
            f"{folder} holds no rewrite: no known pattern was recognised in its slow lines.",
            "hotlap report shows the lines that hold the time",
        )
    unproved = "measured, not proved" if any(each.gain is not None for each in found.found) else "not tried"
    apart = [
        _apart(each.diff, f"{each.id} at {each.file}:{each.line}", unproved if each.rewriting else "advice")
        for each in found.found
    ]
    if any(each.rewriting for each in found.found):
        apart.append(
            "-> hotlap tune proves that the same model is trained, and then the patch holds the change"
        )
    return Patch("", {}, tuple(apart))


def _of_plan(path: Path, home: Path) -> Patch:
    plan = read_plan(path)
    wanted = [Rewriting.of(*each) for each in plan.settings.items() if is_rewrite(each[0])]
    if not wanted:
        raise UsageError(f"{path} holds no rewrite.", "hotlap tune adds those that pay to its plan")
    proved = plan.proof is not None and plan.proof.guard == Sameness.SAME
    gains = _gains(path.parent / TUNING)
    sources, pieces, apart = _read(wanted, home), list[str](), list[str]()
    done: dict[Path, list[Edit]] = {}
    for each in wanted:
        file = (home / each.file).resolve()
        name = f"{each.id} at {each.file}:{each.line}"
        try:
            source = sources[file]
            edits = edits_of(source, [each])
            before = SourceFile(file, edited(source.text, done.get(file, [])))
            after = edited(source.text, [*done.get(file, []), *edits])
        except (UnreadableError, KeyError) as error:
            apart.append(f"# {name}: {error}")
            continue
        hunk = diff_of(before, [Edit(0, len(before.text), after.decode())], each.file)
        if not proved:
            apart.append(_apart(hunk, name, "not proved: the plan has no proof of hotlap tune"))
            continue
        done.setdefault(file, []).extend(edits)
        pieces.append(f"# {name}: {_gained(each.key, gains, plan)}; {each.numerics}\n{hunk}")
    return Patch(
        "\n".join(pieces),
        {file: edited(sources[file].text, edits) for file, edits in done.items()},
        tuple(apart),
    )


def apply(patch: Patch) -> None:
    """Write the changed files, each as a whole."""
    for path, text in patch.files.items():
        path.write_bytes(text)


def _read(wanted: Iterable[Rewriting], home: Path) -> dict[Path, SourceFile]:
    found = {}
    for file in {(home / each.file).resolve() for each in wanted}:
        try:
            found[file] = SourceFile.read(file)
        except UnreadableError:
            continue  # told for each rewrite of it
    return found


def _home(folder: Path) -> Path:
    job: Job = codec.read_json(folder / "job.json", Job)
    return Path(job.cwd)


def _gains(path: Path) -> dict[str, Gain]:
    """By setting, what a search has measured of it."""
    if not path.is_file():
        return {}
    tuning: Tuning = codec.read_json(path, Tuning)
    kept = [each for each in tuning.verdicts if each.ruling is Ruling.KEEP and each.gain is not None]
    return {**{each.knob: each.gain for each in kept if each.gain is not None}, **tuning.alone}


def _gained(key: str, gains: Mapping[str, Gain], plan: Plan) -> str:
    gain = gains.get(key)
    if gain is not None:
        return f"measured {_percent(gain.value)} ({_percents([gain.interval.low, gain.interval.high])})"
    assert plan.proof is not None
    return f"part of a plan that was measured {_percent(plan.proof.gain)}"


def _percent(value: float) -> str:
    return f"{value * 100:+.0f} %"


def _percents(values: Sequence[float]) -> str:
    return " to ".join(f"{value * 100:.0f}" for value in values)


def _apart(diff: str, name: str, reason: str) -> str:
    return f"# {name}: {reason}\n{diff}".rstrip("\n")
