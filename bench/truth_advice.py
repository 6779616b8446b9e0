"""Truth of advice: every change that a profile shows with a gain is applied in fresh processes by `hotlap compare`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from truth_jobs import Job

SHOWN = 0.03  # smaller gains are not advice
COMPARE_S = 90  # for one comparison
STEPS = 150


class Claimed(Protocol):
    """An answer with what it claims: `settings`, `gain`, and where they are known `low` and `high`."""

    @property
    def claims(self) -> tuple[dict[str, Any], ...]: ...


def claims(view: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Changes shown with a measured gain: those of experiments, and of fixes where no experiment names them."""
    seen = set()
    for each in view.get("experiments") or ():
        settings = {each["knob"]: each["setting"], **(each.get("beside") or {})}
        if each.get("gain") is None or each.get("state") not in (None, "faster") or "free" in each["knob"]:
            continue
        seen.add(each["knob"])
        yield _claim(settings, each["gain"], each.get("interval"))
    for finding in view["findings"]:
        for fix in finding.get("fixes") or ():
            if fix.get("measured_gain") is not None and fix["knob"] not in seen:
                seen.add(fix["knob"])
                yield _claim({fix["knob"]: fix["setting"]}, fix["measured_gain"], fix.get("interval"))


def _claim(settings: Mapping[str, Any], gain: float, interval: Mapping[str, float] | None) -> dict[str, Any]:
    low, high = (interval["low"], interval["high"]) if interval else (None, None)
    return {"settings": dict(settings), "gain": gain, "low": low, "high": high}


def advice(
    asked: Iterable[tuple[Job, Claimed]],
    environment: Callable[[Job], dict[str, str]],
    write: Callable[[dict[str, Any]], None],
    options: argparse.Namespace,
    root: Path,
) -> list[str]:
    """Sign and size of each shown gain against fresh processes."""
    rows = []
    for job, answer in asked:
        for number, claim in enumerate(each for each in answer.claims if each["gain"] >= SHOWN):
            folder = root / f"advice-{job.digest[:12]}-{number}"
            fresh = _compared(job, claim["settings"], environment(job), folder)
            row = {"job": job.name, "healthy": not job.causes, **claim, "fresh": fresh}
            write(row)
            rows.append(row)
            if options.reveal:
                shown = f"{fresh['value'] - 1:+.0%}" if fresh else "not measured"
                print(f"{job.name} {claim['settings']}: {claim['gain']:+.0%} shown, {shown}", file=sys.stderr)
    return summary(rows)


def _compared(
    job: Job, settings: Mapping[str, Any], environment: dict[str, str], folder: Path
) -> dict[str, float] | None:
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(job.script.text, encoding="utf-8")
    lines = [f"  {knob}: {json.dumps(value)}" for knob, value in settings.items()]
    (folder / "plan.yaml").write_text("\n".join(["hotlap: 1", "settings:", *lines, ""]), encoding="utf-8")
    words = ["compare", "--budget", f"{COMPARE_S}s", "--json", "compared.json", "none", "plan.yaml"]
    command = [sys.executable, "-m", "hotlap", *words, "--", "train.py", "--max-steps", str(STEPS)]
    try:
        subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=4 * COMPARE_S
        )
        rows = json.loads((folder / "compared.json").read_text(encoding="utf-8"))["variants"]
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return None
    return next((row["ratio"] for row in rows if row["settings"] and row["ratio"]), None)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    measured = [row for row in rows if row["fresh"]]
    wrong = sum(row["fresh"]["high"] < 1.0 for row in measured)
    apart = [abs((1 + row["gain"]) / row["fresh"]["value"] - 1) for row in measured]
    bounded = [row for row in measured if row["low"] is not None]
    held = sum(
        row["low"] <= row["fresh"]["high"] - 1 and row["fresh"]["low"] - 1 <= row["high"] for row in bounded
    )
    healthy = [row for row in measured if row["healthy"]]
    faster = sum(row["fresh"]["low"] > 1.0 for row in healthy)
    return [
        f"shown gains: {len(rows)}, measured in fresh processes: {len(measured)}",
        f"slower although a gain was shown: {wrong}",
        f"in-process against fresh, median distance: {median(apart):.1%}" if apart else "nothing to compare",
        f"intervals that meet the fresh one: {held} of {len(bounded)}",
        f"gains shown on healthy jobs: {len(healthy)}, of them faster in fresh processes: {faster}",
    ]
