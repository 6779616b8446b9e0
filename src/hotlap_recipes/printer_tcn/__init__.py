"""A temporal convolutional network that infers what a 3D printer cannot measure.

From 12 recorded signals it infers 5 hidden quality states and the tracking error of the two belts, at every
step of a window. The physics loss holds the inferred error to the equation of motion of a belt. The recipe is
written as its users write it today: a plain script, with the slow data path that such scripts start with.

    python -m hotlap_recipes.printer_tcn.make_data --out .
    python -m hotlap_recipes.printer_tcn.train --data_dir "data_simulation_*" --size tiny --epochs 1

The signals below are fields of the struct `simulation_data` in each .mat file. Lengths are in mm, forces in
N, temperatures in degrees Celsius, stress and strength in MPa, porosity in percent, the cooling rate in 1/s.
"""

from __future__ import annotations

INPUTS = (
    "x_ref",
    "y_ref",
    "z_ref",
    "vx_ref",
    "vy_ref",
    "vz_ref",
    "T_nozzle",
    "T_interface",
    "F_inertia_x",
    "F_inertia_y",
    "cooling_rate",
    "layer_num",
)
FORCES = slice(INPUTS.index("F_inertia_x"), INPUTS.index("F_inertia_y") + 1)
STATES = ("adhesion_strength", "internal_stress", "porosity", "dimensional_accuracy", "quality_score")
ERRORS = ("error_x", "error_y")
WINDOW = 200
STRIDE = 5
