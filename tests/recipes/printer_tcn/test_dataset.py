"""The windows: equal in every mode, apart in the split, and clear about files that cannot be used."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

from hotlap_recipes.printer_tcn import ERRORS, INPUTS, STATES, STRIDE, WINDOW
from hotlap_recipes.printer_tcn.dataset import (
    BadInputError,
    PrintWindows,
    fit_scalers,
    load_prints,
    split_prints,
)
from hotlap_recipes.printer_tcn.physics import Belt


@pytest.fixture(scope="module")
def prints(prints_folder):
    return load_prints([str(prints_folder / "data_simulation_*")])


@pytest.fixture
def copied(prints_folder, tmp_path):
    """A folder of its own with one print, for a test to spoil: its content and a way to write it back."""
    folder = tmp_path / "data_simulation_cube"
    folder.mkdir()
    path = folder / "layer_001.mat"
    shutil.copy(prints_folder / "data_simulation_cube" / "layer_001.mat", path)
    content = loadmat(path, simplify_cells=True)
    return {name: content[name] for name in ("simulation_data", "belt")}, path


def refused(pattern):
    with pytest.raises(BadInputError) as refusal:
        load_prints([str(pattern)])
    assert "\n  -> " in str(refusal.value), "a remedy is named"
    return str(refusal.value)


def test_a_print_is_what_the_file_holds(prints, prints_folder):
    path = prints_folder / "data_simulation_vase" / "layer_002.mat"
    content = loadmat(path, simplify_cells=True)["simulation_data"]
    (found,) = (print_ for print_ in prints if print_.path == path.resolve())
    for table, columns in ((found.inputs, INPUTS), (found.states, STATES), (found.errors, ERRORS)):
        assert (table == np.stack([content[column] for column in columns], axis=1)).all()
    assert found.belt == Belt()


@pytest.mark.parametrize("mode", [{"pre_normalize": True}, {"cache_data": True}])
def test_every_mode_yields_the_same_items_to_the_last_bit(prints, mode):
    scalers = fit_scalers(prints)
    naive, quick = PrintWindows(prints, scalers), PrintWindows(prints, scalers, **mode)
    assert len(naive) == len(quick) == 4 * 81
    for i in range(len(naive)):
        for one, other in zip(naive[i], quick[i], strict=True):
            assert one.dtype == other.dtype == torch.float32
            assert torch.equal(one, other)


def test_an_item_is_the_normalised_window(prints):
    windows = PrintWindows(prints, fit_scalers(prints))
    inputs, states, errors = windows[81 + 7]
    rows = slice(7 * STRIDE, 7 * STRIDE + WINDOW)
    recorded = [np.concatenate([getattr(p, name) for p in prints]) for name in ("inputs", "states", "errors")]
    raw = (prints[1].inputs, prints[1].states, prints[1].errors)
    for item, table, whole in zip((inputs, states, errors), raw, recorded, strict=True):
        expected = (table[rows] - whole.mean(0)) / whole.std(0)
        assert item.shape == expected.shape
        assert np.allclose(item, expected, atol=1e-5)


def test_windows_reach_the_last_step_that_the_stride_allows(prints):
    windows = PrintWindows(prints[:1], fit_scalers(prints))
    assert [start for _, start in windows.index] == list(range(0, 401, 5))


def test_no_recorded_step_is_on_both_sides_of_the_split(prints):
    """The interface temperature carries noise, so that its values tell one recorded step from every other."""
    train, validation = split_prints(prints, seed=0)
    scalers = fit_scalers(prints)
    column = INPUTS.index("T_interface")
    seen, held_out = (
        {value for i in range(len(windows)) for value in windows[i][0][:, column].tolist()}
        for windows in (PrintWindows(side, scalers, cache_data=True) for side in (train, validation))
    )
    assert len(seen) > 1000 and len(held_out) > 300
    assert len(seen & held_out) <= 3, "at float32 two steps may agree by chance, not windows of them"


def test_the_split_covers_all_prints_and_follows_the_seed(prints):
    splits = [split_prints(prints, seed) for seed in range(8)]
    for train, validation in splits:
        assert len(validation) == 1
        assert {p.path for p in (*train, *validation)} == {p.path for p in prints}
    assert len({validation[0].path for _, validation in splits}) > 1
    again = split_prints(prints, 5)
    assert [p.path for p in again[0]] == [p.path for p in splits[5][0]]


def test_a_folder_that_matches_two_patterns_is_read_once(prints, prints_folder, monkeypatch):
    monkeypatch.chdir(prints_folder)
    found = load_prints(["data_simulation_*", "data_simulation_cube", str(prints_folder / "data_*")])
    assert [p.path for p in found] == [p.path for p in prints]


def test_one_print_cannot_be_split(prints):
    with pytest.raises(BadInputError, match=r"layer_001\.mat is the only print"):
        split_prints(prints[:1], seed=0)


def test_no_folder_matches(tmp_path):
    message = refused(tmp_path / "data_simulation_*")
    assert "no folder matches --data_dir" in message
    assert "data_simulation_*" in message and "make_data" in message


def test_a_folder_without_mat_files(tmp_path):
    assert "no .mat file in 1 folders that match" in refused(tmp_path)


def test_a_file_that_is_no_mat_file(copied):
    _, path = copied
    path.write_text("not a mat file, but long enough to be looked at " * 10)
    assert f"{path} cannot be read" in refused(path.parent)


def test_a_mat_file_without_the_struct(copied):
    content, path = copied
    savemat(path, {"results": content["simulation_data"]})
    assert f"{path} has no 'simulation_data', it holds: results." in refused(path.parent)


def test_a_mat_file_with_a_number_in_place_of_the_struct(copied):
    content, path = copied
    savemat(path, content | {"simulation_data": 3.0})
    assert f"'simulation_data' in {path} is no struct" in refused(path.parent)


def test_a_mat_file_without_a_signal(copied):
    content, path = copied
    del content["simulation_data"]["porosity"]
    savemat(path, content)
    assert f"{path} has no 'porosity', it holds: x_ref" in refused(path.parent)


def test_too_few_steps(copied):
    content, path = copied
    savemat(path, content | {"simulation_data": {k: v[:150] for k, v in content["simulation_data"].items()}})
    assert f"{path} has 150 steps, and a window needs 200." in refused(path.parent)


def test_a_signal_of_another_length(copied):
    content, path = copied
    content["simulation_data"]["error_y"] = content["simulation_data"]["error_y"][:500]
    savemat(path, content)
    assert "600 steps of x_ref, but error_y has the shape (500,)" in refused(path.parent)


def test_prints_of_two_machines(copied, prints_folder):
    content, path = copied
    savemat(path, content | {"belt": asdict(replace(Belt(), mass=9e-4))})
    with pytest.raises(BadInputError, match=r"mass=0\.0009,.*mass=0\.0005,") as refusal:
        load_prints([str(path.parent), str(prints_folder / "data_simulation_vase")])
    assert str(path) in str(refusal.value) and "the prints of one machine" in str(refusal.value)
