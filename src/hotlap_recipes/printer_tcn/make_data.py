"""Simulate prints whose hidden states are known: `data_simulation_<part>/layer_<number>.mat` under --out.

A print is one layer of one part: a tool path of straight moves with rounded corners, the ringing of the belts
that follow it, the temperature where the new bead meets the layer below, and the quality that comes of it.
The belt's parameters are written beside the signals, so that what a network learned can be checked.

The default is 24 prints of 22 s: 33,459 training windows, 66 steps of a batch of 512, 32 MB on disk. To look
at the speed of training alone, `--layers 4` is enough: 45 steps in an epoch, and a validation that ends soon.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat
from scipy.ndimage import uniform_filter1d
from scipy.signal import cont2discrete, lfilter

from hotlap_recipes.printer_tcn import ERRORS, INPUTS, STATES, WINDOW
from hotlap_recipes.printer_tcn.physics import Belt

Array = NDArray[np.float64]

PARTS = ("benchy", "bearing", "nautilus", "bracket")
LAYER_HEIGHT_MM = 0.2
Z_HOP_MM = 0.4
SHORTEST_MOVE_S = 0.06
CORNER_ROUNDING_S = 0.02
KELVIN = 273.15


def simulate(layers: Array, steps: int, rng: np.random.Generator, belt: Belt) -> dict[str, Array]:
    """Every signal of prints of the given layer numbers, each as (prints, steps)."""
    x, y, z, cooling = tool_paths(layers, steps, rng, belt.dt)
    vx, vy, vz = (np.gradient(position, belt.dt, axis=-1) for position in (x, y, z))
    force_x, force_y = (belt.mass * np.gradient(velocity, belt.dt, axis=-1) for velocity in (vx, vy))
    error_x, error_y = belt_error(force_x, belt), belt_error(force_y, belt)
    speed = np.hypot(vx, vy)
    nozzle = nozzle_temperature(x.shape, rng, belt.dt)
    interface = interface_temperature(nozzle, speed, cooling, layers, belt.dt)
    measured = {
        "x_ref": x, "y_ref": y, "z_ref": z, "vx_ref": vx, "vy_ref": vy, "vz_ref": vz,
        "T_nozzle": nozzle + rng.normal(0, 0.3, x.shape),
        "T_interface": interface + rng.normal(0, 1.5, x.shape),
        "F_inertia_x": force_x, "F_inertia_y": force_y, "cooling_rate": cooling,
        "layer_num": np.broadcast_to(layers[:, None], x.shape),
    }  # fmt: skip
    deviation = np.hypot(error_x, error_y)
    hidden = quality(nozzle, interface, speed, deviation, layers, belt.dt)
    return measured | hidden | {"error_x": error_x, "error_y": error_y}


def tool_paths(layers: Array, steps: int, rng: np.random.Generator, dt: float) -> tuple[Array, ...]:
    """References x, y, z and the fan's cooling rate. Each straight move has its own speed and cooling."""
    time = np.arange(steps) * dt
    shape = (len(layers), int(steps * dt / SHORTEST_MOVE_S) + 2)
    half_width = rng.uniform(6, 15, (len(layers), 1))
    corner_x, corner_y = (rng.uniform(-half_width, half_width, shape) for _ in range(2))
    length = np.hypot(np.diff(corner_x, append=0.0), np.diff(corner_y, append=0.0))
    lasts = np.maximum(length / rng.uniform(40, 120, shape), SHORTEST_MOVE_S)
    starts = np.cumsum(lasts, axis=1) - lasts
    move = np.stack([np.searchsorted(row, time, side="right") - 1 for row in starts])
    hop = Z_HOP_MM * (rng.random(shape) < 0.1)
    z = LAYER_HEIGHT_MM * layers[:, None] + np.take_along_axis(hop, move, axis=1)
    cooling = np.take_along_axis(rng.uniform(2, 8, shape), move, axis=1)
    x = np.stack([np.interp(time, *print_) for print_ in zip(starts, corner_x, strict=True)])
    y = np.stack([np.interp(time, *print_) for print_ in zip(starts, corner_y, strict=True)])
    return tuple(rounded(signal, CORNER_ROUNDING_S / dt) for signal in (x, y, z, cooling))


def rounded(signal: Array, samples: float) -> Array:
    """Two box filters in a row bound acceleration and jerk, as the planner of a printer does."""
    once = uniform_filter1d(signal, round(samples), axis=-1, mode="nearest")
    twice: Array = uniform_filter1d(once, round(samples), axis=-1, mode="nearest")
    return twice


