"""The process that exports: `python -m hotlap.export TOOL WHERE`, the parcel on standard input."""

from __future__ import annotations

import json
import sys

from hotlap.export.sending import ANSWER, exporter_of
from hotlap.facts import codec
from hotlap.ports.exporter import Parcel


def main(tool: str, where: str) -> int:
    parcel = codec.from_plain(Parcel, json.loads(sys.stdin.read()))
    at = fault = ""
    try:
        at = exporter_of(tool).send(parcel, where)
    except Exception as error:
        first = (str(error).strip() or "no reason was given").splitlines()[0]
        fault = f"{type(error).__name__}: {first}"
    print(f"\n{ANSWER}{json.dumps([at, fault])}", flush=True)
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
