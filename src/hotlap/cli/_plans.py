"""What the commands on plans share: where the settings come from."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.errors import UsageError, visible
from hotlap.units import duration, rate

if TYPE_CHECKING:
    from hotlap.facts.plan import Plan
    from hotlap.facts.trial import Trial
    from hotlap.measure.contest import Variant
    from hotlap.ports.knob import Knob, Numerics
    from hotlap.search.candidates import SearchBudget


_ALLOWED = ("rounding", "statistical")
_PRESETS = ("balanced", "speed", "memory", "debug")


def add_plan_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", metavar="FILE", help="the settings to apply: plan.yaml")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Options that make a plan without a file."""
    parser.add_argument(
        "--preset", metavar="NAME", help=f"a plan from the host's and the job's facts: {', '.join(_PRESETS)}"
    )
    parser.add_argument(
        "--allow",
        default="",
        metavar="WORDS",
        help=f"what a preset may change of the numbers: {','.join(_ALLOWED)} (default: nothing)",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", help="one setting; overrides the others"
    )


def preset_plan(options: argparse.Namespace, run: Path | None, knobs: Mapping[str, Knob]) -> Plan:
    """The plan of `--preset`; what it leaves out for the numbers' sake is told."""
    from hotlap.discover import pick
    from hotlap.pipeline import propose

    name = pick("preset", options.preset, _PRESETS)
    proposal = propose(name, run, knobs, allowed_numerics(options.allow))
    for word in _ALLOWED:
        left_out = [key for key, numerics in proposal.left_out.items() if numerics == word]
        if left_out:
            changes = "the rounding" if word == "rounding" else "what is trained"
            print(
                f"hotlap: left out, as they change {changes}: {', '.join(left_out)}\n  -> --allow {word}",
                file=sys.stderr,
            )
    return proposal.plan


def overridden(plan: Plan, words: list[str], knobs: Mapping[str, Knob]) -> Plan:
    """The plan with the settings of `--set`, which were asked for by name."""
    from hotlap.facts.plan import Plan
    from hotlap.plan.catalogue import checked, from_words

    given = from_words(words, knobs)
    if not given:
        return plan
    reasons = {**plan.reasons, **dict.fromkeys(given, "asked for by --set")}
    return Plan(checked({**plan.settings, **given}, knobs), None, reasons)


def allowed_numerics(text: str) -> set[Numerics]:
    """What `--allow` names."""
    from hotlap.discover import pick
    from hotlap.ports.knob import Numerics

    words = [word.strip() for word in text.split(",") if word.strip()]
    return {Numerics(pick("class of numerics", word, _ALLOWED)) for word in words}


def refuse_allow_without_preset(options: argparse.Namespace) -> None:
    if options.allow and not options.preset:
        raise UsageError("--allow says what a preset may change, and there is none.", "add --preset speed")


# What the commands that run trials share: the gate, where trials are kept, and a line for each of them.


TRIPPED = 4
STEPS = 40  # steady ones of a trial, or more where they are short: several trials tell more than a long one
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_NAME_WIDTH, _RESULT_WIDTH = 30, 50


def add_gate_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--fail-if-slower",
        metavar="SHARE",
        help=f"exit with 4 if it is slower by more than this with 99 %% confidence, such as 5%% (default: {default})",
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


def read_budget(text: str) -> SearchBudget:
    """`5m`, `90s`, `1h`, or a number of trials."""
    from hotlap.search.candidates import SearchBudget

    seconds = read_seconds(text)
    if seconds is not None:
        return SearchBudget(seconds=seconds)
    if text.strip().isdigit() and int(text) > 0:
        return SearchBudget(trials=int(text))
    raise UsageError(f"--budget {text} is neither a time nor a number of trials.", "write 5m, 90s or 20")


def read_seconds(text: str) -> float | None:
    """`5m`, `90s`, `1h` in seconds; None for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    return float(found[1]) * _SECONDS[found[2]] if found else None


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
        print(visible(line), file=sys.stderr, flush=True)

    return _say_nothing if quiet else told


def _say_nothing(_: Variant, __: Trial) -> None:
    """Standard output holds JSON, and whoever reads it wants nothing else."""
