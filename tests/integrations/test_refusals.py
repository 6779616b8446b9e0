"""What trainers take, or refuse with a reason, or leave to the seams; the training itself goes on."""

import contextlib
import gc
import sys
import warnings
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from hotlap.integrations import Arguments, attributes, constructing, hf_trainer, mmengine, option
from hotlap.integrations.lightning import Lightning
from hotlap.plan.catalogue import some_knobs
from hotlap.ports.knob import CannotActError
from hotlap.probe import boundary
from hotlap.seams import step
from hotlap.seams.fitter import Fitter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lightning.pytorch as L
    from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler, ModelCheckpoint
    from lightning.pytorch.plugins.precision import Precision


@pytest.fixture
def fitted():
    made = []

    def fit(**settings):
        plan = {key.replace("_", "-"): value for key, value in settings.items()}
        fitter = Fitter(plan, some_knobs(plan))
        step.install(fitter)
        integration = Lightning()
        for name in ("trainer.trainer", "strategies.strategy", "loops.evaluation_loop"):
            integration.offer(sys.modules[f"lightning.pytorch.{name}"], fitter)
        made.append(fitter)
        return fitter

    yield fit
    for fitter in made:
        fitter.undo()


class Net(L.LightningModule):
    def __init__(self, manual=False):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 1)
        self.automatic_optimization = not manual
        self.changes = 0

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        if not self.automatic_optimization:
            before = self.net.weight.clone()
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.changes += not torch.equal(before, self.net.weight)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(module, val=None, **options):
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=2 if val else 1, **quiet, **options)
    trainer.fit(module, DataLoader(data, batch_size=4), val)
    return trainer


def only(fitter):
    (record,) = fitter.fitted
    return record


@pytest.mark.filterwarnings("ignore")
class TestLightning:
    @pytest.mark.parametrize("options", [{}, {"strategy": "ddp"}])
    def test_ranks_are_spawned_instead_of_running_the_script_again(self, fitted, options):
        fitter = fitted(ddp_spawn=True)
        trainer = L.Trainer(accelerator="cpu", devices=2, logger=False, **options)
        assert only(fitter).acts
        assert trainer.strategy._start_method in ("spawn", "fork") and trainer.strategy.launcher is not None

    @pytest.mark.parametrize(
        ("options", "reason"),
        [({"devices": 1}, "one rank trains"), ({"devices": 2, "strategy": "fsdp"}, "the strategy fsdp")],
    )
    def test_what_cannot_be_spawned_is_left_alone(self, fitted, options, reason):
        fitter = fitted(ddp_spawn=True)
        with contextlib.suppress(Exception):  # fsdp wants a GPU
            L.Trainer(accelerator="cpu", logger=False, **options)
        assert not only(fitter).acts and reason in only(fitter).reason

    def test_manual_optimization_is_left_to_the_step(self, fitted):
        fitter = fitted(accumulate=4)
        module = Net(manual=True)
        assert fit(module, enable_checkpointing=False).accumulate_grad_batches == 1
        assert module.changes == 2  # of eight batches
        assert (only(fitter).acts, only(fitter).place) == (True, "")

    def test_a_second_fit_is_not_changed_twice(self, fitted):
        fitted(accumulate=2)
        module = Net()
        trainer = fit(module, enable_checkpointing=False)
        trainer.fit_loop.max_epochs = 2
        trainer.fit(module, DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=4))
        assert trainer.accumulate_grad_batches == 2

    def test_rarer_logs_and_checkpoints_train_the_same_bits(self, fitted, tmp_path):
        def trained(folder):
            module = Net()
            fit(module, callbacks=[ModelCheckpoint(tmp_path / folder, save_top_k=-1)])
            return module.net.weight, torch.get_rng_state(), len(list((tmp_path / folder).iterdir()))

        weight, state, saved = trained("alone")
        fitter = fitted(log_every=3, checkpoint_every=2)
        planned, planned_state, planned_saved = trained("planned")
        assert torch.equal(planned, weight)
        assert torch.equal(planned_state, state)
        assert (saved, planned_saved) == (1, 4)  # after the epoch, after each second of eight steps
        assert [(each.acts, each.numerics) for each in fitter.fitted] == [(True, "bitwise")] * 2

    def test_a_schedule_of_accumulation_decides(self, fitted):
        fitter = fitted(accumulate=2)
        fit(Net(), enable_checkpointing=False, callbacks=[GradientAccumulationScheduler({0: 3})])
        assert "GradientAccumulationScheduler" in only(fitter).reason

    def test_checkpoints_that_follow_a_figure_come_with_validation(self, fitted, tmp_path):
        fitter = fitted(checkpoint_every=2)
        fit(Net(), callbacks=[ModelCheckpoint(tmp_path, monitor="val")])
        assert "validate-every" in only(fitter).reason

    def test_without_a_users_callback_there_is_nothing_to_thin(self, fitted):
        fitter = fitted(monitor_budget=0.1)
        fit(Net(), enable_checkpointing=False, callbacks=[Callback()])
        assert "no callback of the script's own" in only(fitter).reason

    def test_a_precision_plugin_of_the_script_stays(self, fitted):
        fitter = fitted(precision="bf16-mixed")
        fit(Net(), enable_checkpointing=False, plugins=[Precision()])
        assert "precision plugin" in only(fitter).reason

    def test_a_schedule_that_waits_for_validation_does_not_end_the_training(self, fitted):
        class Waiting(Net):
            def validation_step(self, batch, index):
                self.log("val", self.net(batch[0]).mean())

            def configure_optimizers(self):
                optimizer = super().configure_optimizers()
                plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
                return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val"}}

        fitter = fitted(validate_every=12)  # an epoch has 8 batches
        data = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
        trainer = fit(Waiting(), val=data, enable_checkpointing=False, num_sanity_val_steps=0)
        assert trainer.global_step == 16
        assert "val" in trainer.callback_metrics
        assert only(fitter).acts

    def test_a_trainer_that_is_done_with_is_let_go(self, fitted):
        fitted(accumulate=2, log_every=2, validate_every=4, limit_validation=0.5)
        module = Net()
        gone = [weakref.ref(fit(module, enable_checkpointing=False)), weakref.ref(module)]
        del module
        gc.collect()
        assert [each() for each in gone] == [None, None]

    def test_wrong_arguments_are_lightnings_to_refuse(self, fitted):
        fitted(log_every=2)
        with pytest.raises(TypeError, match="no_such_option"):
            L.Trainer(no_such_option=1)


