"""What the commands on plans share: where the settings come from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotlap.facts.plan import Plan
    from hotlap.ports.knob import Knob


def add_set_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", help="one setting; overrides the plan's"
    )


def overridden(plan: Plan, words: list[str], knobs: Mapping[str, Knob]) -> Plan:
    """The plan with the settings of `--set`, which were asked for by name."""
    from hotlap.facts.plan import Plan
    from hotlap.seams.plan import checked, from_words

    given = from_words(words, knobs)
    if not given:
        return plan
    reasons = {**plan.reasons, **dict.fromkeys(given, "asked for by --set")}
    return Plan(checked({**plan.settings, **given}, knobs), None, reasons)


def wanted_plan(options: argparse.Namespace, knobs: Mapping[str, Knob]) -> Plan:
    """From `--plan FILE` and `--set`."""
    from hotlap.facts.plan import Plan
    from hotlap.seams.plan_file import read_plan

    base = read_plan(Path(options.plan), knobs) if options.plan else Plan()
    return overridden(base, options.set, knobs)
