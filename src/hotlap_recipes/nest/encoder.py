"""The Fast-Conformer: transformers' ParakeetEncoder, with NeMo's dropout and initial weights, and less work.

What is computed otherwise gives the same numbers: positions are the same for every row of a batch, so that their
projection is computed once and not for each row; what follows the end of a row is cleared where it is, without a
product over all of the batch; convolutions have their channels last, dropout draws 16 bits a value instead of 64,
also in the attention, and in half precision depthwise convolutions take their gradients in single precision, which
are worth a tenth to a fourth of a step each on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.parakeet.configuration_parakeet import ParakeetEncoderConfig
from transformers.models.parakeet.modeling_parakeet import (
    ParakeetEncoder,
    ParakeetEncoderAttention,
    ParakeetEncoderBlock,
    ParakeetEncoderFeedForward,
    ParakeetEncoderSubsamplingConv2D,
)

from hotlap_recipes.nest.depthwise import convolved
from hotlap_recipes.nest.features import beyond


class FastConformer(nn.Module):
    """(batch, mels, frames) to (batch, frames / 8, d_model), and the new lengths."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        config = parakeet_config(encoder)
        self.body = ParakeetEncoder(config)
        self.body.subsampling = Subsampling(config)
        self.body.layers = nn.ModuleList(
            Layer(config, number, encoder.dropout) for number in range(encoder.n_layers)
        )
        as_torch_initialises(self.body)

    def forward(self, features: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        body = self.body
        hidden, lengths = body.subsampling(features.transpose(1, 2), frames)
        hidden = hidden * body.input_scale
        positions = body.encode_positions(hidden[:1])
        hidden = functional.dropout(hidden, body.dropout, self.training)
        positions = functional.dropout(positions, body.dropout_positions, self.training)
        present = ~beyond(lengths, hidden.shape[1])
        visible = (present.unsqueeze(1) & present.unsqueeze(2)).unsqueeze(1)
        for layer in body.layers:
            hidden = layer(hidden, visible, positions)
        return hidden, lengths


class Subsampling(ParakeetEncoderSubsamplingConv2D):
    """(batch, frames, mels) to (batch, frames / 8, d_model). Features are zero after the end of a row."""

    def forward(self, input_features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        hidden = input_features.unsqueeze(1).contiguous(memory_format=torch.channels_last)
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):
                hidden = convolved(hidden, layer)
                lengths = (lengths - 1) // layer.stride[0] + 1
            else:
                hidden = ClearedReLU.apply(hidden, lengths)  # type: ignore[no-untyped-call]
        return self.linear(hidden.transpose(1, 2).flatten(2)), lengths


class ClearedReLU(torch.autograd.Function):
    """In place: ReLU, and zero after the end of each row. The gradient of ReLU is zero where its output is.

    Its gradient as well: only the convolution after it has made it, and it is the largest tensor of a step.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, lengths: Tensor) -> Tensor:
        ctx.mark_dirty(hidden)
        hidden.relu_()
        # Rows of like length share most of their frames; a GPU would have to be asked where the first one ends.
        is_asked = hidden.device.type == "cpu" and not torch.compiler.is_compiling()
        first = int(lengths.min()) if is_asked else 0
        ended = beyond(lengths, hidden.shape[2])
        hidden[:, :, first:].masked_fill_(ended[:, None, first:, None], 0.0)
        ctx.save_for_backward(hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        torch.ops.aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)
        return gradient, None


class Attention(ParakeetEncoderAttention):
    """With positions of one row, which hold for all."""

    def forward(  # type: ignore[override]
        self, hidden_states: Tensor, position_embeddings: Tensor, attention_mask: Tensor
    ) -> Tensor:
        rows, steps, _size = hidden_states.shape
        shape = (rows, steps, -1, self.head_dim)
        query, key, value = (
            projection(hidden_states).view(shape).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        places = self.relative_k_proj(position_embeddings).view(1, 2 * steps - 1, -1, self.head_dim)
        by_place = (query + self.bias_v.unsqueeze(1)) @ places.permute(0, 2, 3, 1)
        by_place = shifted(by_place)[..., :steps] * self.scaling
        by_place = by_place.masked_fill(~attention_mask, torch.finfo(by_place.dtype).min)
        mixed = attended(
            query + self.bias_u.unsqueeze(1), key, value, by_place, self.scaling, self._dropout()
        )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(rows, steps, -1))
        return out

    def _dropout(self) -> float:
        return self.attention_dropout if self.training else 0.0


def attended(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float, dropout: float) -> Tensor:
    """torch's, but for dropout on a CPU, where torch fuses nothing."""
    if not draws_few_bits(dropout, query):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale
        )
    scores = (query * scale) @ key.transpose(2, 3) + bias
    return dropped(scores.softmax(-1), dropout) @ value


