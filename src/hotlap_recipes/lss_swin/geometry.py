"""Rotations, frames and lenses.

A pixel's coordinates are those of its centre. A camera looks along its z, with x to the right and y down; the car has x
ahead, y to the left and z up. Quaternions are w, x, y, z, as nuScenes stores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

CAMERA_AXES: Matrix = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
"""Turns the axes of a camera that looks ahead into those of the car."""


def rotation_of(quaternion: Sequence[float]) -> Matrix:
    w, x, y, z = np.asarray(quaternion, np.float64) / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def quaternion_of(rotation: Matrix) -> list[float]:
    """From the eigenvector of Bar-Itzhack's matrix, which is exact for every rotation."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = rotation
    symmetric = np.array(
        [
            [xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, xx - yy - zz, xy + yx, xz + zx],
            [xz - zx, xy + yx, yy - xx - zz, yz + zy],
            [yx - xy, xz + zx, yz + zy, zz - xx - yy],
        ]
    )
    largest = np.linalg.eigh(symmetric)[1][:, -1]
    return [float(each) for each in (largest if largest[0] >= 0 else -largest)]


def about(axis: int, angle: float) -> Matrix:
    """A rotation about x (0), y (1) or z (2), in radians."""
    matrix = np.eye(3)
    one, other = (axis + 1) % 3, (axis + 2) % 3
    matrix[one, one] = matrix[other, other] = np.cos(angle)
    matrix[other, one] = np.sin(angle)
    matrix[one, other] = -matrix[other, one]
    return matrix


def frame_of(translation: Sequence[float] | Matrix, rotation: Matrix) -> Matrix:
    """(4, 4): takes points of the turned and moved frame into the one in which it stands."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation
    matrix[:3, 3] = translation
    return matrix


def inverse(frame: Matrix) -> Matrix:
    return frame_of(-frame[:3, :3].T @ frame[:3, 3], frame[:3, :3].T)


@dataclass(frozen=True)
class Framing:
    """How an image becomes an input: shrunk to `resized` (height, width), then `size` is cut out from top and left.

    As in the published lift-splat-shoot the width is kept, most of the sky is cut off, and a little of the bonnet.
    """

    source: tuple[int, int]
    resized: tuple[int, int]
    top: int
    left: int
    size: tuple[int, int]

    @classmethod
    def of(cls, source: tuple[int, int], size: tuple[int, int], bottom: float = 0.11) -> Framing:
        """`bottom` is the share of the height that is cut off below, where that leaves enough."""
        scale = max(size[0] / source[0], size[1] / source[1])
        resized = round(source[0] * scale), round(source[1] * scale)
        top = max(0, int((1 - bottom) * resized[0]) - size[0])
        return cls(source, resized, top, (resized[1] - size[1]) // 2, size)

    def intrinsics(self, camera: Matrix) -> Matrix:
        """The camera's matrix for what is left of the image."""
        down, right = (new / old for new, old in zip(self.resized, self.source, strict=True))
        shift = np.array([right / 2 - 0.5 - self.left, down / 2 - 0.5 - self.top])
        changed = np.diag([right, down, 1.0]) @ camera
        changed[:2] += shift[:, None] * camera[2]
        return changed
