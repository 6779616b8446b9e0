"""Files and folders for their owner alone: runs hold commands, paths and the script's output. Whatever the umask."""

from __future__ import annotations

import os
import stat
from pathlib import Path

FILE, FOLDER = 0o600, 0o700


def opener(path: str, flags: int) -> int:
    """For `open(..., opener=opener)`: a file that is made by it is its owner's; one that is there stays as it is."""
    return os.open(path, flags, FILE)


def write(path: Path, content: bytes) -> None:
    """A new file, or the content of one that is there anew."""
    with open(path, "wb", opener=opener) as file:
        file.write(content)


def make_folder(folder: Path) -> None:
    """With what is missing above it. A folder that is there keeps its mode: others may have a reason to read it."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(FOLDER, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))


def close(path: Path) -> None:
    """Of a file that another library wrote: from now on only its owner reads it."""
    path.chmod(FILE)


def foreign(path: Path) -> str:
    """Why others could have written what lies there; nothing where only this user could."""
    if not hasattr(os, "getuid"):
        return ""
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        return f"{path} is a link"
    if about.st_uid != os.getuid():
        return f"{path} belongs to another user ({about.st_uid})"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to {path} (mode {stat.S_IMODE(about.st_mode):o})"
    return ""
