"""List the knobs, the changes that hotlap can make to a run, or show one of them.

hotlap knobs
hotlap knobs show pin-memory
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hotlap.cli._cards import listing, whole
from hotlap.cli._output import add_json_option, print_text, write_json
from hotlap.errors import UsageError
from hotlap.facts.codec import SCHEMA

if TYPE_CHECKING:
    from hotlap.ports.knob import Knob

USAGE = "hotlap knobs [show ID] [--json FILE|-]"
GROUP = "hotlap.knobs"  # entry points of knobs that live outside hotlap
_NONE = "This hotlap has no knobs: its reports say what to change, and you change it in your script.\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="show ID", help="the knob to show")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap import knobs
    from hotlap.discover import card, units
    from hotlap.ports.knob import Knob

    known = {knob.id: knob for knob in units(knobs, Knob, GROUP)}  # type: ignore[type-abstract]
    cards = {name: card(knob) for name, knob in known.items()}
    wanted = _wanted(options.words, known)
    if options.json:
        shown = [_facts(known[name], cards[name]) for name in ([wanted] if wanted else sorted(known))]
        write_json(options.json, {"schema": SCHEMA, "knobs": shown})
    if options.json != "-":
        print_text(whole(wanted, cards[wanted]) if wanted else _list(cards))
    return 0


def _wanted(words: list[str], known: dict[str, Knob]) -> str | None:
    if not words:
        return None
    if len(words) != 2 or words[0] != "show":
        raise UsageError(f"knobs does not know '{' '.join(words)}'.", f"hotlap knobs show {words[-1]}")
    if not known:
        raise UsageError(f"no knob is called '{words[1]}'.", "this hotlap has no knobs")
    from hotlap.discover import pick

    return pick("knob", words[1], known)


def _list(cards: dict[str, str]) -> str:
    return f"{listing(cards)}\nhotlap knobs show ID shows one of them.\n" if cards else _NONE


def _facts(knob: Knob, text: str) -> dict[str, Any]:
    return {
        "knob": knob.id,
        "relieves": sorted(knob.relieves),
        "seam": knob.seam.value,
        "numerics": knob.numerics.value,
        "card": text,
    }
