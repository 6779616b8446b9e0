"""The monitor as a callback of a real Trainer."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import hotlap.watch.posterior  # before Lightning, as a script may do  # noqa: F401
from hotlap.watch import PosteriorMonitor

lightning = pytest.importorskip("lightning")


class Module(lightning.LightningModule):
    """Returns its posterior, or keeps it, as `keeps` says."""

    def __init__(self, model, beta, keeps):
        super().__init__()
        self.model, self.beta, self.keeps = model, beta, keeps
        self.kept = None

    def training_step(self, batch, _):
        (x,) = batch
        mu, logvar, rebuilt, divergence = self.model.losses(x)
        loss = (rebuilt + self.beta * divergence).mean()
        if self.keeps == "attribute":
            self.kept = (mu, logvar)
        elif self.keeps == "result":
            return {
                "loss": loss,
                "mu": mu,
                "logvar": logvar,
                "decode": lambda z: self.model.rebuilt(z, x),
            }
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 3e-3)


@pytest.fixture
def fit(vae, factors, tmp_path):
    def run(monitor, beta=1.0, keeps="result", epochs=1, **words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = lightning.Trainer(
                max_epochs=epochs, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
                callbacks=[monitor], default_root_dir=tmp_path, **{"logger": False, **words},
            )  # fmt: skip
            module = Module(vae(), beta, keeps)
            trainer.fit(module, DataLoader(TensorDataset(factors), batch_size=64))
        return module

    return run


def monitored(**words):
    return PosteriorMonitor(**{"update_frequency": 4, "budget": "100%", **words})


def test_it_reads_what_the_training_step_returns_and_tells_the_loggers(fit, tmp_path):
    pytest.importorskip("tensorboard")
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor = monitored(plot_frequency=8)
    assert isinstance(monitor, lightning.pytorch.Callback)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger = TensorBoardLogger(tmp_path, name="board", version=0)
        fit(monitor, logger=logger)
        events = EventAccumulator(logger.log_dir).Reload()
    assert len(monitor.history) > 5 and monitor.latest.gap > 0
    assert monitor.latest.step <= 64 and str(monitor.verdict.state) == "healthy"
    assert "posterior/mutual_information" in events.Tags()["scalars"]
    assert events.Tags()["images"] == ["posterior"]
    files = {path.name for path in (tmp_path / "board" / "version_0").iterdir()}
    assert {"posterior.jsonl", "posterior.png"} <= files


def test_it_reads_an_attribute_and_finds_a_collapse(fit, tmp_path, capsys):
    monitor = monitored(update_frequency=1, source="kept", folder=tmp_path / "mine")
    fit(monitor, beta=40.0, keeps="attribute", epochs=4)
    assert str(monitor.verdict.state) == "collapsed" and monitor.latest.gap is None
    assert "posterior collapsed since step" in capsys.readouterr().err
    assert (tmp_path / "mine" / "posterior.png").is_file()
    assert not (tmp_path / "posterior.jsonl").exists()


def test_a_module_without_a_posterior_is_told_of_once_with_a_remedy(fit, capsys):
    monitor = monitored(update_frequency=1)
    fit(monitor, keeps="nothing")
    said = capsys.readouterr().err
    assert said.count("no posterior is watched") == 1 and 'source="..."' in said
    assert monitor.latest is None


def test_weights_and_random_numbers_are_those_without_it(fit):
    from lightning.pytorch import Callback

    plain = fit(Callback())
    rng = torch.get_rng_state()
    watched = fit(monitored(update_frequency=1))
    assert torch.get_rng_state().equal(rng)
    for key, value in watched.state_dict().items():
        assert value.equal(plain.state_dict()[key])