def belt_error(force: Array, belt: Belt) -> Array:
    """Solve m e'' + c e' + k e = -F from rest, exactly for a force that is linear between samples."""
    system = ([-1.0], [belt.mass, belt.damping, belt.stiffness])
    numerator, denominator, _ = cont2discrete(system, belt.dt, method="foh")
    error: Array = lfilter(np.ravel(numerator), denominator, force, axis=-1)
    return error


def nozzle_temperature(shape: tuple[int, ...], rng: np.random.Generator, dt: float) -> Array:
    """The heater's controller swings about its set point."""
    period, phase = rng.uniform(1, 3, (shape[0], 1)), rng.uniform(0, 2 * np.pi, (shape[0], 1))
    swing: Array = 210 + 3 * np.sin(2 * np.pi * np.arange(shape[1]) * dt / period + phase)
    return swing


def interface_temperature(nozzle: Array, speed: Array, cooling: Array, layers: Array, dt: float) -> Array:
    """T' = heating (T_nozzle - T) - cooling (T - T_around): slow moves heat more, and so does the bed."""
    around = 45 + 15 * np.exp(-layers / 5)
    heating = 600 / (60 + speed)
    gain, loss = heating * nozzle + cooling * around[:, None], heating + cooling
    temperature = np.empty_like(nozzle)
    temperature[:, 0] = gain[:, 0] / loss[:, 0]
    for step in range(1, nozzle.shape[1]):
        last = temperature[:, step - 1]
        temperature[:, step] = last + dt * (gain[:, step] - loss[:, step] * last)
    return temperature


def quality(
    nozzle: Array, interface: Array, speed: Array, deviation: Array, layers: Array, dt: float
) -> dict[str, Array]:
    """Chains heal across a hot interface (Arrhenius), a cold one freezes stress in, haste leaves pores."""
    rate = np.exp(60e3 / 8.314 * (1 / (140 + KELVIN) - 1 / (interface + KELVIN)))
    healed = lagged(rate / (1 + rate), 0.05, dt)
    stress = lagged(0.14 * (nozzle - interface) * (1 + 0.01 * layers[:, None]), 0.03, dt)
    porosity = 1 + 9 * (1 - healed) + 3 * (speed / 100) ** 2
    score = 0.4 * np.sqrt(healed) + 0.3 * np.exp(-deviation / 0.1) + 0.2 * (1 - porosity / 20)
    return {
        "adhesion_strength": 35 * np.sqrt(healed),
        "internal_stress": stress,
        "porosity": porosity,
        "dimensional_accuracy": deviation,
        "quality_score": score + 0.1 * (1 - stress / 40),
    }


def lagged(target: Array, lag: float, dt: float) -> Array:
    """Follow `target` with a first-order lag in seconds, starting in balance."""
    keep = float(np.exp(-dt / lag))
    followed: Array = lfilter([1 - keep], [1, -keep], target, axis=-1, zi=keep * target[:, :1])[0]
    return followed


def write_prints(out: Path, parts: Sequence[str], layers: int, steps: int, seed: int) -> list[Path]:
    """Simulate and save `layers` prints of each part. A part is the same whichever others are asked for."""
    belt = Belt()
    written = []
    for part in parts:
        rng = np.random.default_rng([seed, *part.encode()])
        signals = simulate(np.arange(1.0, layers + 1), steps, rng, belt)
        folder = out / f"data_simulation_{part}"
        folder.mkdir(parents=True)
        for number in range(layers):
            data = {name: signals[name][number] for name in (*INPUTS, *STATES, *ERRORS)}
            written.append(folder / f"layer_{number + 1:03d}.mat")
            savemat(written[-1], {"simulation_data": data, "belt": asdict(belt)})
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder that receives data_simulation_*")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), metavar="NAME", help="parts to print")
    parser.add_argument("--layers", type=int, default=6, help="prints per part (default 6)")
    parser.add_argument("--steps", type=int, default=9000, help="samples per print at 400 Hz (default 9000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.layers < 1 or options.steps < WINDOW:
        parser.error(
            f"--layers {options.layers} --steps {options.steps} holds no window. "
            f"Take at least 1 layer and {WINDOW} steps."
        )
    try:
        written = write_prints(options.out, options.parts, options.layers, options.steps, options.seed)
    except FileExistsError as error:
        parser.error(f"{error.filename} exists. Remove it, or choose another --out.")
    print(f"wrote {len(written)} prints of {options.steps} steps to {options.out / 'data_simulation_*'}")


if __name__ == "__main__":
    main()
