"""Numbers over a frame: the step, the return so far and Q of the action about to be taken."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from caql.extras import needed_for
from caql.playing.episodes import Moment

if TYPE_CHECKING:
    from PIL import Image

INK, FAINT, SHADE = (255, 255, 255, 255), (255, 255, 255, 150), (12, 18, 26, 170)
CURVE = (122, 214, 190, 255)


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def resized(frame: np.ndarray, width: int | None) -> Image.Image:
    """The frame as an image, of another width if one is given, its sides even as video codecs want them."""
    with needed_for("a picture"):
        from PIL import Image
    image = Image.fromarray(frame)
    wide = width or image.width
    size = max(2, wide // 2 * 2), max(2, round(image.height * wide / image.width) // 2 * 2)
    return image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)


def write_numbers(image: Image.Image, moment: Moment, worth: list[float]) -> Image.Image:
    """The image with a band at its foot: step, return and, where there are some, Q with its curve so far.

    worth: Q of each step up to this one; empty for agents without a Q to show.
    """
    from PIL import Image, ImageDraw

    size = max(9, image.height // 22)
    tall, margin = round(2.1 * size), round(0.7 * size)
    layer = Image.new("RGBA", image.size, (0, 0, 0, 0))
    pen = ImageDraw.Draw(layer)
    top = image.height - tall
    pen.rectangle((0, top, image.width, image.height), fill=SHADE)
    left = float(margin)
    shown = [("step", f"{moment.step}"), ("return", f"{moment.total:.1f}")]
    shown += [("Q", f"{worth[-1]:.1f}")] if worth else []
    middle = top + tall / 2
    for name, value in shown:
        for text, colour in ((f"{name} ", FAINT), (value, INK)):
            pen.text((left, middle), text, font=_font(size), fill=colour, anchor="lm")
            left += pen.textlength(text, font=_font(size))
        left += 1.2 * size
    room = image.width - margin - left
    if len(worth) > 1 and room > 3 * size:
        low, high = min(worth), max(worth)
        across = np.linspace(left, image.width - margin, len(worth))
        share = (np.asarray(worth) - low) / max(high - low, 1e-9)
        points = list(zip(across.tolist(), (middle + (0.5 - share) * 1.2 * size).tolist(), strict=True))
        pen.line(points, fill=CURVE, width=max(1, size // 8), joint="curve")
    return Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB")
