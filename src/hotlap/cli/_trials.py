"""What the commands that run trials share: the gate, where trials are kept, and a line for each of them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from hotlap.errors import UsageError
from hotlap.units import duration, rate

if TYPE_CHECKING:
    from hotlap.facts.trial import Trial
    from hotlap.measure.contest import Variant
    from hotlap.pipeline.asked import Budget

TRIPPED = 4
STEPS = 40  # steady ones of a trial, or more where they are short: several trials tell more than a long one
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_NAME_WIDTH, _RESULT_WIDTH = 30, 50


def add_gate_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--fail-if-slower",
        metavar="SHARE",
        help=f"exit with 4 if it is surely slower by more, such as 5%% (default: {default})",
    )


def add_out_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--out", metavar="DIR", help=f"where its files are kept (default {default})")


def add_budget_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--budget",
        default=default,
        metavar="TIME|TRIALS",
        help=f"5m, 90s, 1h, or a number of trials (default {default})",
    )


def read_budget(text: str) -> Budget:
    """`5m`, `90s`, `1h`, or a number of trials."""
    from hotlap.pipeline.asked import Budget

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if found:
        return Budget(seconds=float(found[1]) * _SECONDS[found[2]])
    if text.strip().isdigit() and int(text) > 0:
        return Budget(trials=int(text))
    raise UsageError(f"--budget {text} is neither a time nor a number of trials.", "write 5m, 90s or 20")


def read_share(text: str, option: str) -> float:
    """`5%` or `0.05`."""
    from hotlap.ports.values import NotAllowedError, Share

    try:
        return Share().read(text)
    except NotAllowedError as error:
        raise UsageError(f"{option}: {error.what}.", error.remedy) from None


def teller(quiet: bool) -> Callable[[Variant, Trial], None]:
    """Tells of each trial on standard error."""

    def told(variant: Variant, trial: Trial) -> None:
        figures = trial.figures
        result = (
            f"{rate(figures.throughput):>9} {figures.counts}/s  {duration(figures.step_ms / 1e3):>8}/step"
            if figures
            else f"{trial.status.value}: {trial.reason}"
        )
        line = f"{variant.name[:_NAME_WIDTH]:{_NAME_WIDTH}} {result[:_RESULT_WIDTH]}  {trial.seconds:4.0f} s"
        print(line, file=sys.stderr, flush=True)

    return _say_nothing if quiet else told


def _say_nothing(_: Variant, __: Trial) -> None:
    """Standard output holds JSON, and whoever reads it wants nothing else."""
