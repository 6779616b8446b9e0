"""Which decoder reads which field: chosen by the field's suffix, the quickest that is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hotlap.data.decode_audio import Audio
from hotlap.data.decode_image import Picture
from hotlap.data.samples import Fields

Decoder = Callable[[memoryview], Any]

SOUNDS = ("wav", "flac", "ogg", "opus", "mp3")
PICTURES = ("jpg", "jpeg", "png", "webp", "bmp")
THREADED = frozenset({*SOUNDS, *PICTURES}) - {"wav", "bmp"}
"""Decoders that compute long enough outside of the GIL for threads to pay."""
_NAMES = {**dict.fromkeys(SOUNDS, "audio"), **dict.fromkeys(PICTURES, "image")}
"""What a field is called after decoding that has no name but its suffix."""


def _text(content: memoryview) -> str:
    return bytes(content).decode()


def _class_number(content: memoryview) -> int:
    return int(bytes(content))


def default_decoders() -> dict[str, Decoder]:
    """A decoder for each suffix."""
    return {
        **dict.fromkeys(SOUNDS, Audio()),
        **dict.fromkeys(PICTURES, Picture()),
        "txt": _text,
        "cls": _class_number,
    }


def decode_fields(fields: Mapping[str, Any], decoders: Mapping[str, Decoder]) -> Fields:
    """The sample with its bytes decoded; `left.jpg` becomes `left`, `jpg` becomes `image`, `wav` becomes `audio`."""
    decoded = {}
    for field, value in fields.items():
        name, _, suffix = field.rpartition(".")
        if not isinstance(value, bytes | memoryview):
            decoded[field] = value
        elif suffix.lower() in decoders:
            content = value if isinstance(value, memoryview) else memoryview(value)
            decoded[name or _NAMES.get(suffix.lower(), suffix)] = decoders[suffix.lower()](content)
        else:
            decoded[field] = bytes(value)
    return decoded


def needs_threads(fields: Mapping[str, Any], decoders: Mapping[str, Decoder]) -> bool:
    """Whether decoding these fields takes long outside of the GIL."""
    suffixes = {field.rpartition(".")[2].lower() for field in fields}
    return bool(suffixes & THREADED & decoders.keys())
