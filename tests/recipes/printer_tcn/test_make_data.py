"""The simulated prints: they obey the physics that they claim, and the files say how they were made."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.io import loadmat

from hotlap_recipes.printer_tcn import ERRORS, INPUTS, STATES, make_data
from hotlap_recipes.printer_tcn.physics import Belt, residual

BELT = Belt()


@pytest.fixture(scope="module")
def signals():
    return make_data.simulate(np.array([1.0, 2.0, 30.0]), 3000, np.random.default_rng(5), BELT)


def unexplained_share(signals, belt):
    error = np.stack([signals[name] for name in ERRORS], axis=-1)
    force = np.stack([signals["F_inertia_x"], signals["F_inertia_y"]], axis=-1)
    return np.sqrt(np.mean(residual(error, force, belt) ** 2) / np.mean(force**2))


def test_the_tracking_error_obeys_the_belt_equation(signals):
    assert unexplained_share(signals, BELT) < 0.03


@pytest.mark.parametrize("parameter", ["mass", "damping", "stiffness"])
@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_a_wrong_parameter_leaves_clearly_more_unexplained(signals, parameter, factor):
    wrong = replace(BELT, **{parameter: factor * getattr(BELT, parameter)})
    assert unexplained_share(signals, wrong) > 3 * unexplained_share(signals, BELT)


def test_a_constant_force_ends_in_the_spring_alone():
    error = make_data.belt_error(np.full((1, 2000), 2.56), BELT)
    assert error[0, -1] == pytest.approx(-2.56 / BELT.stiffness)
    assert abs(error).max() > 1.3 * abs(error[0, -1]), "a lightly damped belt overshoots"


def test_finer_sampling_brings_the_same_tracking_error():
    coarse_time, fine_time = np.arange(0, 0.5, BELT.dt), np.arange(0, 0.5, BELT.dt / 10)
    coarse = make_data.belt_error(np.sin(90 * coarse_time)[None], BELT)
    fine = make_data.belt_error(np.sin(90 * fine_time)[None], replace(BELT, dt=BELT.dt / 10))
    assert np.abs(coarse - fine[:, ::10]).max() < 0.01 * np.abs(fine).max()


def test_velocity_and_force_integrate_to_the_path(signals):
    for axis in "xy":
        path, velocity = signals[f"{axis}_ref"], signals[f"v{axis}_ref"]
        moved = cumulative_trapezoid(velocity, dx=BELT.dt, initial=0)
        assert np.abs(moved - (path - path[:, :1])).max() < 0.02 * path.std()
        pushed = cumulative_trapezoid(signals[f"F_inertia_{axis}"] / BELT.mass, dx=BELT.dt, initial=0)
        assert np.abs(pushed - (velocity - velocity[:, :1])).max() < 0.1 * velocity.std()


def test_every_signal_varies_and_stays_in_a_believable_range(signals):
    assert set(signals) == {*INPUTS, *STATES, *ERRORS}
    for name, values in signals.items():
        assert values.shape == (3, 3000)
        assert np.isfinite(values).all(), name
        assert values.std() > 0, name
    assert 0.02 < np.abs(signals["error_x"]).max() < 1
    assert signals["T_interface"].max() < signals["T_nozzle"].max()
    assert 0 <= signals["quality_score"].min() < signals["quality_score"].max() <= 1
    assert 0 <= signals["porosity"].min() < signals["porosity"].max() < 30


def test_the_hidden_states_follow_their_physical_causes(signals):
    def correlation(one, other):
        return np.corrcoef(signals[one].ravel(), signals[other].ravel())[0, 1]

    assert correlation("T_interface", "adhesion_strength") > 0.5
    assert correlation("T_interface", "internal_stress") < -0.5
    assert correlation("adhesion_strength", "porosity") < -0.5
    assert correlation("dimensional_accuracy", "quality_score") < -0.5


def test_files_hold_the_signals_and_the_belt(prints_folder):
    files = sorted(prints_folder.glob("data_simulation_*/*.mat"))
    assert [f"{file.parent.name}/{file.name}" for file in files] == [
        "data_simulation_cube/layer_001.mat",
        "data_simulation_cube/layer_002.mat",
        "data_simulation_vase/layer_001.mat",
        "data_simulation_vase/layer_002.mat",
    ]
    content = loadmat(files[1], simplify_cells=True)
    assert content["belt"] == asdict(BELT)
    assert set(content["simulation_data"]) == {*INPUTS, *STATES, *ERRORS}
    assert (content["simulation_data"]["layer_num"] == np.full(600, 2.0)).all()


def test_a_part_depends_on_the_seed_and_not_on_its_neighbours(prints_folder, tmp_path):
    def content(folder):
        return loadmat(folder / "data_simulation_vase" / "layer_001.mat", simplify_cells=True)

    make_data.write_prints(tmp_path / "alone", ["vase"], layers=2, steps=600, seed=3)
    make_data.write_prints(tmp_path / "other", ["vase"], layers=2, steps=600, seed=4)
    known, alone, other = (
        content(folder)["simulation_data"]["error_x"]
        for folder in (prints_folder, tmp_path / "alone", tmp_path / "other")
    )
    assert (alone == known).all()
    assert not np.allclose(other, known)


def test_the_script_says_what_it_wrote_and_does_not_mix_two_runs(run_script, tmp_path):
    command = ("-m", "hotlap_recipes.printer_tcn.make_data", "--parts", "cube", "--layers", 2, "--steps", 300)
    first = run_script(*command, "--out", tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert "wrote 2 prints of 300 steps" in first.stdout
    second = run_script(*command, "--out", tmp_path)
    assert second.returncode == 2
    assert f"{tmp_path / 'data_simulation_cube'} exists. Remove it" in second.stderr


@pytest.mark.parametrize("option", [("--steps", "199"), ("--layers", "0")])
def test_a_print_without_a_window_is_refused(option, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_:
        make_data.main(["--out", str(tmp_path), *option])
    assert exit_.value.code == 2
    assert " ".join(option) in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