def shifted(scores: Tensor) -> Tensor:
    """(rows, heads, steps, 2 steps - 1) by distance, so that column j of row i is the distance of j from i."""
    rows, heads, steps, places = scores.shape
    padded = functional.pad(scores, (1, 0)).view(rows, heads, places + 1, steps)
    return padded[:, :, 1:].view(rows, heads, steps, places)


class Dropout(nn.Dropout):
    def forward(self, hidden: Tensor) -> Tensor:
        share = self.p if self.training else 0.0
        return dropped(hidden, share) if draws_few_bits(share, hidden) else super().forward(hidden)


def draws_few_bits(share: float, hidden: Tensor) -> bool:
    return share > 0 and hidden.device.type == "cpu" and not torch.compiler.is_compiling()


def dropped(hidden: Tensor, share: float) -> Tensor:
    """torch's dropout, with probabilities in steps of 2^-16: the generator is what it costs on a CPU."""
    count = hidden.numel()
    drawn = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    least = torch.iinfo(torch.int16).min + round(share * 2**16)
    kept = drawn.view(torch.int16)[:count].view(hidden.shape) >= least
    return hidden * kept.to(hidden.dtype).mul_(1 / (1 - share))


class FeedForward(ParakeetEncoderFeedForward):
    def __init__(self, config: ParakeetEncoderConfig) -> None:
        super().__init__(config)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, hidden_states: Tensor) -> Tensor:
        out: Tensor = self.linear2(self.dropout(functional.silu(self.linear1(hidden_states))))
        return out


class Layer(ParakeetEncoderBlock):
    """NeMo drops out on the way into every residual sum; transformers does not."""

    def __init__(self, config: ParakeetEncoderConfig, number: int, dropout: float) -> None:
        super().__init__(config, number)
        self.self_attn = Attention(config, number)
        self.feed_forward1, self.feed_forward2 = FeedForward(config), FeedForward(config)
        self.dropout = Dropout(dropout)

    def forward(  # type: ignore[override]
        self, hidden_states: Tensor, attention_mask: Tensor, position_embeddings: Tensor
    ) -> Tensor:
        hidden = hidden_states
        hidden = hidden + 0.5 * self.dropout(self.feed_forward1(self.norm_feed_forward1(hidden)))
        attended = self.self_attn(self.norm_self_att(hidden), position_embeddings, attention_mask)
        hidden = hidden + self.dropout(attended)
        hidden = hidden + self.dropout(self.conv(self.norm_conv(hidden), attention_mask))
        hidden = hidden + 0.5 * self.dropout(self.feed_forward2(self.norm_feed_forward2(hidden)))
        normed: Tensor = self.norm_out(hidden)
        return normed


def parakeet_config(encoder: Any) -> ParakeetEncoderConfig:
    """From NeMo's keys."""
    return ParakeetEncoderConfig(
        hidden_size=encoder.d_model,
        num_hidden_layers=0,  # built here, with dropout
        num_attention_heads=encoder.n_heads,
        intermediate_size=encoder.d_model * encoder.ff_expansion_factor,
        attention_bias=encoder.use_bias,
        convolution_bias=encoder.use_bias,
        conv_kernel_size=encoder.conv_kernel_size,
        subsampling_factor=encoder.subsampling_factor,
        subsampling_conv_channels=encoder.subsampling_conv_channels,
        num_mel_bins=encoder.feat_in,
        dropout=encoder.dropout_pre_encoder,
        dropout_positions=encoder.dropout_emb,
        layerdrop=0.0,
        activation_dropout=encoder.dropout,
        attention_dropout=encoder.dropout_att,
        max_position_embeddings=encoder.pos_emb_max_len,
        scale_input=encoder.xscaling,
    )


def as_torch_initialises(module: nn.Module) -> None:
    """NeMo leaves torch's own initial weights, and starts the biases of positions at zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d):
            part.reset_parameters()
        elif isinstance(part, Attention):
            nn.init.zeros_(part.bias_u)
            nn.init.zeros_(part.bias_v)
