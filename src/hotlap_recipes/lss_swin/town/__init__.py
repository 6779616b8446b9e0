"""Towns that do not exist: streets, traffic, a car with cameras that drives through, and the nuScenes tables of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Points = NDArray[np.float64]
"""(n, 2) in metres, x to the east and y to the north."""
Row = dict[str, Any]
