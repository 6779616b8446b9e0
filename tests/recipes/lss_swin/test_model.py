"""The network: any number of cameras, either splat, weighted loss; its IoU beside one counted by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.data import default_collate

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.dataset import NuScenesBev
from hotlap_recipes.lss_swin.evaluate import constant_map, score_constant
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.metric import MeanIoU
from hotlap_recipes.lss_swin.model import BevSegmentor, LiftSplatSwin
from hotlap_recipes.lss_swin.splat import SPLATS, Frustum

GRID = BevGrid(x=(-50.0, 50.0, 2.0), y=(-50.0, 50.0, 2.0))
SIZE = (64, 176)


def segmentor(**options):
    torch.manual_seed(0)
    network = LiftSplatSwin(SIZE, GRID, **{"size": "tiny", "drop_path_rate": 0.0, **options})
    return BevSegmentor(network, (4.0, 1.0))


def gradient_of(model):
    """Of all parameters but those of Swin's last norm, which no map is read behind."""
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


@pytest.fixture(scope="module")
def batch(tree):
    data = NuScenesBev(str(tree), "train", image_size=SIZE, grid=GRID, decode="scaled")
    return default_collate([data[0], data[2]])


def test_either_splat_trains_the_same_network(batch):
    fast = segmentor()
    naive = copy.deepcopy(fast)
    naive.network.splat = SPLATS["cumsum"](Frustum(SIZE, 16, (4.0, 45.0, 1.0)), GRID)
    losses = []
    for model in (fast, naive):
        loss = model(**model.data_preprocessor(batch), mode="loss")["loss"]
        loss.backward()
        losses.append(loss.detach())
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
    assert list(fast.state_dict()) == list(naive.state_dict()), "a checkpoint fits both"
    one, other = (gradient_of(model) for model in (fast, naive))
    # A sum along 40,000 rows rounds, and the norms behind it magnify that: see test_splat.py for the splat alone.
    assert torch.cosine_similarity(one, other, dim=0) > 0.999


def test_one_camera(tree):
    data = NuScenesBev(str(tree), "val", ["CAM_FRONT"], SIZE, GRID, "scaled")
    model = segmentor().eval()
    with torch.no_grad():
        one = model(**model.data_preprocessor(default_collate([data[0]])))
    assert one.shape == (1, 2, 50, 50) and one.isfinite().all()


def test_the_base_size_is_swin_t():
    network = LiftSplatSwin((64, 128), GRID, size="base")
    backbone = sum(each.numel() for each in network.encoder.backbone.parameters())
    assert 27.0e6 < backbone < 28.5e6
    features, depth = network.encoder(torch.zeros(1, 3, 64, 128))
    assert (features.shape, depth.shape) == ((1, 64, 4, 8), (1, 41, 4, 8))
    torch.testing.assert_close(depth.sum(1), torch.ones(1, 4, 8))


def test_a_stride_that_the_backbone_has_not():
    with pytest.raises(BadInputError, match=r"model.stride is 32, and this Swin has maps at 8, 16"):
        segmentor(stride=32)


def test_set_cells_weigh_more(batch):
    model = segmentor()
    inputs = model.data_preprocessor(batch)
    logits = model(**inputs)
    target = batch["target"]
    each = torch.where(target > 0, -logits.sigmoid().log(), -(1 - logits.sigmoid()).log())
    each[:, 0] *= torch.where(target[:, 0] > 0, 4.0, 1.0)
    torch.testing.assert_close(model(**inputs, mode="loss")["loss"], each.mean(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pre_eval", [True, False])
def test_mean_iou(pre_eval):
    generator = torch.Generator().manual_seed(1)
    maps = [(torch.rand(2, 9, 9, generator=generator) > 0.5, torch.rand(2, 9, 9, generator=generator) > 0.7)]
    maps += [(~drawn, target) for drawn, target in maps] + maps
    metric = MeanIoU(pre_eval)
    metric.process(None, maps[:2])
    metric.process(None, maps[2:])
    found = metric.evaluate(3)
    drawn, target = (torch.stack(each) for each in zip(*maps, strict=True))
    expected = [
        (drawn[:, at] & target[:, at]).sum() / (drawn[:, at] | target[:, at]).sum() for at in range(2)
    ]
    assert found["IoU.vehicle"] == pytest.approx(float(expected[0]), abs=1e-6)
    assert found["IoU.drivable"] == pytest.approx(float(expected[1]), abs=1e-6)
    assert found["mIoU"] == pytest.approx(float(sum(expected)) / 2, abs=1e-6)


def test_the_constant_map_is_the_best_of_its_kind():
    """Three frames: a cell that is always set, one in two of three, one in one of three."""
    targets = torch.zeros(3, 2, 2, 2)
    targets[:, :, 0, 0] = 1
    targets[:2, :, 0, 1] = 1
    targets[:1, :, 1, 0] = 1
    frames = [{"target": target} for target in targets]
    drawn = constant_map(frames)
    assert drawn[0].tolist() == [[True, True], [False, False]], (
        "5 of 7 cells; with the third cell it is 6 of 9"
    )
    assert score_constant(drawn, frames)["IoU.drivable"] == pytest.approx(5 / 7)
