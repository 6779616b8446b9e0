"""The NEST model: features, masks, random quantizer, encoder, decoder and the loss on what was masked.

Module names are NeMo's, so that `export` has only the encoder's to translate. Two ways of computing the same are kept
apart by the config: `quantizer.search` and `loss.frames` as NeMo computes them (`distance`, `all`), and without the
work that nobody looks at (`product`, `masked`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from hotlap_recipes.nest.encoder import FastConformer
from hotlap_recipes.nest.features import MelFeatures


class Preprocessor(nn.Module):
    """Holds the features under the name that they have in NeMo's state dict."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        names = ["sample_rate", "window_size", "window_stride", "features", "n_fft", "dither", "pad_to"]
        self.featurizer = MelFeatures(**{name: config[name] for name in names})

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = self.featurizer(audio, lengths)
        return found


class BlockMasking(nn.Module):
    """Every frame starts a masked block with some probability, where a whole block still fits; blocks may overlap."""

    mask_embedding: Tensor

    def __init__(self, features: int, block_size: int, mask_prob: float) -> None:
        super().__init__()
        self.block_size, self.mask_prob = block_size, mask_prob
        self.mask_embedding = nn.Parameter(torch.randn(features) * 0.1, requires_grad=False)

    def draw(self, frames: Tensor, size: int) -> Tensor:
        """(batch, size), True where a frame is masked."""
        places = torch.arange(size, device=frames.device)
        fits = places + self.block_size <= frames.unsqueeze(1)
        starts = (torch.rand(len(frames), size, device=frames.device) < self.mask_prob) & fits
        begun = starts.cumsum(1)
        return begun > functional.pad(begun, (self.block_size, 0))[:, :size]

    def forward(self, features: Tensor, masked: Tensor) -> Tensor:
        return torch.where(
            masked.unsqueeze(1), self.mask_embedding.view(1, -1, 1).to(features.dtype), features
        )


class RandomQuantizer(nn.Module):
    """The nearest of frozen random codes to a frozen random projection of some frames, by angle."""

    codebooks: Tensor
    quick_codes: Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.stack, self.search = config.combine_time_steps, config.search
        books, classes, size = config.num_books, config.num_classes, config.code_dim
        self.proj = nn.Linear(config.feat_in * self.stack, books * size, bias=False)
        nn.init.xavier_normal_(self.proj.weight)
        codes = functional.normalize(torch.randn(books, classes, size, dtype=torch.float64), dim=-1)
        # NeMo stores doubles: they are kept, so that what came from NeMo goes back as it was.
        self.codebooks = nn.Parameter(codes)
        self.requires_grad_(False)
        self.register_buffer("quick_codes", codes.float().transpose(1, 2).contiguous(), persistent=False)
        self.register_load_state_dict_post_hook(_refresh)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def forward(self, features: Tensor) -> Tensor:
        """(batch, mels, frames) to codes, (batch, frames / stacked, books)."""
        rows, _, frames = features.shape
        stacked = features.transpose(1, 2).reshape(rows, frames // self.stack, -1)
        books, _, size = self.codebooks.shape
        points = self.proj(stacked).view(rows, -1, books, size)
        points = functional.normalize(points.float(), dim=-1)
        return self._by_product(points) if self.search == "product" else self._by_distance(points)

    def _by_product(self, points: Tensor) -> Tensor:
        """All are of length 1, so the nearest has the largest product: one matmul in single precision."""
        with torch.autocast(points.device.type, enabled=False):
            return (points.transpose(1, 2) @ self.quick_codes).argmax(-1).transpose(1, 2)

    def _by_distance(self, points: Tensor) -> Tensor:
        """As NeMo computes it: every difference in double precision, (batch, frames, books, size, classes)."""
        differences = points.unsqueeze(-1) - self.codebooks.transpose(1, 2)
        lengths: Tensor = differences.norm(dim=-2)
        return lengths.argmin(-1)


def _refresh(quantizer: nn.Module, _: Any) -> None:
    if isinstance(quantizer, RandomQuantizer):
        quantizer.quick_codes.copy_(quantizer.codebooks.transpose(1, 2))


class Decoder(nn.Module):
    """Logits of every class of every book."""

    def __init__(self, size: int, classes: int, books: int, use_bias: bool) -> None:
        super().__init__()
        self.classes, self.books = classes, books
        self.decoder_layers = nn.Sequential(nn.Conv1d(size, classes * books, 1, bias=use_bias))
        nn.init.xavier_uniform_(self.layer.weight, gain=1.0)
        if self.layer.bias is not None:
            nn.init.zeros_(self.layer.bias)

    @property
    def layer(self) -> nn.Conv1d:
        found = self.decoder_layers[0]
        assert isinstance(found, nn.Conv1d)
        return found

    def forward(self, encoded: Tensor) -> Tensor:
        """(..., size) to (..., classes, books)."""
        logits = functional.linear(encoded, self.layer.weight.squeeze(-1), self.layer.bias)
        return logits.view(*encoded.shape[:-1], self.classes, self.books)


class Outcome(NamedTuple):
    """What a pass gave; `predicted` counts the encoded frames that the loss is a mean of."""

    loss: Tensor
    encoded: Tensor
    codes: Tensor
    predicted: Tensor


class Nest(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.preprocessor = Preprocessor(config.preprocessor)
        masking, decoder = config.masking, config.decoder
        self.mask_processor = BlockMasking(masking.feat_in, masking.block_size, masking.mask_prob)
        self.quantizer = RandomQuantizer(config.quantizer)
        self.encoder = FastConformer(config.encoder)
        self.decoder = Decoder(decoder.feat_in, decoder.num_classes, decoder.num_decoders, decoder.use_bias)
        self.stack, self.threshold = config.loss.combine_time_steps, config.loss.mask_threshold
        self.all_frames = config.loss.frames == "all"

    def forward(self, audio: Tensor, lengths: Tensor, noisy: Tensor, masked: Tensor | None = None) -> Outcome:
        """`masked` replaces the drawn mask: (batch, frames), True where a frame is hidden from the encoder."""
        clean, _ = self.preprocessor(audio, lengths)
        codes = self.quantizer(clean)
        features, frames = self.preprocessor(noisy, lengths)
        if masked is None:
            masked = self.mask_processor.draw(frames, features.shape[-1])
        encoded, _ = self.encoder(self.mask_processor(features, masked), frames)
        hidden = masked.view(len(masked), -1, self.stack).float().mean(-1) > self.threshold
        return Outcome(self.loss(encoded, codes, hidden), encoded, codes, hidden.sum())

    def loss(self, encoded: Tensor, codes: Tensor, hidden: Tensor) -> Tensor:
        """Mean negative log-likelihood of the codes where enough of the frames was masked, over all books."""
        if self.all_frames:
            likely = functional.log_softmax(self.decoder(encoded).float(), dim=2)
            summed = functional.nll_loss(likely[hidden], codes[hidden], reduction="sum")
        else:
            logits = self.decoder(encoded[hidden])
            summed = functional.cross_entropy(logits.float(), codes[hidden], reduction="sum")
        # Where nothing was masked the loss is 0 and still has a gradient: other ranks wait for it.
        return summed / (hidden.sum().clamp(min=1) * self.decoder.books)
