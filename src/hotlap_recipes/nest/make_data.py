"""Make speech to train on: WAV at 16 kHz with NeMo manifests, and noise, under --out.

From recorded prompts where Debian's asterisk-core-sounds-*-wav is installed, else spoken by espeak-ng, else from a
source-filter generator that needs nothing but NumPy. `hotlap pack OUT/train_manifest.json DIR` makes tar shards of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy.signal import lfilter, resample_poly

Samples = NDArray[np.float64]

RATE = 16000
PROMPTS = Path("/usr/share/asterisk/sounds")
MUSIC = Path("/usr/share/asterisk/moh")
SOURCES = ("asterisk", "espeak", "numpy")
NOISES, NOISE_S = 24, 12.0
VALIDATED = 10  # every so many clips, one is kept for validation
WORDS = (
    *("the", "a", "your", "this", "every", "number", "message", "call", "please", "enter", "press"),
    *("wait", "hold", "line", "office", "after", "before", "seven", "three", "menu", "record", "listen"),
    *("again", "tomorrow", "morning", "thank", "you", "goodbye", "operator", "available", "connect"),
)
FORMANTS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))


def prompts(count: int, _: np.random.Generator) -> Iterator[Samples]:
    """Recorded prompts, in the order of their names, several times over if need be."""
    files = sorted(PROMPTS.rglob("*.wav"))
    for number in range(count):
        yield at_rate(files[number % len(files)])


def spoken(count: int, rng: np.random.Generator) -> Iterator[Samples]:
    """Random sentences in several voices."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "spoken.wav"
        for _ in range(count):
            text = " ".join(rng.choice(WORDS, int(np.clip(rng.lognormal(2.2, 0.6), 3, 40))))
            voice = f"en+{rng.choice(['m1', 'm3', 'm7', 'f2', 'f4'])}"
            speed = str(int(rng.integers(130, 200)))
            subprocess.run(["espeak-ng", "-v", voice, "-s", speed, "-w", str(target), text], check=True)
            yield at_rate(target)


def generated(count: int, rng: np.random.Generator) -> Iterator[Samples]:
    """Syllables of pulses through formants or of hiss, with pauses: nothing to understand, but like speech in time."""
    for _ in range(count):
        syllables = int(np.clip(rng.lognormal(2.6, 0.6), 8, 80))
        sound = np.concatenate([_syllable(rng) for _ in range(syllables)])
        yield 0.1 * sound / (sound.std() + 1e-9)


def _syllable(rng: np.random.Generator) -> Samples:
    size = int(RATE * rng.uniform(0.08, 0.28))
    if rng.random() < 0.12:
        return rng.normal(0, 1e-4, size)
    envelope = np.hanning(size)
    if rng.random() < 0.25:
        hiss: Samples = lfilter([1, -0.9], [1], rng.normal(0, 0.3, size))
        return envelope * hiss
    pitch = rng.uniform(90, 220) * (1 + 0.1 * np.linspace(0, rng.normal(), size))
    sound: Samples = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0.0) + rng.normal(0, 0.01, size)
    for centre in FORMANTS[rng.integers(len(FORMANTS))]:
        radius, angle = np.exp(-np.pi * 90 / RATE), 2 * np.pi * centre * rng.uniform(0.9, 1.1) / RATE
        sound = lfilter([1 - radius], [1, -2 * radius * np.cos(angle), radius**2], sound)
    return envelope * sound


def at_rate(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="float64", always_2d=True)
    divisor = np.gcd(RATE, rate)
    resampled: Samples = resample_poly(samples.mean(axis=1), RATE // divisor, rate // divisor)
    return resampled


def noises(rng: np.random.Generator, recorded: bool) -> Iterator[Samples]:
    """Pieces of the music on hold where it is installed, else coloured noise that swells and fades."""
    music = sorted(MUSIC.rglob("*.wav")) if recorded else []
    size = int(RATE * NOISE_S)
    for number in range(NOISES):
        if music:
            whole = at_rate(music[number % len(music)])
            start = int(rng.integers(max(len(whole) - size, 1)))
            yield whole[start : start + size]
        else:
            swell = 1 + 0.5 * np.sin(np.arange(size) * 2 * np.pi * rng.uniform(0.1, 2) / RATE)
            coloured: Samples = lfilter([1], [1, -rng.uniform(0.3, 0.98)], rng.normal(0, 0.02, size))
            yield swell * coloured


def available(source: str) -> bool:
    if source == "asterisk":
        return any(PROMPTS.rglob("*.wav"))
    return source == "numpy" or shutil.which("espeak-ng") is not None


def write_speech(out: Path, source: str, count: int, seed: int) -> dict[str, int]:
    """Sounds and manifests; how many clips each manifest lists."""
    speak = {"asterisk": prompts, "espeak": spoken, "numpy": generated}[source]
    rng = np.random.default_rng(seed)
    lines: dict[str, list[str]] = {"train": [], "validation": [], "noise": []}
    for number, samples in enumerate(speak(count, rng)):
        part = "validation" if number % VALIDATED == VALIDATED - 1 else "train"
        lines[part].append(_written(out, part, len(lines[part]), samples))
    for samples in noises(rng, recorded=source != "numpy"):
        lines["noise"].append(_written(out, "noise", len(lines["noise"]), samples))
    for part, found in lines.items():
        (out / f"{part}_manifest.json").write_text("".join(found))
    return {part: len(found) for part, found in lines.items()}


def _written(out: Path, part: str, number: int, samples: Samples) -> str:
    path = Path(part) / f"{part}_{number:05d}.wav"
    (out / part).mkdir(parents=True, exist_ok=True)
    soundfile.write(out / path, np.clip(samples, -1, 1), RATE, subtype="PCM_16")
    entry = {"audio_filepath": str(path), "duration": len(samples) / RATE, "text": ""}
    return json.dumps(entry) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("speech"), help="folder that receives the data")
    parser.add_argument("--source", choices=("auto", *SOURCES), default="auto", help="where speech is from")
    parser.add_argument("--clips", type=int, default=560, help="how many, a tenth of them for validation")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.clips < VALIDATED:
        parser.error(f"--clips is {options.clips}. Take at least {VALIDATED}: one of them is to validate.")
    if options.out.exists():
        parser.error(f"{options.out} exists. Remove it, or choose another --out.")
    source = options.source
    if source == "auto":
        source = next(each for each in SOURCES if available(each))
    elif not available(source):
        package = {"asterisk": "asterisk-core-sounds-en-wav", "espeak": "espeak-ng"}[source]
        parser.error(f"--source {source} is not installed. apt install {package}, or take --source numpy.")
    counts = write_speech(options.out, source, options.clips, options.seed)
    made = ", ".join(f"{count} of {part}" for part, count in counts.items())
    print(f"wrote {made} from {source} to {options.out}")


if __name__ == "__main__":
    main()
