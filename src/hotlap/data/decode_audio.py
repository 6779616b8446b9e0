"""Sound to float32: plain WAV straight from the mapped bytes, FLAC by dr_flac if miniaudio is there, else by soundfile.

Both decoders release the GIL. dr_flac is quicker than the libFLAC that soundfile brings, for the same samples.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotlap.data.samples import SampleError

Array = np.ndarray[Any, Any]
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FLAC_HEAD = 26  # bytes up to the number of frames
_EXACT_BITS = 24  # that a float32 holds
_SCALES = {"<i2": np.float32(2.0**-15), "<i4": np.float32(2.0**-31)}


@dataclass(frozen=True)
class Plain:
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


def plain_wav(content: memoryview) -> Plain | None:
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


def _view(body: memoryview, size: int, described: tuple[str, int, int]) -> Plain:
    dtype, channels, rate = described
    if size > len(body):
        missing = size - len(body)
        raise SampleError(
            f"the WAV file is cut off: {missing} of {size} bytes are missing.", "copy the file again"
        )
    frames = size // (np.dtype(dtype).itemsize * channels)
    samples = np.frombuffer(body, dtype=dtype, count=frames * channels)
    return Plain(rate, samples if channels == 1 else samples.reshape(frames, channels))


def write_float(samples: Array, target: Array) -> None:
    """Float32 in -1..1, straight to its place: no array in between."""
    np.multiply(samples, _scale(samples), out=target, dtype=np.float32)


def _scale(samples: Array) -> np.float32:
    return _SCALES.get(samples.dtype.str, np.float32(1.0))


def _by_dr_flac(content: memoryview) -> Plain | None:
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
    return Plain(rate, samples if channels == 1 else samples.reshape(frames, channels))


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
