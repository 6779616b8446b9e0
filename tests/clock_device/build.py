"""Builds the clock device's extension, once for each of its sources, torch and Python.

`make test` runs this file before the tests. Where there is no compiler it says so in one line, and the tests that need
the device are skipped.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("device.cpp", "clock.h", "memory.h")
MODULE = "_clock_device"


def built() -> Path:
    """Where the extension for these sources and this torch is, or will be."""
    from importlib.metadata import version

    parts = [(HERE / name).read_bytes() for name in SOURCES]
    parts.append(f"{version('torch')} {sys.implementation.cache_tag} {sys.platform}".encode())
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return HERE.parents[1] / "build" / "clock_device" / digest / f"{MODULE}{suffix}"


def compiler() -> str | None:
    return shutil.which("g++") or shutil.which("clang++")


def build() -> Path:
    """The extension's file, compiled where it is not there yet."""
    target = built()
    if target.exists():
        return target
    from torch.utils import cpp_extension

    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(f".{id(target)}")
    folders = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    libraries = cpp_extension.library_paths()
    command = [
        compiler() or "g++", "-O1", "-fPIC", "-shared", "-std=c++20", "-w", str(HERE / "device.cpp"), "-o", str(draft),
        *(f"-I{folder}" for folder in folders), *(f"-L{folder}" for folder in libraries),
        *(f"-Wl,-rpath,{folder}" for folder in libraries),
        f"-DTORCH_EXTENSION_NAME={MODULE}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the clock device cannot be built:\n{done.stderr[-8000:]}")
    draft.replace(target)
    return target


if __name__ == "__main__":
    if compiler() is None:
        print("no C++ compiler is here: the tests on the clock device will be skipped")
    else:
        print(f"clock device: {build()}")
