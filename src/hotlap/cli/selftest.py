"""Train small jobs with known answers on this machine's device, and check what hotlap says of them.

It takes one to two minutes and needs torch alone. The table is fit for an issue. The exit code is 1 where a check
missed its answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hotlap.cli._output import add_json_option, add_language_option, check_json_target, write_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hotlap.report.locale import Phrases

_SHOWN_VERSIONS = ("python", "torch", "numpy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_language_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    import hotlap
    from hotlap.pipeline.selftest import selftest
    from hotlap.report import sheet
    from hotlap.report.locale import Phrases

    say = Phrases(options.lang)
    check_json_target(options.json)

    def tell(family: str) -> None:
        if options.json != "-":
            print(f"hotlap: {say(f'selftest.runs.{family}')}", file=sys.stderr, flush=True)

    found = selftest(hotlap.__version__, tell)
    if options.json:
        write_json(options.json, found)
    if options.json != "-":
        sheet.show(lambda colour, ascii_only: sheet.drawn(_parts(found, say, ascii_only), colour))
    return 1 if found["missed"] else 0


def _parts(found: Mapping[str, Any], say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
    from hotlap.report import sheet
    from hotlap.report.document import Section, Table, TableColumn

    columns = tuple(
        TableColumn(say(f"selftest.column.{name}")) for name in ("check", "planted", "found", "result")
    )
    rows = tuple(_row(check, say) for check in found["checks"])
    versions = [f"{name} {found['versions'][name]}" for name in _SHOWN_VERSIONS if name in found["versions"]]
    device = say("selftest.device", found, versions=", ".join(versions))
    sentences = (device, found["host"])
    yield from sheet.section(
        Section("selftest", say("selftest.title"), sentences, Table(columns, rows)),
        ascii_only,
        say,
        len(rows),
    )
    states = [check["state"] for check in found["checks"]]
    counts = {name.replace("-", "_"): states.count(name) for name in ("reached", "missed", "not-run")}
    yield ""
    yield sheet.text(say("selftest.sum", counts, seconds=found["seconds"]))


def _row(check: Mapping[str, Any], say: Phrases) -> tuple[str, ...]:
    from hotlap.report.words import translated

    family, figures = check["family"], check["figures"]
    if check["reason"]:
        shown = say(f"selftest.reason.{check['reason']}", detail=translated(check["detail"], say))
    else:
        shown = " ".join(
            [say(f"selftest.found.{family}", figures), translated(check["detail"], say)]
        ).rstrip()
    return (
        say(f"selftest.check.{family}", figures),
        say(f"selftest.expected.{family}", figures),
        shown,
        say(f"selftest.state.{check['state']}"),
    )
