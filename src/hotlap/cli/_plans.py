"""What the commands on plans share: where the settings come from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.errors import UsageError

if TYPE_CHECKING:
    from hotlap.facts.plan import Plan
    from hotlap.ports.knob import Knob, Numerics

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
    from hotlap.seams.plan import checked, from_words

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
