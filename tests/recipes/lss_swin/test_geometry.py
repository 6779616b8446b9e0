"""Rotations, frames, and where a point is after an image was shrunk and cut."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from hotlap_recipes.lss_swin.geometry import (
    CAMERA_AXES,
    Framing,
    about,
    frame_of,
    inverse,
    quaternion_of,
    rotation_of,
)
from hotlap_recipes.lss_swin.pictures import full_pixels, scaled_pixels

SOURCE = (900, 1600)


@pytest.fixture
def rotations():
    """Any, and those half turns at which naive formulas divide by zero."""
    rng = np.random.default_rng(0)
    some = [about(2, a) @ about(1, b) @ about(0, c) for a, b, c in rng.uniform(-np.pi, np.pi, (20, 3))]
    return [*some, np.eye(3), CAMERA_AXES, *(about(axis, np.pi) for axis in range(3))]


def test_a_quaternion_and_its_matrix_are_the_same_rotation(rotations):
    for rotation in rotations:
        quaternion = quaternion_of(rotation)
        np.testing.assert_allclose(rotation_of(quaternion), rotation, atol=1e-12)
        assert np.isclose(np.linalg.norm(quaternion), 1) and quaternion[0] >= 0


def test_a_quarter_turn_about_z_looks_to_the_left():
    turn = rotation_of([np.sqrt(0.5), 0, 0, np.sqrt(0.5)])
    np.testing.assert_allclose(turn @ [1, 0, 0], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(turn, about(2, np.pi / 2), atol=1e-12)


def test_a_camera_that_looks_ahead_sees_what_is_left_on_its_left():
    ahead_left_up = CAMERA_AXES.T @ [10, 2, 1]
    np.testing.assert_allclose(ahead_left_up, [-2, -1, 10])


def test_a_frame_and_its_inverse_undo_each_other(rotations):
    for rotation in rotations:
        frame = frame_of([1.5, -2, 30], rotation)
        np.testing.assert_allclose(inverse(frame) @ frame, np.eye(4), atol=1e-12)


def test_the_default_size_is_cut_as_in_the_published_model():
    framing = Framing.of(SOURCE, (128, 352))
    assert (framing.resized, framing.top, framing.left) == ((198, 352), 48, 0)


@pytest.mark.parametrize("size", [(128, 352), (256, 704), (198, 352), (64, 64), (900, 1600)])
def test_what_is_cut_out_lies_within_the_resized_image(size):
    framing = Framing.of(SOURCE, size)
    assert framing.top >= 0 and framing.top + size[0] <= framing.resized[0]
    assert framing.left >= 0 and framing.left + size[1] <= framing.resized[1]


@pytest.mark.parametrize("decode", [full_pixels, scaled_pixels])
@pytest.mark.parametrize("size", [(128, 352), (256, 640), (96, 96)])
def test_intrinsics_say_where_a_point_is_in_the_decoded_image(tmp_path, decode, size):
    camera = np.array([[1266.0, 0, 816.0], [0, 1260.0, 491.0], [0, 0, 1]])
    points = np.array([[0.2, 0.3, 10.0], [-0.5, 0.9, 10.0]])
    framing = Framing.of(SOURCE, size)
    shrunk = framing.intrinsics(camera)
    for point in points:
        pixel = camera @ point / point[2]
        file = tmp_path / "spot.jpg"
        cv2.imwrite(str(file), spot_at(*pixel[:2]), [cv2.IMWRITE_JPEG_QUALITY, 98])
        expected = (shrunk @ point / point[2])[:2]
        np.testing.assert_allclose(centre_of(decode(file, framing)), expected, atol=0.08)


def spot_at(x, y, radius=30):
    image = np.zeros((*SOURCE, 3), np.uint8)
    cv2.circle(image, (round(x * 16), round(y * 16)), radius * 16, (255, 255, 255), -1, cv2.LINE_AA, 4)
    return image


def centre_of(pixels):
    weight = np.where(pixels.mean(axis=2) > 20, pixels.mean(axis=2), 0)
    rows, columns = np.indices(weight.shape)
    return np.array([(columns * weight).sum(), (rows * weight).sum()]) / weight.sum()
