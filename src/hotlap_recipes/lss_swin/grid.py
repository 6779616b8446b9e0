"""The grid on which the world around the car is drawn, seen from above, in the car's own frame."""

from __future__ import annotations

from dataclasses import dataclass

Axis = tuple[float, float, float]


@dataclass(frozen=True)
class BevGrid:
    """From, to and cell size along each axis in metres: x points ahead, y to the left, z up.

    The default is that of the published lift-splat-shoot: 200 x 200 cells of half a metre, and one cell in height.
    """

    x: Axis = (-50.0, 50.0, 0.5)
    y: Axis = (-50.0, 50.0, 0.5)
    z: Axis = (-10.0, 10.0, 20.0)

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many cells there are along x, y and z."""
        cells = [round((end - start) / step) for start, end, step in (self.x, self.y, self.z)]
        return cells[0], cells[1], cells[2]
