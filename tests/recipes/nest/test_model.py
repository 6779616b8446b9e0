"""The model computes what NeMo 3.0.0 computes, both ways; masks and losses are what they should be at their edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module

from hotlap_recipes.nest import depthwise
from hotlap_recipes.nest.encoder import ClearedReLU, Dropout, attended
from hotlap_recipes.nest.export import from_nemo
from hotlap_recipes.nest.features import MelFeatures, slaney_filters
from hotlap_recipes.nest.model import BlockMasking, Nest

ANSWERS = Path(__file__).with_name("nemo_answers.npz")
"""Made with NeMo 3.0.0 by: python bench/nest_alignment.py --nemo-python PYTHON --golden <this file>"""
SIZE = (
    "size=tiny",
    "model.num_classes=64",
    "model.encoder.d_model=16",
    "model.encoder.subsampling_conv_channels=8",
)


@pytest.fixture(scope="module")
def answers():
    return {name: torch.from_numpy(array) for name, array in np.load(ANSWERS).items()}


@pytest.fixture
def nest(answers):
    def build(*overrides: str) -> Nest:
        with initialize_config_module("hotlap_recipes.nest.configs", version_base=None):
            config = compose("nest_fast-conformer", [*SIZE, *overrides])
        model = Nest(config.model).eval()
        weights = {key.removeprefix("weights/"): value for key, value in answers.items() if "/" in key}
        model.load_state_dict(from_nemo(weights))
        return model

    return build


def sounds(answers):
    audio, noisy = (answers[name].float() / 32768 for name in ("audio", "noisy"))
    return audio, answers["lengths"], noisy


@pytest.mark.parametrize("search", ["product", "distance"])
@pytest.mark.parametrize("frames", ["masked", "all"])
def test_it_computes_what_nemo_computes(nest, answers, search, frames):
    model = nest(f"model.quantizer.search={search}", f"model.loss.frames={frames}")
    audio, lengths, noisy = sounds(answers)
    with torch.no_grad():
        features, _ = model.preprocessor(audio, lengths)
        outcome = model(audio, lengths, noisy, answers["masked"])
    stored = answers["features"]
    assert torch.allclose(features[:, :, : stored.shape[2]], stored, atol=2e-4)
    sounding = torch.arange(stored.shape[0] * 0 + outcome.encoded.shape[1]) < answers["encoded_len"][:, None]
    assert not bool(sounding.all()), "one clip is shorter"
    assert (outcome.encoded - answers["encoded"])[sounding].abs().max() < 1e-4
    whole = torch.arange(outcome.codes.shape[1]) < (lengths // 160 // 8)[:, None]
    assert torch.equal(outcome.codes[whole], answers["codes"][whole])
    assert outcome.predicted > 3
    assert abs(float(outcome.loss - answers["loss"])) < 1e-4


def test_both_ways_of_computing_have_the_same_gradient(nest, answers):
    gradients = []
    for search, frames in (("product", "masked"), ("distance", "all")):
        model = nest(f"model.quantizer.search={search}", f"model.loss.frames={frames}")
        model(*sounds(answers), answers["masked"]).loss.backward()
        gradients.append([each.grad for each in model.parameters() if each.requires_grad])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_what_follows_the_end_of_a_clip_changes_nothing(nest, answers):
    audio, lengths, noisy = sounds(answers)
    model = nest("model.quantizer.search=product", "model.loss.frames=masked")
    short = int(lengths.argmin())
    alone = slice(short, short + 1)
    end = int(lengths[short])
    frames = -(-(end // 160 + 1) // 16) * 16
    with torch.no_grad():
        padded = model(audio, lengths, noisy, answers["masked"])
        cut = model(audio[alone, :end], lengths[alone], noisy[alone, :end], answers["masked"][alone, :frames])
    steps = int(answers["encoded_len"][short])
    assert torch.allclose(padded.encoded[short, :steps], cut.encoded[0, :steps], atol=1e-5)


def test_without_anything_masked_the_loss_is_nothing_and_has_a_gradient(nest, answers):
    for frames in ("masked", "all"):
        model = nest("model.quantizer.search=product", f"model.loss.frames={frames}")
        outcome = model(*sounds(answers), torch.zeros_like(answers["masked"]))
        assert outcome.loss.item() == 0.0
        outcome.loss.backward()
        learned = [each for each in model.parameters() if each.requires_grad]
        assert all(each.grad is not None and not each.grad.any() for each in learned), (
            "other ranks wait for it"
        )


def test_blocks_are_whole_and_end_with_the_clip():
    torch.manual_seed(0)
    masking = BlockMasking(features=80, block_size=40, mask_prob=0.01)
    frames = torch.tensor([400, 100, 30])
    share = torch.zeros(3)
    for _ in range(200):
        masked = masking.draw(frames, 416)
        assert not masked[1, 100:].any() and not masked[2].any()
        edges = torch.diff(torch.nn.functional.pad(masked[0].int(), (1, 1)))
        runs = edges.eq(-1).nonzero() - edges.eq(1).nonzero()
        assert (runs >= 40).all()
        share += masked.float().sum(1) / frames / 200
    expected = 1 - 0.99**40  # that a frame lies in a block, far from the edges
    assert 0.8 * expected < share[0] < expected
    assert masking(torch.zeros(3, 80, 416), masked)[0, :, masked[0]].std() > 0.05


def test_the_gradient_of_a_cleared_relu_is_that_of_relu_and_a_mask():
    torch.manual_seed(0)
    lengths = torch.tensor([5, 3])
    before = torch.randn(2, 4, 5, 3, requires_grad=True)
    weights = torch.randn(2, 4, 5, 3)
    (ClearedReLU.apply(before * 1.0, lengths) * weights).sum().backward()
    cleared = before.grad.clone()
    before.grad = None
    mask = (torch.arange(5) < lengths[:, None])[:, None, :, None]
    ((before * mask).relu() * weights).sum().backward()
    assert torch.equal(cleared, before.grad)


def test_dropout_drops_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    dropout, ones = Dropout(0.1), torch.ones(3, 7, 10_001, requires_grad=True)
    dropped = dropout(ones)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.9])
    for lane in range(4):  # of the 64 bits that are drawn at once
        assert abs(dropped.flatten()[lane::4].eq(0).float().mean().item() - 0.1) < 0.005
    assert abs(dropped.mean().item() - 1) < 0.005
    dropped.sum().backward()
    assert torch.equal(ones.grad, dropped.detach()), "what is dropped has no gradient"
    assert not torch.equal(dropout(ones), dropped)
    assert torch.equal(dropout.eval()(ones), ones)


def test_mel_filters_are_triangles_of_one_area():
    filters = slaney_filters(16000, 512, 80)
    assert filters.shape == (80, 257)
    bins = np.linspace(0, 8000, 257)
    wide = filters[60:]  # narrow ones fall between the bins
    assert np.allclose(np.trapezoid(wide, bins, axis=1), 1.0, atol=0.02)
    assert (np.diff(filters.argmax(axis=1)) >= 0).all()


def test_silence_and_one_frame_have_finite_features():
    features, frames = MelFeatures().eval()(torch.zeros(2, 1600), torch.tensor([1600, 160]))
    assert frames.tolist() == [10, 1] and features.shape == (2, 80, 16)
    assert features.isfinite().all() and features.abs().max() < 1, (
        "rounding of a constant, over a small guard"
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frames", [1, 2, 10, 11])
def test_a_depthwise_convolution_in_half_precision_has_the_gradients_of_a_whole_one(
    monkeypatch, bias, frames
):
    """In spans of two frames of the output, also where the last one is cut short."""
    monkeypatch.setattr(depthwise, "_SPAN_BYTES", 2 * 2 * 12 * 8 * 4)
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8, bias=bias)
    hidden = torch.randn(3, 8, frames, 12).bfloat16()
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        given = hidden.to(dtype).requires_grad_()
        layer.zero_grad()
        out = depthwise.convolved(given, layer)
        assert out.dtype is dtype
        (out.float() * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
        found.append([given.grad.float(), *(each.grad.clone() for each in layer.parameters())])
    for whole, half in zip(*found, strict=True):
        assert torch.allclose(whole, half, rtol=0.02, atol=0.005 * float(whole.abs().max()))


def test_attention_that_drops_nothing_is_torchs_own():
    """The share is below what 16 bits can tell from none, so that the way with dropout is taken, and drops none."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 5, 4) for _ in range(3))
    bias = torch.randn(2, 3, 5, 5)
    plain, dropping = (attended(query, key, value, bias, 0.5, share) for share in (0.0, 2**-20))
    assert torch.allclose(plain, dropping, atol=1e-5)
    assert not torch.allclose(plain, attended(query, key, value, bias, 0.5, 0.5), atol=1e-2)
