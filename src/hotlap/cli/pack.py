"""Convert a data set into shards that are read at the speed of memory; once, in parallel, safe to cut off.

hotlap pack SOURCE DIR     SOURCE: a folder with a NeMo-style manifest, a nuScenes tree, Parquet, pictures,
                           .npy .npz .mat, or a dataset that Python can import: mypkg.data:TrainSet
hotlap pack verify DIR     read every byte; a damaged shard is named, with its damaged samples
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.cli._output import add_json_option, check_json_target, print_text, write_json
from hotlap.errors import UsageError
from hotlap.facts.codec import SCHEMA, to_plain

if TYPE_CHECKING:
    from hotlap.data.pack.run import Packed, Verified

_DAMAGED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE|verify", help="what to pack")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder of the shards")
    parser.add_argument(
        "--format", default="auto", help="tar, nemo, flat or parquet (default: what suits the source)"
    )
    parser.add_argument("--shards", type=int, metavar="N", help="how many (default: one for each 256 MiB)")
    parser.add_argument(
        "--map", metavar="MODULE:FUNCTION", help="called with each decoded sample; what it returns is packed"
    )
    parser.add_argument(
        "--normalize",
        metavar="FIELD,...",
        default="",
        help="subtract the mean, divide by the standard deviation",
    )
    parser.add_argument(
        "--arg", metavar="KEY=VALUE", action="append", default=[], help="an argument of the dataset's class"
    )
    parser.add_argument(
        "--engine", choices=("processes", "ray"), default="processes", help="where the work is done"
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    check_json_target(options.json)
    return _verify(options) if options.source == "verify" else _pack(options)


def _pack(options: argparse.Namespace) -> int:
    from hotlap.cli._output import SampleBar
    from hotlap.data.pack.job import PackRequest
    from hotlap.data.pack.run import carry_out, carry_out_on_ray, pack

    fields = tuple(each for each in options.normalize.split(",") if each)
    order = PackRequest(
        options.source, _format(options), _arguments(options.arg), options.map, fields, options.shards
    )
    with SampleBar() as bar:
        packed = pack(order, options.folder, bar, carry_out_on_ray if options.engine == "ray" else carry_out)
    if options.json:
        write_json(options.json, _facts(packed))
    if options.json != "-":
        print_text(_told(packed, options.folder))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from hotlap.data.pack.run import verify

    verified = verify(options.folder)
    if options.json:
        facts = {
            "samples": verified.seal.samples,
            "intact": not verified.damage,
            "damage": to_plain(verified.damage),
        }
        write_json(options.json, {"schema": SCHEMA, **facts})
    if options.json != "-":
        print_text(_judged(verified, options.folder))
    return _DAMAGED if verified.damage else 0


def _format(options: argparse.Namespace) -> str:
    from hotlap.data.formats import format_named
    from hotlap.data.pack.sources import natural_format

    if options.format != "auto":
        return format_named(options.format).id
    return natural_format(options.source, changed=bool(options.map or options.normalize))


def _arguments(words: list[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"--arg {word} is no KEY=VALUE.", "write, for example, --arg root=data/train")
        try:
            arguments[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            arguments[key] = value
    return arguments


def _facts(packed: Packed) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kept_shards": packed.kept,
        "restarted": packed.restarted,
        **to_plain(packed.seal),
    }


def _told(packed: Packed, folder: Path) -> str:
    from hotlap.data.formats import format_named
    from hotlap.units import size

    seal = packed.seal
    total = size(sum(each.bytes for each in seal.files.values()))
    shards = f"{len(seal.shards)} {seal.format} shard{'s' if len(seal.shards) > 1 else ''}"
    lines = [f"{folder}: {seal.samples} samples in {shards}, {total}, complete."]
    if packed.kept == len(seal.shards):
        lines.append("All of them were there already.")
    elif packed.kept:
        lines.append(f"{packed.kept} finished shards of a run that was cut off were kept.")
    if packed.restarted:
        lines.append(
            "The source or the options had changed since a run that was cut off: all was packed anew."
        )
    hints = format_named(seal.format).hints(folder, [each.name for each in seal.shards])
    lines += [f"{name}: {value}" for name, value in hints.items()]
    lines.append(f"Python: hotlap.data.open_shards({str(folder)!r})")
    return "\n".join(lines) + "\n"


def _judged(verified: Verified, folder: Path) -> str:
    if not verified.damage:
        return (
            f"{folder}: {verified.seal.samples} samples in {len(verified.seal.shards)} shards, all intact.\n"
        )
    lines = []
    for each in verified.damage:
        more = f" and {each.count - len(each.samples)} more" if each.count > len(each.samples) else ""
        samples = f": damaged samples {', '.join(each.samples)}{more}" if each.samples else ""
        lines.append(f"{folder / each.file} {each.what}{samples}.")
    return "\n".join([*lines, "  -> copy these files again, or pack them again into a new folder"]) + "\n"