class TestArguments:
    def test_options_are_set_by_name_and_put_back(self):
        class Built:
            def __init__(self, one, two=2, *, three=3):
                self.seen = (one, two, three)

        undos = []

        def offer(_, arguments):
            undos.append([option(arguments, "two", 20), option(arguments, "three", 30)])
            if undo_at_once:
                for undo in reversed(undos[-1]):
                    undo()

        Built.__init__ = constructing(offer)(Built.__init__)
        undo_at_once = False
        assert Built(1).seen == (1, 20, 30)
        assert Built(1, 5).seen == (1, 20, 30)
        undo_at_once = True
        assert Built(1, 5).seen == (1, 5, 3)
        for undo in undos[0]:
            undo()  # long after it was built: nothing is left to put back

    def test_an_offer_that_fails_leaves_the_constructor_alone(self):
        class Built:
            def __init__(self, one):
                self.seen = one

        Built.__init__ = constructing(lambda *_: 1 / 0)(Built.__init__)
        assert Built(one=1).seen == 1
        assert "ZeroDivisionError" in boundary.faults.pop()

    def test_attributes_are_put_back_and_keep_nothing_alive(self):
        owner = Net()
        undo = attributes(owner, changes=5)
        undo()
        assert owner.changes == 0
        gone = weakref.ref(owner)
        undo = attributes(owner, changes=5)
        del owner
        gc.collect()
        assert gone() is None
        undo()


class Given(SimpleNamespace):
    """Unlike its parent, it may be referred to weakly."""


def training_arguments(**values):
    defaults = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": False}
    return Given(**{**defaults, "eval_steps": None, "save_steps": 500, **values})


class TestHuggingFace:
    def test_a_script_that_never_evaluates_does_not_begin_to(self):
        with pytest.raises(CannotActError, match="does not evaluate"):
            hf_trainer._validate_every(training_arguments(eval_strategy="no"), 10)

    def test_a_script_that_never_saves_does_not_begin_to(self):
        with pytest.raises(CannotActError, match="no checkpoints"):
            hf_trainer._checkpoint_every(training_arguments(save_strategy="no"), 10)

    def test_the_best_model_is_saved_with_each_evaluation(self):
        given = training_arguments(load_best_model_at_end=True)
        with pytest.raises(CannotActError, match="validate-every"):
            hf_trainer._checkpoint_every(given, 10)
        undo = hf_trainer._validate_every(given, 10)
        assert (given.eval_strategy, given.eval_steps, given.save_strategy, given.save_steps) == (
            "steps",
            10,
        ) * 2
        undo()
        assert given == training_arguments(load_best_model_at_end=True)

    def test_several_evaluation_sets_are_cut_each_and_streams_are_not(self):
        given = Arguments({"eval_dataset": {"one": Subset(range(100), range(100)), "two": [1, 2, 3]}})
        undo = hf_trainer._limit_validation(given, 0.1)
        assert [len(each) for each in given["eval_dataset"].values()] == [10, 1]
        undo()
        assert len(given["eval_dataset"]["two"]) == 3
        with pytest.raises(CannotActError, match="stream"):
            hf_trainer._limit_validation(Arguments({"eval_dataset": iter(())}), 0.1)
        with pytest.raises(CannotActError, match="no evaluation set"):
            hf_trainer._limit_validation(Arguments({}), 0.1)


class TestMMEngine:
    def test_several_optimizers_are_refused(self):
        several = Arguments(
            {"optim_wrapper": {"generator": {"optimizer": {}}, "discriminator": {"optimizer": {}}}}
        )
        with pytest.raises(CannotActError, match="several optimizers"):
            mmengine.MMEngine()._accumulate(several, {}, 2)

    def test_precision_is_the_wrapper_of_the_optimizer(self):
        given = Arguments({"optim_wrapper": {"optimizer": {"type": "SGD"}, "type": "OptimWrapper"}})
        undo = mmengine._precision(given, "16-mixed")
        assert given["optim_wrapper"]["type"] == "AmpOptimWrapper"
        assert given["optim_wrapper"]["dtype"] == "float16"
        mmengine._precision(given, "32")
        assert given["optim_wrapper"] == {"optimizer": {"type": "SGD"}, "type": "OptimWrapper"}
        undo()
        assert given["optim_wrapper"]["type"] == "OptimWrapper"
        with pytest.raises(CannotActError, match="MyWrapper"):
            mmengine._precision(Arguments({"optim_wrapper": {"type": "MyWrapper"}}), "bf16-mixed")

    def test_a_runner_that_scales_by_itself_is_left_to(self):
        with pytest.raises(CannotActError, match="auto_scale_lr"):
            mmengine._scales_by_itself("linear")

    def test_hooks_that_are_not_there(self):
        with pytest.raises(CannotActError, match="no LoggerHook"):
            mmengine._log_every(SimpleNamespace(_hooks=[]), 5)
