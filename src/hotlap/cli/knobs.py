"""List the knobs, show one, or find out which of them can act on a script.

hotlap knobs
hotlap knobs show pin-memory
hotlap knobs --for train.py --epochs 1

With --for the script runs for two steps under a plan that only asks, and is ended; nothing stays applied.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hotlap.cli._output import add_json_option, check_json_target, listing, print_text, whole, write_json
from hotlap.errors import UsageError, visible
from hotlap.facts.codec import SCHEMA

if TYPE_CHECKING:
    from hotlap.ports.knob import Knob

USAGE = "hotlap knobs [options] [show KNOB | --for SCRIPT|-m MODULE|-- LAUNCHER [arguments ...]]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("show", nargs="*", metavar="show KNOB", help="print the card of one knob")
    add_json_option(parser)
    parser.add_argument(
        "--for",
        dest="job",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT ...",
        help="run this script for two steps and say which knobs can act on it; the last option",
    )


def run(options: argparse.Namespace) -> int:
    from hotlap.plan.catalogue import all_knobs

    knobs = all_knobs()
    wanted = _wanted(options.show, knobs)
    if options.job is not None:
        return _ask(options, knobs)
    facts = [_facts(knobs[key]) for key in wanted or sorted(knobs)]
    if options.json:
        write_json(options.json, {"schema": SCHEMA, "knobs": facts})
    if options.json != "-":
        print_text(_whole(facts[0]) if wanted else _listed(facts))
    return 0


def _wanted(words: Sequence[str], knobs: Mapping[str, Knob]) -> list[str]:
    from hotlap.discover import pick

    if not words:
        return []
    if words[0] != "show" or len(words) != 2:
        raise UsageError(f"'{' '.join(words)}' is not understood.", "write: hotlap knobs show pin-memory")
    return [pick("knob", words[1], knobs)]


def _facts(knob: Knob) -> dict[str, Any]:
    from hotlap.discover import card

    return {
        "knob": knob.id,
        "numerics": knob.numerics.value,
        "seam": knob.seam.value,
        "values": knob.values.shown,
        "relieves": sorted(cause.value for cause in knob.relieves),
        "promise": list(knob.promise) if knob.promise else None,
        "card": card(knob).strip(),
    }


def _listed(facts: Sequence[Mapping[str, Any]]) -> str:
    lines = {each["knob"]: f"{_first_line(each)} {_traits(each)}" for each in facts}
    return f"{listing(lines)}\nhotlap knobs show KNOB shows one of them.\n"


def _whole(facts: Mapping[str, Any]) -> str:
    from hotlap.report.tuned import promise

    relieves = f"\nrelieves {', '.join(facts['relieves'])}" if facts["relieves"] else ""
    promised = f"\ntypical claim {promise(facts['promise'])}" if facts["promise"] else ""
    return f"{whole(facts['knob'], facts['card'])}\n{_traits(facts)}{relieves}{promised}\n"


def _first_line(facts: Mapping[str, Any]) -> str:
    return str(facts["card"]).partition("\n")[0]


def _traits(facts: Mapping[str, Any]) -> str:
    return f"[{facts['numerics']}; at the {facts['seam']}; {facts['values']}]"


def _ask(options: argparse.Namespace, knobs: Mapping[str, Knob]) -> int:
    from hotlap.launch.command import to_job
    from hotlap.pipeline import ask

    check_json_target(options.json)
    answers, reason = ask(to_job(options.job, command="knobs --for"), knobs)
    if not answers:
        raise UsageError(reason, "name a script that trains, with the options that it needs")
    if reason:
        print(f"hotlap: {visible(reason)}", file=sys.stderr)
    if options.json:
        write_json(options.json, {"schema": SCHEMA, "knobs": answers})
    if options.json != "-":
        print_text(_answered(answers))
    return 0


def _answered(answers: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for title, acts in (("These knobs can act here", True), ("These cannot", False)):
        lines = {
            each["knob"]: f"at {each['place']} ({each['numerics']})" if acts else each["reason"]
            for each in answers
            if each["acts"] is acts
        }
        if lines:
            parts.append(f"{title}:\n{listing(lines)}")
    return "\n".join(parts)
