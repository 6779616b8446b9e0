"""JPEG files to pixels: decoded in full and then shrunk, or decoded at a fraction of their size."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.geometry import Framing

Pixels = NDArray[np.uint8]
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
_GAIN, _SHIFT = 1 / (255 * STD), -MEAN / STD


def full_pixels(path: Path, framing: Framing) -> Pixels:
    """(height, width, 3): all 900 x 1600 pixels are decoded, of which the network sees one in thirty."""
    height, width = framing.size
    try:
        with Image.open(path) as picture:
            small = picture.convert("RGB").resize(framing.resized[::-1], Image.Resampling.BILINEAR)
    except (OSError, SyntaxError) as error:
        raise _unreadable(path, error) from None
    box = (framing.left, framing.top, framing.left + width, framing.top + height)
    return np.array(small.crop(box))


def scaled_pixels(path: Path, framing: Framing) -> Pixels:
    """The same, decoded at the smallest fraction that is not too small, and shrunk from there."""
    import simplejpeg

    least_height, least_width = _fraction(framing.source, framing.resized)
    try:
        content = path.read_bytes()
        decoded = simplejpeg.decode_jpeg(content, "RGB", min_height=least_height, min_width=least_width)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    small = cv2.resize(decoded, framing.resized[::-1], interpolation=cv2.INTER_LINEAR)
    bottom, right = framing.top + framing.size[0], framing.left + framing.size[1]
    cut: Pixels = small[framing.top : bottom, framing.left : right]
    return cut


@cache
def _fraction(source: tuple[int, int], resized: tuple[int, int]) -> tuple[int, int]:
    """JPEG can be decoded at n/8 of its size. Where that is no whole number, the last row lies half outside the image,
    and all that follows would be a little off its place: such fractions are left out."""
    for eighths in range(1, 8):
        height, width = (side * eighths for side in source)
        if height % 8 == width % 8 == 0 and height >= 8 * resized[0] and width >= 8 * resized[1]:
            return height // 8, width // 8
    return source


def as_planes(pixels: Pixels, planes: Pixels) -> None:
    """Write (height, width, 3) into (3, height, width)."""
    cv2.split(pixels, list(planes))


def normalised(planes: torch.Tensor) -> torch.Tensor:
    """uint8 (..., 3, height, width) to float32, in as few passes over memory as it takes."""
    return planes.to(torch.float32).mul_(_GAIN).add_(_SHIFT)


def _unreadable(path: Path, error: Exception) -> BadInputError:
    reason = str(error).rstrip(".") or type(error).__name__
    return BadInputError(f"the image {path} cannot be decoded: {reason}.", "copy the file again.")
