"""The training script: it learns, every data path trains the same model, and it says clearly why it stops."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat
from torch.utils.data import default_collate

from hotlap_recipes.printer_tcn import ERRORS, STATES, make_data, train
from hotlap_recipes.printer_tcn.dataset import PrintWindows, fit_scalers, load_prints, split_prints
from hotlap_recipes.printer_tcn.model import PrinterTCN

TRAIN = ("-m", "hotlap_recipes.printer_tcn.train", "--size", "tiny")


@pytest.fixture
def run_train(prints_folder, tmp_path, capsys):
    """Trains in this process for one epoch: the exit code, stdout, stderr and the path of the checkpoint."""

    def run(*options, data_dir=prints_folder / "data_simulation_*"):
        checkpoint = tmp_path / "best.pt"
        checkpoint.unlink(missing_ok=True)
        always = ["--data_dir", data_dir, "--out", checkpoint, "--size", "tiny", "--epochs", 1]
        code = train.main([str(option) for option in (*always, "--batch_size", 64, *options)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err, checkpoint

    return run


@pytest.fixture
def spoiled(prints_folder, tmp_path):
    """Prints of which every one has a NaN in its nozzle temperature."""
    folder = tmp_path / "data_simulation_spoiled"
    shutil.copytree(prints_folder / "data_simulation_cube", folder)
    for path in folder.glob("*.mat"):
        content = loadmat(path, simplify_cells=True)
        content["simulation_data"]["T_nozzle"][300] = np.nan
        savemat(path, {name: content[name] for name in ("simulation_data", "belt")})
    return folder


def test_it_learns_better_than_persistence_and_than_the_mean(run_script, tmp_path):
    """On the same validation windows, for every output, as mean square in standard deviations of training.

    The mean baseline says the training mean throughout. The persistence baseline is told the true value at
    the first step of each window, which the network never sees, and holds it.
    """
    make_data.write_prints(tmp_path, ["cube", "vase"], layers=4, steps=3000, seed=0)
    options = ("--epochs", 2, "--batch_size", 64, "--lr", 3e-3, "--cache_data", "--out", "best.pt")
    run = run_script(*TRAIN, "--data_dir", "data_simulation_*", *options, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")

    train_prints, validation_prints = split_prints(load_prints([str(tmp_path / "data_simulation_*")]), seed=0)
    windows = PrintWindows(validation_prints, fit_scalers(train_prints))
    inputs, states, errors = default_collate([windows[i] for i in range(len(windows))])
    truth = torch.cat((states, errors), dim=-1)
    checkpoint = torch.load(tmp_path / "best.pt")
    model = PrinterTCN(checkpoint["size"])
    model.load_state_dict(checkpoint["model"])
    with torch.no_grad():
        inferred = torch.cat(model(inputs), dim=-1)

    def error_of(prediction):
        return (prediction - truth).square().mean(dim=(0, 1))

    learned, mean, persistence = (
        error_of(prediction) for prediction in (inferred, torch.zeros_like(truth), truth[:, :1])
    )
    for name, *scores in zip((*STATES, *ERRORS), learned, mean, persistence, strict=True):
        assert scores[0] < 0.7 * min(scores[1:]), name
    assert learned.mean() < 0.4 * min(mean.mean(), persistence.mean())
    assert learned.mean().item() == pytest.approx(checkpoint["validation"], rel=1e-3)


def test_the_log_counts_what_was_trained(run_train):
    code, out, _, _ = run_train("--epochs", 2, "--cache_data")
    assert code == 0
    opening, *epochs = out.splitlines()
    assert opening.startswith("3 prints to train on, 1 to validate, 4 steps an epoch")
    assert len(epochs) == 2
    for number, line in enumerate(epochs, start=1):
        found = re.fullmatch(
            rf"epoch {number}/2  loss ([\d.]+)  validation ([\d.]+)  "
            r"trained 243 samples in [\d.]+ s, (\d+) samples/s",
            line,
        )
        assert found, line
        assert int(found[3]) > 0


def test_every_data_path_trains_the_same_model(run_train):
    paths = ((), ("--pre_normalize",), ("--cache_data",), ("--num_workers", 2, "--prefetch_factor", 1))
    models = []
    for options in paths:
        code, _, err, checkpoint = run_train(*options)
        assert (code, err) == (0, "")
        models.append(torch.load(checkpoint)["model"])
    for other in models[1:]:
        for name, values in models[0].items():
            assert torch.equal(values, other[name]), name


def test_the_seed_decides_the_model(run_train):
    first, again, other = (
        torch.load(run_train("--cache_data", "--seed", seed)[3])["model"]["head.weight"] for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_checkpoint_is_of_the_best_epoch(run_train, monkeypatch):
    def trained_with(*validations):
        scores = iter(validations)
        monkeypatch.setattr(train, "validate", lambda *_: next(scores))
        return torch.load(run_train("--cache_data", "--epochs", len(validations))[3])

    best_in_the_middle, best_at_the_end = trained_with(0.5, 0.2, 0.9), trained_with(0.5, 0.2)
    assert (best_in_the_middle["epoch"], best_in_the_middle["validation"]) == (2, 0.2)
    for name, values in best_at_the_end["model"].items():
        assert torch.equal(values, best_in_the_middle["model"][name]), name


def test_the_checkpoint_holds_the_scales_of_the_training_prints(run_train, prints_folder):
    saved = torch.load(run_train("--cache_data")[3])
    train_prints, _ = split_prints(load_prints([str(prints_folder / "data_simulation_*")]), seed=0)
    recorded = np.concatenate([print_.errors for print_ in train_prints])
    assert np.allclose(saved["scales"]["errors"]["mean"], recorded.mean(0))
    assert np.allclose(saved["scales"]["errors"]["std"], recorded.std(0))


def test_mixed_precision_computes_something_else_but_near(run_train):
    plain, mixed = (
        torch.load(run_train("--cache_data", *flag)[3])["validation"] for flag in ((), ("--use_amp",))
    )
    assert mixed != plain
    assert mixed == pytest.approx(plain, rel=0.05)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_compiling_trains_the_same_model_up_to_rounding(run_train, run_script, prints_folder, tmp_path):
    """In a process of its own: the first use of the compiler warns of parts of PyTorch itself."""
    options = ("--epochs", 1, "--batch_size", 81, "--cache_data")
    plain = torch.load(run_train(*options)[3])
    run = run_script(
        *TRAIN, *options, "--use_torch_compile", "--out", "compiled.pt",
        "--data_dir", prints_folder / "data_simulation_*", cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    compiled = torch.load(tmp_path / "compiled.pt")
    assert compiled["model"].keys() == plain["model"].keys()
    assert compiled["validation"] == pytest.approx(plain["validation"], rel=1e-3)


def test_a_nan_in_the_data_stops_training_and_names_step_and_signal(run_train, spoiled):
    code, out, err, checkpoint = run_train(data_dir=spoiled)
    assert code == 1
    what, remedy = err.splitlines()
    assert what == "the loss is nan at epoch 1, step 1: the batch is not finite in T_nozzle."
    assert remedy == "  -> mend the .mat files."
    assert "trained" not in out
    assert not checkpoint.exists()


def test_a_loss_that_overflows_stops_training_and_names_the_step(run_train):
    code, _, err, checkpoint = run_train("--lr", "1e30", "--cache_data")
    assert code == 1
    assert re.fullmatch(r"the loss is (inf|nan) at epoch 1, step 2\.\n  -> lower --lr, now 1e\+30\.\n", err)
    assert not checkpoint.exists()


def test_a_loss_that_overflows_in_the_last_step_is_seen_in_validation(run_train):
    code, _, err, checkpoint = run_train("--lr", "1e30", "--cache_data", "--batch_size", 512)
    assert code == 1
    assert "at epoch 1, validation step 1." in err
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prefetch_factor", 4), "--prefetch_factor 4 needs workers, and --num_workers is 0."),
        (("--batch_size", 0), "--batch_size is 0."),
        (("--epochs", 0), "--epochs is 0."),
        (("--num_workers", -1), "--num_workers is -1."),
    ],
)
def test_options_that_cannot_be_met(run_train, options, message):
    code, out, err, _ = run_train(*options)
    assert (code, out) == (2, "")
    assert err.startswith(f"{message}\n  -> ")


def test_a_folder_in_place_of_the_checkpoint(run_train, tmp_path):
    code, _, err, _ = run_train("--out", tmp_path)
    assert code == 2
    assert err.startswith(f"--out {tmp_path} is a folder.\n  -> ")


def test_bad_input_reaches_the_shell_as_a_message_and_exit_code_2(run_script, tmp_path):
    run = run_script(*TRAIN, "--data_dir", "data_simulation_*", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("no folder matches --data_dir 'data_simulation_*'")
    assert "Traceback" not in run.stderr


def test_the_recipe_does_not_use_hotlap_and_making_data_does_not_wait_for_torch(run_script):
    listing = (
        "import sys, hotlap_recipes.printer_tcn.{}; print(*{{name.split('.')[0] for name in sys.modules}})"
    )
    training, making = (
        run_script("-c", listing.format(name)).stdout.split() for name in ("train", "make_data")
    )
    assert "torch" in training and "hotlap" not in training
    assert "scipy" in making and "torch" not in making
