"""Runs unmodified scripts one after the other in one process, each in a folder of its own: torch is imported once.

python in_turn.py '[["folder", "script.py", "--steps", "30"], ...]'
"""

import json
import os
import runpy
import sys
from pathlib import Path

for folder, *command in json.loads(sys.argv[1]):
    Path(folder).mkdir(exist_ok=True)
    os.chdir(folder)
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
