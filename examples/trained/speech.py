"""The voice detector of silero-vad 6.2.3: read from its ONNX file, compared with onnxruntime, and exported again.

Needs ``pip install silero-vad==6.2.3 onnx onnxruntime --no-deps``; the package's own needs are not used.
"""

import importlib.metadata
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

Array = np.ndarray[Any, Any]
State = tuple[mg.Tensor, mg.Tensor]
FRAME, CONTEXT = 512, 64  # samples, of which there are 16,000 in a second


class Detector(nn.Module):
    """The sizes of a spectrum, four convolutions, and an LSTM that goes from frame to frame."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.encoder = nn.Sequential(
            nn.Conv1d(129, 128, 3, padding=1), nn.ReLU(),
            nn.Conv1d(128, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv1d(64, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv1d(64, 128, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.lstm = nn.LSTM(128, 128)
        self.output = nn.Conv1d(128, 1, 1)

    def forward(self, frames: mg.Tensor, state: State) -> tuple[mg.Tensor, State]:
        """Return how probable speech is in each frame of 576 samples, (frames,), and the LSTM's next state."""
        waves = self.spectrum(F.pad(frames[:, None], (0, 64), mode="reflect"))
        sizes = mg.sqrt(waves[:, :129] ** 2 + waves[:, 129:] ** 2)
        found, state = self.lstm(self.encoder(sizes).permute_dims((0, 2, 1)), state)
        return mg.sigmoid(self.output(F.relu(found).permute_dims((1, 2, 0)))).reshape(-1), state


def silence() -> State:
    return mg.zeros((1, 1, 128)), mg.zeros((1, 1, 128))


def framed(sound: Array) -> Array:
    """Return the frames of a sound, each with the last samples of the one before: (frames, 576)."""
    frames = sound.reshape(-1, FRAME)
    before = np.concatenate([np.zeros((1, CONTEXT), sound.dtype), frames[:-1, -CONTEXT:]])
    return np.concatenate([before, frames], axis=1)


def voice(rng: np.random.Generator, frames: int = 64) -> Array:
    """Return noise, and after half of the time four vowels in turn: the tones of a voice near two resonances each."""
    time = np.arange(frames * FRAME) / 16000
    phase = 2 * np.pi * (120 * time + 3 * np.sin(2 * np.pi * time))
    sound = np.zeros_like(time)
    for k, (low, high) in enumerate([(730, 1090), (270, 2290), (530, 1840), (300, 870)]):
        near = {
            n: np.exp(-(((120 * n - low) / 150) ** 2)) + np.exp(-(((120 * n - high) / 200) ** 2)) / 2
            for n in range(1, 24)
        }
        turn = np.maximum(np.sin(2 * np.pi * (2 * time - k / 4)), 0) ** 3
        sound += turn * sum(size * np.sin(n * phase) for n, size in near.items())
    return (0.05 * sound * (time > time[-1] / 2) + 0.002 * rng.standard_normal(time.size)).astype(np.float32)


# ── with the package ──


def run(path: Path, frames: Array) -> list[Array]:
    """Return what onnxruntime computes: the probabilities and the last state."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    state = [x.numpy() for x in silence()]
    return session.run(None, dict(zip([x.name for x in session.get_inputs()], [frames, *state], strict=True)))


def main() -> None:
    package = importlib.metadata.distribution("silero-vad")
    path = Path(str(package.locate_file("silero_vad/data/silero_vad_16k_sequence.onnx")))
    net = mg.onnx.load(path, Detector()).eval()
    print(f"{sum(p.size for p in net.parameters()):,} numbers")
    frames = framed(voice(np.random.default_rng(0)))
    speech, (h, c) = net(mg.tensor(frames), silence())
    print("every 8th frame:", *(f"{p:.2f}" for p in speech.tolist()[4::8]))
    theirs = run(path, frames)
    ours = [x.detach().numpy() for x in (speech, h, c)]
    print(f"largest difference of a probability: {abs(ours[0] - theirs[0]).max():.1e}")
    print(f"of the last c, up to {abs(theirs[2]).max():.0f}: {abs(ours[2] - theirs[2]).max():.1e}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.onnx"
        free = {"frames": {0: "T"}}
        mg.onnx.export(net, {"frames": mg.tensor(frames[:8]), "state": silence()}, path, free)
        print(f"exported, in onnxruntime: {abs(run(path, frames)[0] - theirs[0]).max():.1e}")

    # Without the gates in minigrad's order the network runs as well.
    state = net.state_dict()
    for name in [name for name in state if name.startswith("lstm.")]:
        i, f, g, o = mg.split(state[name], 4)
        state[name] = mg.concat([i, o, f, g])
    net.load_state_dict(state)
    wrong = net(mg.tensor(frames), silence())[0].detach().numpy()
    print(f"with the gates as the file has them: {abs(wrong - theirs[0]).max():.2f}")


if __name__ == "__main__":
    main()
