"""Explain a cause: what it is, how it is recognised, what to do. Without a cause, list them all.

hotlap explain input-starved
"""

from __future__ import annotations

import argparse

from hotlap.cli._output import add_json_option, listing, print_text, whole, write_json
from hotlap.facts.codec import SCHEMA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cause", nargs="?", metavar="CAUSE", help="as a report names it")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.diagnose.run import all_rules
    from hotlap.discover import card, pick

    cards = {rule.cause.value: card(rule) for rule in all_rules().values()}
    wanted = sorted(cards) if options.cause is None else [pick("cause", options.cause, cards)]
    if options.json:
        causes = [{"cause": cause, "card": cards[cause]} for cause in wanted]
        write_json(options.json, {"schema": SCHEMA, "causes": causes})
    if options.json != "-":
        print_text(whole(wanted[0], cards[wanted[0]]) if options.cause else _list(cards))
    return 0


def _list(cards: dict[str, str]) -> str:
    return f"{listing(cards)}\nhotlap explain CAUSE shows one of them.\n"
