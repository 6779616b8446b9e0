"""Pictures to arrays: JPEG by simplejpeg, at a fraction of its size where a resize follows; the rest by Pillow.

A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size for a fraction of the work. The smallest of them that is not
smaller than what is asked for is taken, and resized from there.
"""

from __future__ import annotations

import importlib.util
import io
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hotlap.data.samples import SampleError

Array = np.ndarray[Any, Any]
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
