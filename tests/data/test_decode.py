"""Decoders: the quick way and the plain way give the same, and damage is told."""

from __future__ import annotations

import io
import struct
import sys

import numpy as np
import pytest
import simplejpeg
import soundfile
from PIL import Image

from hotlap.data import decode
from hotlap.data.decode import (
    Audio,
    Picture,
    cut,
    decode_fields,
    default_decoders,
    duration_of,
    needs_threads,
    plain_wav,
)
from hotlap.errors import HotlapError

RANDOM = np.random.default_rng(0)


def sound(frames: int, channels: int, subtype: str, form: str = "WAV") -> bytes:
    target = io.BytesIO()
    values = RANDOM.uniform(-1, 1, (frames, channels))
    soundfile.write(target, values, 16000, subtype=subtype, format=form)
    return target.getvalue()


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    ("form", "subtype", "is_plain"),
    [
        ("WAV", "PCM_16", True),
        ("WAV", "PCM_32", True),
        ("WAV", "FLOAT", True),
        ("WAVEX", "PCM_16", True),
        ("WAV", "PCM_24", False),
        ("WAV", "PCM_U8", False),
        ("WAV", "ULAW", False),
        ("FLAC", "PCM_16", False),
        ("FLAC", "PCM_24", False),
        ("FLAC", "PCM_S8", False),
        ("OGG", "VORBIS", False),
    ],
)
def test_sounds_are_what_soundfile_says_bit_for_bit(form, subtype, is_plain, channels):
    content = sound(1001, channels, subtype, form)
    wanted, _ = soundfile.read(io.BytesIO(content), dtype="float32")
    got = Audio()(memoryview(content))
    assert (plain_wav(memoryview(content)) is not None) == is_plain
    assert got.dtype == np.float32 and got.shape == wanted.shape and np.array_equal(got, wanted)
    assert got.flags.writeable and duration_of(memoryview(content)) == pytest.approx(1001 / 16000)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_S8"])
def test_flac_is_decoded_quickly_and_by_soundfile_where_that_is_not_possible(monkeypatch, subtype):
    content = memoryview(sound(5000, 2, subtype, "FLAC"))
    quick = decode._by_dr_flac(content)
    assert quick is not None and quick.rate == 16000 and quick.samples.shape == (5000, 2)
    both = Audio()(content)
    unknown = bytearray(content)  # as streams are written: the length is 0
    unknown[21] &= 0xF0
    unknown[22:26] = bytes(4)
    assert decode._by_dr_flac(memoryview(unknown)) is None
    monkeypatch.setitem(sys.modules, "miniaudio", None)
    assert decode._by_dr_flac(content) is None and np.array_equal(Audio()(content), both)


@pytest.mark.parametrize("damage", ["torn", "flipped", "head"])
def test_damaged_flac_is_told_and_not_passed_on(damage):
    content = bytearray(sound(40_000, 1, "PCM_16", "FLAC"))
    if damage == "torn":
        del content[len(content) // 2 :]
    elif damage == "flipped":
        content[len(content) // 2] ^= 0x40
    else:
        content[4:30] = bytes(26)
    assert decode._by_dr_flac(memoryview(content)) is None
    with pytest.raises(HotlapError, match=r"the file is damaged|copy the file again"):
        Audio()(memoryview(content))


def test_chunks_before_the_samples_are_passed_over():
    content = sound(50, 1, "PCM_16")
    extra = b"LIST" + (5).to_bytes(4, "little") + b"notes\0"  # of odd length, so padded
    content = content[:12] + extra + content[12:]
    assert len(Audio()(memoryview(content))) == 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (sound(500, 1, "PCM_16")[:-10], "10 of 1000 bytes are missing"),
        (sound(500, 1, "PCM_16")[:30], "ends before its samples"),
        (b"no sound at all", "cannot be decoded"),
        (b"", "cannot be decoded"),
    ],
)
def test_a_damaged_sound_is_refused(content, message):
    with pytest.raises(HotlapError, match=message):
        Audio()(memoryview(content))


