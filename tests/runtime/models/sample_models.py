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


class Encoder(torch.nn.Module):
    """A small encoder of texts. A token that the mask leaves out changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            vocab_size=50,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=16,
        )
        self.encoder = BertModel(config)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        answer = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
        return answer.last_hidden_state, answer.pooler_output


class Late(torch.nn.Module):
    """Needs one of its inputs at its end only."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))

    def forward(self, values: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            values = layer(values)
        return values + shift


class Halves(torch.nn.Module):
    """Answers with both inputs of `late`, and with something before them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))

    def forward(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        shift = values.sum(1, keepdim=True).to(torch.int16)
        for layer in self.layers:
            values = layer(values)
        return {"total": values.sum(1), "shift": shift, "values": values}


class Scored(torch.nn.Module):
    """Its control flow depends on the data, so it is one block. `input` has the name of a function of Python."""

    def forward(self, input: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return input * scale if scale.sum() > 0 else input - scale


class Uncut(torch.nn.Module):
    """Its control flow depends on the data, and it answers with a mapping of different things."""

    def forward(self, values: torch.Tensor) -> dict[str, object]:
        difference = values - 1 if values.sum() > 0 else values + 1
        return {"difference": difference, "count": 3, "pair": (values, -values)}


class Branching(torch.nn.Module):
    """Its control flow depends on the data, so it cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3 * 16 * 16, 2)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(pixels.flatten(1))
        return scores if scores.sum() > 0 else -scores


class Counting(torch.nn.Module):
    """Writes to its buffer, and its control flow depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: torch.Tensor
        self.register_buffer("batches", torch.zeros(1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.batches += 1 if pixels.sum() > 0 else 2
        return pixels.mean((1, 2, 3))[:, None] * 0 + self.batches


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


def encoder() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Encoder().eval()


def late() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Late()


def halves() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Halves()


def scored() -> torch.nn.Module:
    return Scored()


def uncut() -> torch.nn.Module:
    return Uncut()


def branching() -> torch.nn.Module:
    """Works, and cannot be captured."""
    torch.manual_seed(7)
    return Branching()


def counting() -> torch.nn.Module:
    return Counting()


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
