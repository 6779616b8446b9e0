"""Which decoder reads which field: chosen by the field's suffix, the quickest that is installed."""

from __future__ import annotations

import importlib.util
import io
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hotlap.data.samples import Fields, SampleError

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


# Sound to float32: plain WAV straight from the mapped bytes, FLAC by dr_flac if miniaudio is there, else by
# soundfile.
#
# Both decoders release the GIL. dr_flac is quicker than the libFLAC that soundfile brings, for the same samples.


Array = np.ndarray[Any, Any]
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FLAC_HEAD = 26  # bytes up to the number of frames
_EXACT_BITS = 24  # that a float32 holds
_SCALES = {"<i2": np.float32(2.0**-15), "<i4": np.float32(2.0**-31)}


@dataclass(frozen=True)
class UnscaledAudio:
    """Samples as the file has them, not scaled yet: shape (frames,) or (frames, channels)."""

    rate: int
    samples: Array


@dataclass(frozen=True)
class Audio:
    """Decodes one sound to float32 in -1..1, as soundfile does; another rate than `sample_rate` is refused."""

    sample_rate: int | None = None

    def __call__(self, content: memoryview) -> Array:
        samples = self.undecoded(content)
        return np.multiply(samples, _scale(samples), dtype=np.float32)

    def undecoded(self, content: memoryview) -> Array:
        """The samples as they lie in a plain WAV file, to be written elsewhere by `write_float`; else decoded."""
        plain = plain_wav(content) or _by_dr_flac(content)
        rate, samples = (plain.rate, plain.samples) if plain else _by_soundfile(content)
        if self.sample_rate is not None and rate != self.sample_rate:
            what = f"the sound has {rate} samples a second, not {self.sample_rate}."
            raise SampleError(what, "resample it before packing")
        return samples


def plain_wav(content: memoryview) -> UnscaledAudio | None:
    """A view of the samples where the file is WAV of 16 or 32 bit; None where a decoder is needed."""
    if len(content) < 12 or bytes(content[:4]) != b"RIFF" or bytes(content[8:12]) != b"WAVE":
        return None
    described: tuple[str, int, int] | None = None
    at = 12
    while at + 8 <= len(content):
        name, size = bytes(content[at : at + 4]), int.from_bytes(content[at + 4 : at + 8], "little")
        if name == b"fmt ":
            described = _sample_type(content[at + 8 : at + 8 + size])
        if name == b"data":
            return _view(content[at + 8 :], size, described) if described else None
        at += 8 + size + size % 2
    raise SampleError("the WAV file ends before its samples.", "the file is damaged: copy it again")


def duration_of(content: memoryview) -> float:
    """Seconds of sound."""
    plain = plain_wav(content)
    if plain:
        return len(plain.samples) / plain.rate
    with _opened(content) as file:
        return float(file.frames / file.samplerate)


def cut(content: memoryview, offset: float, duration: float) -> bytes:
    """A part of a sound as a file of the same kind."""
    import soundfile

    with _opened(content) as file:
        file.seek(round(offset * file.samplerate))
        samples = file.read(
            round(duration * file.samplerate), dtype="int32" if "PCM" in file.subtype else "float64"
        )
        target = io.BytesIO()
        soundfile.write(target, samples, file.samplerate, format=file.format, subtype=file.subtype)
    return target.getvalue()


def _sample_type(chunk: memoryview) -> tuple[str, int, int] | None:
    """dtype, channels and rate."""
    if len(chunk) < 16:
        return None
    code, channels, rate, _, _, bits = struct.unpack("<HHIIHH", chunk[:16])
    if code == _EXTENSIBLE and len(chunk) >= 26:
        code = int.from_bytes(chunk[24:26], "little")
    dtype = {(_PCM, 16): "<i2", (_PCM, 32): "<i4", (_FLOAT, 32): "<f4"}.get((code, bits))
    return (dtype, channels, rate) if dtype and channels else None


def _view(body: memoryview, size: int, described: tuple[str, int, int]) -> UnscaledAudio:
    dtype, channels, rate = described
    if size > len(body):
        missing = size - len(body)
        raise SampleError(
            f"the WAV file is cut off: {missing} of {size} bytes are missing.", "copy the file again"
        )
    frames = size // (np.dtype(dtype).itemsize * channels)
    samples = np.frombuffer(body, dtype=dtype, count=frames * channels)
    return UnscaledAudio(rate, samples if channels == 1 else samples.reshape(frames, channels))


def write_float(samples: Array, target: Array) -> None:
    """Float32 in -1..1, straight to its place: no array in between."""
    np.multiply(samples, _scale(samples), out=target, dtype=np.float32)


def _scale(samples: Array) -> np.float32:
    return _SCALES.get(samples.dtype.str, np.float32(1.0))


