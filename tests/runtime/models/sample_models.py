"""Entrypoints of tests: a model that works, and models that fail in every way."""

from os.path import join as borrowed  # noqa: F401 - an entrypoint names it, which is not made here

import torch


class Residuals(torch.nn.Module):
    """Convolutions with shortcuts, and two outputs, one of which is ready early."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.body = torch.nn.ModuleList(torch.nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = torch.nn.Linear(width, 4)

    def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.stem(pixels).relu()
        brightness = features.mean((1, 2, 3))
        for convolution in self.body:
            features = features + convolution(features).relu_()
        return {"scores": self.head(features.mean((2, 3))), "brightness": brightness}


class Typed(torch.nn.Module):
    """Computes with numbers of any type, and also answers with them as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.second(self.first(values.to(torch.float32))), values


class Branching(torch.nn.Module):
    """Its control flow depends on the data, so it cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3 * 16 * 16, 2)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(pixels.flatten(1))
        return scores if scores.sum() > 0 else -scores


class Answers(torch.nn.Module):
    """Applies a function to the input."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.calls = 0

    def forward(self, pixels: torch.Tensor) -> object:
        match self.kind:
            case "nan":
                return pixels.mean((1, 2, 3)) / 0.0 * 0.0
            case "no tensor":
                return {"label": "cat"}
            case "no batch":
                return pixels.mean((0, 1))
            case "complex":
                return torch.fft.fft(pixels.flatten(1))
            case "noise":
                return pixels + torch.rand_like(pixels)
            case "large":
                unit = torch.eye(pixels[0].numel())
                large = torch.nn.functional.linear(pixels.flatten(1) * 1e6, unit)
                return torch.nn.functional.linear(large, unit)
        raise ValueError(self.kind)


def residuals(width: int = 8, depth: int = 6) -> torch.nn.Module:
    """Works, always with the same weights."""
    torch.manual_seed(7)
    return Residuals(width, depth)


def typed() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Typed()


def branching() -> torch.nn.Module:
    """Works, and cannot be captured."""
    torch.manual_seed(7)
    return Branching()


def answers(kind: str) -> torch.nn.Module:
    """Answers with something that cannot be served."""
    return Answers(kind)


def raises() -> torch.nn.Module:
    """Cannot be made."""
    raise RuntimeError("no weights here")


def no_model() -> str:
    """Not a model."""
    return "a string"


NOT_CALLABLE = 3