def test_another_rate_is_refused():
    with pytest.raises(HotlapError, match="16000 samples a second, not 8000"):
        Audio(sample_rate=8000)(memoryview(sound(5, 1, "PCM_16")))


def test_a_part_of_a_sound_keeps_its_kind():
    content = sound(1600, 1, "PCM_16", "FLAC")
    part = cut(memoryview(content), 0.01, 0.02)
    assert part[:4] == b"fLaC"
    assert np.array_equal(Audio()(memoryview(part)), Audio()(memoryview(content))[160:480])


def test_plain_wav_needs_no_soundfile_and_the_rest_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 40, b"WAVE", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16, b"data", 4
    )
    content = head + struct.pack("<hh", 2**14, -(2**14))
    assert Audio()(memoryview(content)).tolist() == [0.5, -0.5]
    with pytest.raises(HotlapError, match=r"soundfile is not installed.\n.*hotlap\[data\]"):
        Audio()(memoryview(b"fLaC"))


def photo(height: int = 450, width: int = 800) -> bytes:
    """Smooth, as photographs are: so that ways of scaling can be compared."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / 60 + shift) * np.cos(y / 45) for shift in range(3)]
    return simplejpeg.encode_jpeg(np.stack(planes, -1).astype(np.uint8), quality=95, colorsubsampling="444")


def test_pictures_are_what_pillow_says():
    content = photo()
    wanted = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    assert np.abs(Picture()(memoryview(content)).astype(int) - wanted).max() <= 2


@pytest.mark.parametrize("has_simplejpeg", [True, False])
def test_a_smaller_picture_is_decoded_smaller_and_looks_the_same(has_simplejpeg, monkeypatch):
    decode._has.cache_clear()
    monkeypatch.setattr(decode, "_has", lambda _: has_simplejpeg)
    content = photo()
    decoded = decode._pixels(memoryview(content), (100, 180))
    assert decoded.shape == (113, 200, 3), "a quarter of the size, and not smaller than what is wanted"
    small = Picture(size=(100, 180))(memoryview(content))
    wanted = Image.open(io.BytesIO(content)).convert("RGB").resize((180, 100), Image.Resampling.BILINEAR)
    assert small.shape == (100, 180, 3) and small.dtype == np.uint8
    assert np.abs(small.astype(int) - np.asarray(wanted).astype(int)).mean() < 1.5
    larger = Picture(size=(500, 900))(memoryview(content))
    assert larger.shape == (500, 900, 3)


def test_normalising_is_fused_and_transposed():
    content, mean, std = photo(40, 60), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    plain = Picture()(memoryview(content))
    planes = Picture(mean=mean, std=std)(memoryview(content))
    assert planes.shape == (3, 40, 60) and planes.dtype == np.float32
    assert np.allclose(planes, ((plain / 255 - mean) / std).transpose(2, 0, 1), atol=1e-5)


def test_other_pictures_are_left_to_pillow_and_damage_is_told():
    target = io.BytesIO()
    Image.new("L", (5, 4), 7).save(target, "PNG")
    assert Picture()(memoryview(target.getvalue())).tolist() == np.full((4, 5, 3), 7).tolist()
    for content in (b"\xff\xd8 nothing more", b"no picture"):
        with pytest.raises(HotlapError, match="cannot be decoded"):
            Picture()(memoryview(content))


def test_fields_get_the_names_of_what_they_hold():
    fields = {"wav": sound(5, 1, "PCM_16"), "left.jpg": photo(8, 8), "txt": b"hi", "zip": b"PK", "y": 3}
    got = decode_fields(fields, default_decoders())
    assert set(got) == {"audio", "left", "txt", "zip", "y"} and got["txt"] == "hi" and got["zip"] == b"PK"
    assert decode_fields(fields, {}) == fields
    assert needs_threads(fields, default_decoders()) and not needs_threads({"wav": b""}, default_decoders())
    assert not needs_threads(fields, {})
