"""What is whole passes, what is cut off anywhere or is something else is found."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile
from PIL import Image

from hotlap.data.pack.source import check_intact
from hotlap.errors import HotlapError

RANDOM = np.random.default_rng(0)


def picture(kind: str) -> bytes:
    target = io.BytesIO()
    Image.fromarray(RANDOM.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(target, kind)
    return target.getvalue()


def sound(kind: str) -> bytes:
    target = io.BytesIO()
    soundfile.write(target, RANDOM.uniform(-1, 1, 800), 16000, format=kind, subtype="PCM_16")
    return target.getvalue()


WHOLE = {
    "jpg": picture("JPEG"),
    "jpeg": picture("JPEG") + b"a note that the camera left here",
    "png": picture("PNG"),
    "wav": sound("WAV"),
    "flac": sound("FLAC"),
    "ogg": b"what hotlap does not look into",
}


@pytest.mark.parametrize("suffix", WHOLE)
def test_a_whole_file_passes(suffix):
    check_intact(suffix, WHOLE[suffix])


@pytest.mark.parametrize("suffix", ["jpg", "png", "wav"])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.999])
def test_a_file_that_is_cut_off_is_found(suffix, share):
    content = WHOLE[suffix]
    with pytest.raises(HotlapError, match="the file is damaged") as error:
        check_intact(suffix, content[: int(len(content) * share)])
    assert "leave it out" in error.value.remedy


@pytest.mark.parametrize("suffix", ["jpg", "png", "wav", "flac"])
def test_a_file_of_another_kind_and_an_empty_one_are_found(suffix):
    with pytest.raises(HotlapError, match=r"it is no (JPEG|PNG|WAV|FLAC) file"):
        check_intact(suffix, b"<html>404, not found; this page is a little longer than a head</html>" * 2)
    with pytest.raises(HotlapError, match="it is empty"):
        check_intact(suffix, b"")
