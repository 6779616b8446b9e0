"""Show a running job in a browser on this machine: the same as hotlap watch, read-only, behind a token.

hotlap serve last
hotlap serve last --port 8123 --lang zh
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hotlap.cli._output import add_language_option, add_run_argument
from hotlap.errors import UsageError

_MOST_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: one that is free")
    add_language_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.launch.runfolder import find_run
    from hotlap.pipeline import live_reader
    from hotlap.report.live.picture import LivePages
    from hotlap.watch.live.server import ADDRESS, LiveServer

    if not 0 <= options.port <= _MOST_PORT:
        raise UsageError(f"--port is {options.port}.", f"give a number from 1 to {_MOST_PORT}")
    folder = Path(find_run(options.stored)).resolve()
    pages = LivePages(options.lang)
    try:
        server = LiveServer(folder, live_reader(folder).look, pages, options.port)
    except OSError as error:
        raise UsageError(
            f"port {options.port} of {ADDRESS} cannot be used: {error.strerror}.", "leave --port away"
        ) from None
    print(server.url, flush=True)
    print("hotlap: open this address on this machine; Ctrl-C ends the view, not the job.", file=sys.stderr)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return 0
