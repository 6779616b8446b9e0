"""Draws the README's two pictures from a stored run: the report in a terminal, and its page in a browser.

    make demo && python tools/pictures.py RUN

RUN is a folder of `hotlap profile`, or `last`. Writes docs/pictures/terminal.svg and docs/pictures/report.png; the
second needs chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
COLUMNS = 100
LINES = 34  # of the terminal: verdict, reasons, next step and the stages; the rest is in docs/demo.md
WINDOW = "1200,1250"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    PICTURES.mkdir(exist_ok=True)
    terminal(arguments[0])
    page(arguments[0])
    return 0


def terminal(run: str) -> None:
    from rich.console import Console
    from rich.terminal_theme import DIMMED_MONOKAI
    from rich.text import Text

    from hotlap.launch.runfolder import find_run
    from hotlap.pipeline import view_of
    from hotlap.report.renderers.terminal import draw

    lines = draw(view_of(find_run(run)), colour=True).splitlines()
    with tempfile.TemporaryFile("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(Text.from_ansi("\n".join(lines[:LINES])))
        shown = console.export_svg(title="hotlap profile train.py", theme=DIMMED_MONOKAI)
    (PICTURES / "terminal.svg").write_text(shown, encoding="utf-8")


def page(run: str) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("chromium is not here: docs/pictures/report.png stays as it was", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-m", "hotlap", "report", run, "--out", str(html)], check=True)
        flags = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=20000",
        )
        shot = f"--screenshot={PICTURES / 'report.png'}"
        profile = f"--user-data-dir={folder}/profile"
        subprocess.run([browser, *flags, profile, f"--window-size={WINDOW}", shot, html.as_uri()], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
