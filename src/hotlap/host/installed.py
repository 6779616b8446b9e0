"""What is installed for a Python: hotlap may live in another environment than the job.

The file is also run as a program of its own by the job's Python, so it needs the standard library alone, also of a
Python that is too old for hotlap.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = {
    "torch": ("torch",),
    "lightning": ("lightning", "pytorch-lightning"),
    "transformers": ("transformers",),
    "accelerate": ("accelerate",),
    "mmengine": ("mmengine", "mmengine-lite"),
    "triton": ("triton", "triton-windows"),
}
"""Names of what a training script imports, and the distributions that bring it."""


def installed() -> dict[str, Any]:
    """`versions` of Python, torch and frameworks; `headers`: whether a compiler finds Python.h."""
    versions = {"python": platform.python_version()}
    for package, distributions in PACKAGES.items():
        found = [version for version in map(_version, distributions) if version]
        if found:
            versions[package] = found[0]
    versions.update(_torch_backends())
    return {"versions": versions, "headers": Path(sysconfig.get_paths()["include"], "Python.h").is_file()}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _torch_backends() -> dict[str, str]:
    """What torch was built for (cuda, hip), read from its version file: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(re.findall(r"^(cuda|hip)\b[^=\n]*=\s*'([^']+)'", text, flags=re.MULTILINE))


if __name__ == "__main__":
    print(json.dumps(installed()))
