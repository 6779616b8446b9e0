"""Sound read through a library that converts it on the way, where soundfile reads it.

What it is
    `librosa.load` looks for a decoder, mixes down and resamples in Python; `torchaudio.load` and pydub start a decoder
    for each file. For WAV, FLAC and OGG soundfile reads the numbers.
Before
    wave, rate = torchaudio.load(path)
After
    wave, rate = soundfile.read(path, dtype="float32", always_2d=True)
    wave = torch.from_numpy(wave.T)
When it is the same
    For files without loss the same numbers; of files with two channels librosa takes the mean.
When it is not
    For formats that soundfile does not know, and where librosa resamples. It is advice: soundfile must be installed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, line_after, line_before, local_name, starts_its_line

_READERS = (
    "librosa.load",
    "librosa.core.load",
    "torchaudio.load",
    "pydub.AudioSegment.from_file",
    "audioread.audio_open",
)


class SlowAudioReader(Rewrite):
    id = "slow-audio-reader"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, *_READERS):
            yield Site(call, {"call": function.text(call.func)}, advice=True)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        statement = function.statement(call)
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=wave), _])], value=value) if value is call:
                pass
            case _:
                return ()
        of_torch = function.text(call.func).startswith("torchaudio")
        words = {each.arg: ast.unparse(each.value) for each in call.keywords}
        plain = of_torch and len(call.args) == 1 and not words
        unchanged = len(call.args) == 1 and words == {"sr": "None"}
        if not (plain or unchanged) or not starts_its_line(function, statement):
            return ()
        path = function.text(call.args[0])
        shape = "wave.T" if of_torch else "wave.mean(axis=1)"
        back = shape.replace("wave", wave)
        back = f"{local_name(function, 'torch') or 'torch'}.from_numpy({back})" if of_torch else back
        return (
            line_before(function, statement, "import soundfile  # at the top of the file"),
            function.replace(call, f'soundfile.read({path}, dtype="float32", always_2d=True)'),
            line_after(function, statement, f"{wave} = {back}"),
        )