def _by_dr_flac(content: memoryview) -> UnscaledAudio | None:
    """None where soundfile must do it: another kind of file, one that does not tell its length, damage."""
    if len(content) < _FLAC_HEAD or bytes(content[:4]) != b"fLaC":
        return None
    # 20 bits of rate, 3 of channels, 5 of the bits of a sample, 36 of frames
    facts = int.from_bytes(content[18:_FLAC_HEAD], "big")
    rate, channels = facts >> 44, (facts >> 41 & 7) + 1
    bits, frames = (facts >> 36 & 31) + 1, facts & (1 << 36) - 1
    try:
        import miniaudio
    except ImportError:
        return None
    if not frames or bits > _EXACT_BITS:
        return None
    dtype, read = ("<i2", miniaudio.flac_read_s16) if bits == 16 else ("<i4", miniaudio.flac_read_s32)
    try:
        samples = np.frombuffer(read(bytes(content)).samples, dtype)
    except miniaudio.DecodeError:
        return None
    if len(samples) != frames * channels:
        return None
    return UnscaledAudio(rate, samples if channels == 1 else samples.reshape(frames, channels))


def _by_soundfile(content: memoryview) -> tuple[int, Array]:
    with _opened(content) as file, _damage_told():
        samples: Array = file.read(dtype="float32")
        if len(samples) < file.frames:
            what = f"the sound is cut off: {len(samples)} of {file.frames} frames are there."
            raise SampleError(what, "copy the file again")
        return file.samplerate, samples


def _opened(content: memoryview) -> Any:
    try:
        import soundfile
    except ImportError:
        raise SampleError(
            "this sound is no plain WAV, and soundfile is not installed.", "pip install 'hotlap[data]'"
        ) from None
    with _damage_told():
        return soundfile.SoundFile(io.BytesIO(content))


@contextmanager
def _damage_told() -> Iterator[None]:
    import soundfile

    try:
        yield
    except soundfile.LibsndfileError as error:
        raise SampleError(
            f"the sound cannot be decoded: {error.error_string}", "the file is damaged: copy it again"
        ) from None


# Pictures to arrays: JPEG by simplejpeg, at a fraction of its size where a resize follows; the rest by Pillow.
#
# A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size for a fraction of the work. The smallest of them that is not
# smaller than what is asked for is taken, and resized from there.


_DAMAGED = "the file is damaged: copy it again"


@dataclass(frozen=True)
class Picture:
    """Decodes one picture to RGB, uint8, height x width x 3, resized to `size` (height, width) where given.

    With `mean` and `std` (of values in 0..1, one for each channel) it becomes float32, 3 x height x width, normalised.
    """

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __call__(self, content: memoryview) -> Array:
        pixels = _resized(_pixels(content, self.size), self.size)
        if self.mean is None or self.std is None:
            return pixels
        return _normalised(pixels, self.mean, self.std)


def _pixels(content: memoryview, size: tuple[int, int] | None) -> Array:
    is_jpeg = bytes(content[:2]) == b"\xff\xd8"
    if is_jpeg and _has("simplejpeg"):
        return _by_simplejpeg(content, size)
    return _by_pillow(content, size if is_jpeg else None)


def _by_simplejpeg(content: memoryview, size: tuple[int, int] | None) -> Array:
    import simplejpeg

    height, width = size or (0, 0)
    try:
        pixels: Array = simplejpeg.decode_jpeg(content, "RGB", min_height=height, min_width=width)
    except ValueError as error:
        raise SampleError(f"the JPEG cannot be decoded: {error}.", _DAMAGED) from None
    return pixels


def _by_pillow(content: memoryview, size: tuple[int, int] | None) -> Array:
    try:
        from PIL import Image
    except ImportError:
        raise SampleError(
            "neither simplejpeg nor Pillow is installed.", "pip install 'hotlap[data]'"
        ) from None
    try:
        picture: Any = Image.open(io.BytesIO(content))
        if size:
            picture.draft("RGB", (size[1], size[0]))
        return np.array(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise SampleError(f"the picture cannot be decoded: {error}.", _DAMAGED) from None


def _resized(pixels: Array, size: tuple[int, int] | None) -> Array:
    """By torch, which all users have: bilinear with antialiasing on uint8, as quick as the quickest."""
    if size is None or pixels.shape[:2] == size:
        return pixels
    import torch

    planes = torch.from_numpy(pixels).permute(2, 0, 1).unsqueeze(0)
    smaller = torch.nn.functional.interpolate(planes, size, mode="bilinear", antialias=True)
    resized: Array = smaller.squeeze(0).permute(1, 2, 0).numpy()
    return resized


def _normalised(pixels: Array, mean: tuple[float, ...], std: tuple[float, ...]) -> Array:
    """Scale, shift and transpose in one pass for each channel."""
    planes = np.empty((pixels.shape[2], *pixels.shape[:2]), dtype=np.float32)
    for channel, (middle, spread) in enumerate(zip(mean, std, strict=True)):
        np.multiply(pixels[:, :, channel], np.float32(1 / (255 * spread)), out=planes[channel])
        planes[channel] -= np.float32(middle / spread)
    return planes


@cache
def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
