"""Sound to normalised log-mel features, equal to those of NeMo's AudioToMelSpectrogramPreprocessor."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

LOG_GUARD = 2.0**-24
STD_GUARD = 1e-5
LINEAR_BELOW_HZ, LINEAR_STEP_HZ, LOG_STEP = 1000.0, 200.0 / 3, np.log(6.4) / 27.0


class MelFeatures(nn.Module):
    """(batch, samples) to (batch, mels, frames), and how many of the frames are sound. The others are zero."""

    window: Tensor
    fb: Tensor

    def __init__(
        self,
        sample_rate: int = 16000,
        window_size: float = 0.025,
        window_stride: float = 0.01,
        features: int = 80,
        n_fft: int = 512,
        dither: float = 1e-5,
        pad_to: int = 16,
        preemph: float = 0.97,
    ) -> None:
        super().__init__()
        self.hop, self.n_fft = int(window_stride * sample_rate), n_fft
        self.dither, self.pad_to, self.preemph = dither, pad_to, preemph
        length = int(window_size * sample_rate)
        self.register_buffer("window", torch.hann_window(length, periodic=False))
        banks = slaney_filters(sample_rate, n_fft, features)
        self.register_buffer("fb", torch.from_numpy(banks).float().unsqueeze(0))

    @torch.no_grad()
    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        if self.training and self.dither > 0:
            audio = audio + self.dither * torch.randn_like(audio)
        emphasised = torch.cat((audio[:, :1], audio[:, 1:] - self.preemph * audio[:, :-1]), dim=1)
        emphasised = emphasised.masked_fill(beyond(lengths, audio.shape[1]), 0.0)
        with torch.autocast(audio.device.type, enabled=False):  # powers of loud sound exceed half precision
            mels = torch.log(self.fb @ self._power(emphasised.float()) + LOG_GUARD)
        frames = lengths // self.hop
        normalised = normalise(mels, frames)
        return functional.pad(normalised, (0, -normalised.shape[-1] % max(self.pad_to, 1))), frames

    def _power(self, audio: Tensor) -> Tensor:
        spectrum = torch.stft(
            audio,
            self.n_fft,
            self.hop,
            len(self.window),
            self.window,
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        return torch.view_as_real(spectrum).pow(2).sum(-1)


def beyond(lengths: Tensor, size: int) -> Tensor:
    """True where a row of this length has ended."""
    return torch.arange(size, device=lengths.device) >= lengths.unsqueeze(1)


def normalise(mels: Tensor, frames: Tensor) -> Tensor:
    """Mean 0 and deviation 1 of every feature over the sound of a row; zero after its end."""
    ended = beyond(frames, mels.shape[-1]).unsqueeze(1)
    count = frames.clamp(max=mels.shape[-1]).view(-1, 1, 1)
    centred = mels - mels.masked_fill(ended, 0.0).sum(-1, keepdim=True) / count
    centred = centred.masked_fill(ended, 0.0)
    deviation = (centred.square().sum(-1, keepdim=True) / (count - 1.0)).sqrt()
    # One frame has no deviation: nothing is known of the scale, and NaN would spread.
    deviation = deviation.masked_fill(deviation.isnan(), 0.0) + STD_GUARD
    return centred / deviation


def slaney_filters(sample_rate: int, n_fft: int, count: int) -> NDArray[np.float64]:
    """Triangles on the mel scale of Slaney's toolbox, each of the same area: (mels, bins)."""
    bins = np.linspace(0.0, sample_rate / 2, n_fft // 2 + 1)
    top = _mel(np.array(sample_rate / 2))
    edges = _hertz(np.linspace(0.0, float(top), count + 2))
    widths = np.diff(edges)
    ramps = edges[:, None] - bins[None, :]
    rising, falling = -ramps[:-2] / widths[:-1, None], ramps[2:] / widths[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    scaled: NDArray[np.float64] = triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]
    return scaled


def _mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    linear = hertz / LINEAR_STEP_HZ
    above = LINEAR_BELOW_HZ / LINEAR_STEP_HZ + np.log(np.maximum(hertz, 1.0) / LINEAR_BELOW_HZ) / LOG_STEP
    return np.where(hertz < LINEAR_BELOW_HZ, linear, above)


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = LINEAR_BELOW_HZ / LINEAR_STEP_HZ
    return np.where(mel < knee, mel * LINEAR_STEP_HZ, LINEAR_BELOW_HZ * np.exp(LOG_STEP * (mel - knee)))
