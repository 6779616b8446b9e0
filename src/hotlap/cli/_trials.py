"""What the commands that run trials share: the gate, where trials are kept, and a line for each of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from hotlap.errors import UsageError

if TYPE_CHECKING:
    from hotlap.facts.trial import Trial
    from hotlap.measure.contest import Variant

TRIPPED = 4
STEPS = 60  # steady ones of a trial: several trials tell more than a long one
_NAME_WIDTH, _RESULT_WIDTH = 30, 50


def add_gate_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--fail-if-slower",
        metavar="SHARE",
        help=f"exit with 4 if it is surely slower by more, such as 5%% (default: {default})",
    )


def add_out_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--out", metavar="DIR", help=f"where its files are kept (default {default})")


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
            f"{figures.throughput:10,.4g} {figures.counts}/s  {figures.step_ms:8.3g} ms/step"
            if figures
            else f"{trial.status.value}: {trial.reason}"
        )
        line = f"{variant.name[:_NAME_WIDTH]:{_NAME_WIDTH}} {result[:_RESULT_WIDTH]}  {trial.seconds:4.0f} s"
        print(line, file=sys.stderr, flush=True)

    return _say_nothing if quiet else told


def _say_nothing(_: Variant, __: Trial) -> None:
    """Standard output holds JSON, and whoever reads it wants nothing else."""
