"""Pictures with text, rendered with the font of Pillow, so nothing is downloaded.

python -m ocr.pictures FOLDER    # writes one picture of each kind
"""

import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

TEXT: Final = (
    "the quick brown fox jumps over a lazy dog and reads invoice total amount due order number street city page figure "
    "table shipping address customer service Monday Friday Berlin London 42.50 EUR 17:30 2024 No. 1203 info@example.com"
)
WORDS: Final = TEXT.split()


@dataclass(frozen=True)
class Layout:
    """How a picture looks."""

    width: int
    height: int
    lines: int
    words: int
    """Words in a line."""
    size: int
    """Height of the letters in pixels."""
    angle: int = 0
    """Degrees by which the picture is turned counterclockwise."""
    paper: tuple[int, int, int] = (255, 255, 255)
    ink: tuple[int, int, int] = (0, 0, 0)
    noise: float = 0
    """Standard deviation of the brightness of pixels."""


LAYOUTS: Final[Mapping[str, Layout]] = {
    "note": Layout(320, 120, lines=3, words=4, size=18),
    "screen": Layout(640, 360, lines=6, words=6, size=28),
    "upside-down": Layout(640, 360, lines=5, words=6, size=28, angle=180),
    "receipt": Layout(480, 800, lines=14, words=5, size=24),
    "line": Layout(1600, 120, lines=1, words=22, size=28),
    "strip": Layout(2000, 60, lines=1, words=28, size=26),
    "night": Layout(800, 600, lines=8, words=6, size=32, paper=(20, 30, 60), ink=(240, 220, 80)),
    "tilted": Layout(800, 500, lines=5, words=6, size=30, angle=6),
    "noisy": Layout(700, 500, lines=6, words=5, size=32, noise=20),
    "sideways": Layout(600, 400, lines=4, words=5, size=30, angle=90),
    "page": Layout(1200, 1700, lines=30, words=9, size=34),
    "photo": Layout(3000, 2000, lines=12, words=7, size=100),
    "empty": Layout(500, 400, lines=0, words=0, size=20),
}

SMALL: Final = tuple(name for name, layout in LAYOUTS.items() if layout.width * layout.height < 1_000_000)
"""All kinds but the largest."""


@dataclass(frozen=True)
class Rendered:
    """A picture and what it says."""

    picture: Image.Image
    lines: tuple[str, ...]
    """From top to bottom, before the picture was turned."""

    @property
    def png(self) -> bytes:
        """The encoded picture."""
        file = io.BytesIO()
        self.picture.save(file, "PNG")
        return file.getvalue()


def rendered(layout: Layout, seed: int = 0) -> Rendered:
    """A picture of random words, the same for the same seed."""
    generator = np.random.default_rng(seed)
    lines = tuple(" ".join(generator.choice(WORDS, layout.words)) for _ in range(layout.lines))
    picture = Image.new("RGB", (layout.width, layout.height), layout.paper)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(layout.size)
    for number, line in enumerate(lines):
        draw.text((10, layout.size * (0.4 + 1.5 * number)), line, font=font, fill=layout.ink)
    if layout.angle:
        picture = picture.rotate(layout.angle, expand=True, fillcolor=layout.paper)
    return Rendered(_with_noise(picture, layout.noise, generator), lines)


def pictures(count: int, seed: int = 0, kinds: Sequence[str] = SMALL) -> NDArray[np.object_]:
    """`count` encoded pictures `[count, 1]` of these kinds in turn, the same for the same seed."""
    layouts = [LAYOUTS[kind] for kind in kinds]
    encoded = np.empty((count, 1), np.object_)
    for i in range(count):
        encoded[i, 0] = rendered(layouts[i % len(layouts)], seed + i).png
    return encoded


def _with_noise(picture: Image.Image, deviation: float, generator: np.random.Generator) -> Image.Image:
    if not deviation:
        return picture
    pixels = np.asarray(picture) + generator.normal(0, deviation, (*picture.size[::-1], 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, layout in LAYOUTS.items():
        (folder / f"{name}.png").write_bytes(rendered(layout).png)
