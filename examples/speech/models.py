"""The speech detector of the application: Silero VAD at 16 kHz, with the weights in the package silero-vad.

Its files cannot be served in batches: in the ONNX files, the batch is the second dimension of the recurrent state, and
the file for sequences takes one stream. So this module has the layers of the package's default model, for many streams
and several windows of each. The weights are those of that model; the package's .safetensors file has others.
"""

import importlib.util
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.functional import pad

from speech.state import UNITS

_MIRRORED: Final = 64
"""Samples that are added at the end of a window."""


def detector() -> nn.Module:
    """How likely windows of several streams have speech: see `_Detector.forward`."""
    model = _Detector()
    model.load_state_dict(_weights())
    return model


def packaged() -> Path:
    """The files of the package's models."""
    package = importlib.util.find_spec("silero_vad")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "the package silero-vad is missing here; install it: pip install --no-deps silero-vad"
        )
    return Path(package.origin).parent / "data"


class _Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.encoder = nn.Sequential(
            *(nn.Conv1d(129, 128, 3, padding=1), nn.ReLU()),
            *(nn.Conv1d(128, 64, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv1d(64, 64, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv1d(64, 128, 3, padding=1), nn.ReLU()),
        )
        self.recurrent = nn.LSTM(UNITS, UNITS, batch_first=True)
        self.last = nn.Linear(UNITS, 1)

    def forward(self, windows: torch.Tensor, state: torch.Tensor) -> dict[str, torch.Tensor]:
        """The probabilities `[batch, windows]` of speech, and the state after the last window.

        `windows` `[batch, windows, 576]` are samples from -1 to 1. The first 64 of a window are the last ones of the
        window before. `state` `[batch, 2, 128]` is that after the windows before, 0 at the start of a stream.
        """
        count, samples = windows.shape[1:]
        waves = self.spectrum(pad(windows.reshape(-1, 1, samples), (0, _MIRRORED), "reflect"))
        real, imaginary = waves[:, :129], waves[:, 129:]
        encoded = self.encoder((real**2 + imaginary**2).sqrt()).reshape(-1, count, UNITS)
        hidden, cell = state.transpose(0, 1).contiguous()
        outputs, (hidden, cell) = self.recurrent(encoded, (hidden[None], cell[None]))
        return {
            "probabilities": self.last(outputs.relu()).sigmoid().squeeze(2),
            "state": torch.cat((hidden, cell)).transpose(0, 1),
        }


def _weights() -> dict[str, torch.Tensor]:
    """The weights of the package's default model by the names that they have here."""
    script: Any = torch.jit.load(str(packaged() / "silero_vad.jit"), map_location="cpu")  # type: ignore[no-untyped-call]
    found = script._model.state_dict()
    last = {"weight": found["decoder.decoder.2.weight"].squeeze(2), "bias": found["decoder.decoder.2.bias"]}
    convolutions = {
        f"encoder.{2 * i}.{name}": found[f"encoder.{i}.reparam_conv.{name}"]
        for i in range(4)
        for name in ("weight", "bias")
    }
    recurrent = {
        f"recurrent.{name}_l0": found[f"decoder.rnn.{name}"]
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    return {
        "spectrum.weight": found["stft.forward_basis_buffer"],
        **convolutions,
        **recurrent,
        **{f"last.{name}": tensor for name, tensor in last.items()},
    }
