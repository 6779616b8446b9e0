"""Looks whether a file is whole, as far as its head and its end tell: no decoding, so that packing stays a copy."""

from __future__ import annotations

from collections.abc import Callable

from hotlap.data.decode_audio import plain_wav
from hotlap.data.samples import SampleError

_WAV_HEAD = 44
_TAIL = 2**16
"""Cameras append notes of their own after the end of a JPEG, but no long ones."""


def check_intact(suffix: str, content: bytes) -> None:
    """Refuse an empty, cut off or wrongly named file."""
    fault = "it is empty" if not content else _FAULTS.get(suffix, _none)(content)
    if fault:
        raise SampleError(f"the file is damaged: {fault}.", "restore the file or leave it out")


def _none(_: bytes) -> str:
    return ""


def _wav(content: bytes) -> str:
    if len(content) < _WAV_HEAD:
        return "it is cut off"
    try:
        plain_wav(memoryview(content))
    except SampleError as error:
        return error.what.rstrip(".")
    return "" if content[:4] in (b"RIFF", b"RF64", b"RIFX") else "it is no WAV file"


def _flac(content: bytes) -> str:
    return "" if content[:4] == b"fLaC" or content[:3] == b"ID3" else "it is no FLAC file"


def _jpeg(content: bytes) -> str:
    if content[:2] != b"\xff\xd8":
        return "it is no JPEG file"
    return "" if b"\xff\xd9" in content[-_TAIL:][2:] else "it is cut off"


def _png(content: bytes) -> str:
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        return "it is no PNG file"
    return "" if b"IEND" in content[-_TAIL:] else "it is cut off"


_FAULTS: dict[str, Callable[[bytes], str]] = {
    "wav": _wav, "flac": _flac, "jpg": _jpeg, "jpeg": _jpeg, "png": _png,
}  # fmt: skip
