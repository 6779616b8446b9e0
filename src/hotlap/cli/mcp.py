"""Serve coding agents: profile, tune, explain, diagnose and patch as tools of the Model Context Protocol, over stdio.

hotlap mcp
"""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none: an agent's settings name the command and the folder."""


def run(_: argparse.Namespace) -> int:
    import hotlap
    from hotlap.mcp.server import Server

    Server(sys.stdin, sys.stdout, hotlap.__version__).serve()
    return 0
