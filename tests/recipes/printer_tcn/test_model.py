"""The network and its loss: causal, sized as named, true to the physics, and fit for compilation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hotlap_recipes.printer_tcn import INPUTS
from hotlap_recipes.printer_tcn.dataset import PrintWindows, fit_scalers, load_prints
from hotlap_recipes.printer_tcn.model import Block, CausalConv, PrinterLoss, PrinterTCN
from hotlap_recipes.printer_tcn.physics import Belt


@pytest.fixture(scope="module")
def prints(prints_folder):
    return load_prints([str(prints_folder / "data_simulation_*")])


@pytest.fixture(scope="module")
def batch(prints):
    windows = PrintWindows(prints, fit_scalers(prints), cache_data=True)
    inputs, states, errors = zip(*(windows[i] for i in range(0, len(windows), 20)), strict=True)
    return torch.stack(inputs), torch.stack(states), torch.stack(errors)


def test_the_outputs_are_states_and_errors_at_every_step(batch):
    states, errors = PrinterTCN("tiny")(batch[0])
    assert states.shape == batch[1].shape
    assert errors.shape == batch[2].shape


def test_no_output_depends_on_a_later_input():
    torch.manual_seed(0)
    model = PrinterTCN("tiny").double()
    inputs = torch.randn(2, 60, len(INPUTS), dtype=torch.float64)
    changed = inputs.clone()
    changed[:, 40:] += 1
    for before, after in zip(model(inputs), model(changed), strict=True):
        assert torch.equal(before[:, :40], after[:, :40])
        assert (before[:, 40:] != after[:, 40:]).any()


def test_an_output_sees_29_steps_back_and_no_further():
    torch.manual_seed(0)
    model = PrinterTCN("tiny").double()
    inputs = torch.randn(8, 60, len(INPUTS), dtype=torch.float64, requires_grad=True)
    states, _ = model(inputs)
    (gradient,) = torch.autograd.grad(states[:, 50].sum(), inputs)
    reached = gradient.abs().sum(dim=(0, 2)).nonzero().flatten()
    assert (reached.min(), reached.max()) == (50 - 28, 50)


@pytest.mark.parametrize("channels_out", [3, 5])
def test_a_block_whose_convolutions_are_silent_passes_its_input_on(channels_out):
    block = Block(3, channels_out, dilation=2)
    for parameter in block.second.parameters():
        torch.nn.init.zeros_(parameter)
    signal = torch.rand(2, 3, 40)
    assert torch.equal(block(signal), block.skip(signal).relu())
    assert block(signal).any()


def test_base_has_the_stated_blocks_and_tiny_is_much_smaller():
    convolutions = [module for module in PrinterTCN("base").modules() if isinstance(module, CausalConv)]
    assert [conv.out_channels for conv in convolutions] == [128, 128, 128, 128, 256, 256]
    assert [conv.dilation for conv in convolutions] == [(1,), (1,), (2,), (2,), (4,), (4,)]
    base, tiny = (sum(p.numel() for p in PrinterTCN(size).parameters()) for size in ("base", "tiny"))
    assert base > 100 * tiny


def test_true_errors_explain_the_force_and_none_do_not(prints, batch):
    _, states, errors = batch
    loss_of = PrinterLoss(fit_scalers(prints), Belt(), lambda_physics=0.5)
    truth = loss_of((states, errors), batch)
    assert truth.data == 0
    assert truth.physics < 0.002
    resting = loss_of((states, torch.zeros_like(errors)), batch)
    assert resting.physics > 0.5
    stiffer = PrinterLoss(fit_scalers(prints), replace(Belt(), stiffness=1.4 * Belt().stiffness), 0.5)
    assert stiffer((states, errors), batch).physics > 10 * truth.physics


def test_the_loss_is_data_plus_weighted_physics(prints, batch):
    outputs = PrinterTCN("tiny")(batch[0])
    for weight in (0.0, 0.5, 2.0):
        losses = PrinterLoss(fit_scalers(prints), Belt(), weight)(outputs, batch)
        assert losses.physics > 0
        assert losses.total.item() == pytest.approx((losses.data + weight * losses.physics).item())


def test_the_physics_alone_teaches_the_tracking_error(prints, batch):
    """Descend on the physics term from rest: the errors come close to the truth, which it never sees."""
    inputs, _, errors = batch
    loss_of = PrinterLoss(fit_scalers(prints), Belt(), lambda_physics=1.0)
    inferred = torch.zeros_like(errors, requires_grad=True)
    descent = torch.optim.LBFGS([inferred], max_iter=150, history_size=20, line_search_fn="strong_wolfe")

    def closure():
        descent.zero_grad()
        loss = loss_of.unexplained_force(inferred, inputs).square().mean()
        loss.backward()
        return loss

    descent.step(closure)
    settled = slice(80, -80)  # the ends of a window are free: a motion may have begun before it
    left = (inferred - errors)[:, settled].square().mean() / errors[:, settled].square().mean()
    assert left < 0.1


def test_half_precision_outputs_are_differenced_in_full_precision(prints, batch):
    _, states, errors = batch
    loss_of = PrinterLoss(fit_scalers(prints), Belt(), 0.5)
    losses = loss_of((states.bfloat16(), errors.bfloat16()), batch)
    assert {loss.dtype for loss in losses} == {torch.float32}


def test_network_and_loss_are_one_graph_without_breaks(prints, batch):
    model, loss_of = PrinterTCN("tiny"), PrinterLoss(fit_scalers(prints), Belt(), 0.5)

    def whole(inputs, states, errors):
        return loss_of(model(inputs), (inputs, states, errors)).total

    compiled = torch.compile(whole, fullgraph=True, backend="eager")
    assert compiled(*batch).item() == pytest.approx(whole(*batch).item(), rel=1e-5)
