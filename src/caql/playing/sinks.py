"""Where frames go: a window, an .mp4 or a .gif.

A sink is a context manager that is given one image after the other and says whether it wants more.  Files are written
beside their final name and moved there at the end, so that a stopped command leaves no broken video.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from caql.errors import CaqlError
from caql.extras import needed_for

if TYPE_CHECKING:
    from PIL import Image

FASTEST = {".gif": 25.0, ".mp4": 60.0}
"""Frames a second: more of them make a file larger and nothing smoother; browsers play no GIF much faster."""
SUFFIXES = tuple(FASTEST)
PALETTE, CHOOSING = 255, 12
"""Colours of a GIF, and the frames that they are chosen from."""


class Sink(Protocol):
    """Takes the images of an episode in their order."""

    fastest: float

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, image: Image.Image, rate: float) -> bool:
        """Take one image, of a film with `rate` images a second; False if no more are wanted."""
        ...


class _File:
    """What both files share: the name they have until they are whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.fastest = path, FASTEST[path.suffix.lower()]
        self.partial = path.with_name(f".{path.stem}.partial{path.suffix.lower()}")

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.partial.touch()  # a folder that cannot be written is named before any work
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
                os.replace(self.partial, self.path)
        finally:
            self.partial.unlink(missing_ok=True)

    def finish(self) -> None:
        """Write what is left to write."""


class GifFile(_File):
    """All frames in one palette, which is chosen from the first few and keeps still parts still."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.first: list[Image.Image] = []
        self.palette: Image.Image | None = None
        self.images: list[Image.Image] = []
        self.rate = 1.0

    def show(self, image: Image.Image, rate: float) -> bool:
        self.rate = rate
        if self.palette is None:
            self.first.append(image)
            if len(self.first) == CHOOSING:
                self._choose()
        else:
            self._add(image)
        return True

    def _choose(self) -> None:
        from PIL import Image

        wide, tall = self.first[0].size
        together = Image.new("RGB", (wide, tall * len(self.first)))
        for index, image in enumerate(self.first):
            together.paste(image, (0, index * tall))
        # Small things of their own colour, such as a mark or a number, must keep it.
        self.palette = together.quantize(PALETTE, method=Image.Quantize.MAXCOVERAGE)
        for image in self.first:
            self._add(image)

    def _add(self, image: Image.Image) -> None:
        from PIL import Image

        self.images.append(image.quantize(palette=self.palette, dither=Image.Dither.NONE))

    def finish(self) -> None:
        if self.palette is None:
            self._choose()
        # A GIF counts in hundredths of a second.
        pause = 10 * max(2, round(100 / self.rate))
        first, *rest = self.images
        first.save(self.partial, save_all=True, append_images=rest, duration=pause, loop=0, optimize=False)


class Mp4File(_File):
    """H.264 by the ffmpeg that imageio-ffmpeg brings."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with needed_for(f"--video {path}"):
            self.ffmpeg: Any = importlib.import_module("imageio_ffmpeg")
        self.writer: Any = None

    def show(self, image: Image.Image, rate: float) -> bool:
        if self.writer is None:
            self.writer = self.ffmpeg.write_frames(
                str(self.partial), image.size, fps=rate, macro_block_size=2, ffmpeg_log_level="error"
            )
            with warnings.catch_warnings():
                # JAX warns of any fork; this one becomes ffmpeg at once.
                warnings.simplefilter("ignore", RuntimeWarning)
                self.writer.send(None)
        self.writer.send(image.tobytes())
        return True

    def finish(self) -> None:
        if self.writer is not None:
            self.writer.close()


class Window:
    """A window; Esc, q or closing it ends the show, the space bar holds it."""

    fastest = 60.0

    def __init__(self, title: str) -> None:
        with needed_for("a window"):
            self.pygame: Any = importlib.import_module("pygame")
        self.title = title
        self.surface: Any = None
        self.due = 0.0

    def __enter__(self) -> Self:
        self.pygame.display.init()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pygame.display.quit()

    def show(self, image: Image.Image, rate: float) -> bool:
        if self.surface is None:
            self.surface = self.pygame.display.set_mode(image.size)
            self.pygame.display.set_caption(self.title)
            self.due = time.monotonic()
        self.surface.blit(self.pygame.image.frombytes(image.tobytes(), image.size, "RGB"), (0, 0))
        self.pygame.display.flip()
        self.due = max(self.due + 1 / rate, time.monotonic() - 1 / rate)
        held = False
        while held or time.monotonic() < self.due:
            for event in self.pygame.event.get():
                key = event.key if event.type == self.pygame.KEYDOWN else None
                if event.type == self.pygame.QUIT or key in (self.pygame.K_ESCAPE, self.pygame.K_q):
                    return False
                held ^= key == self.pygame.K_SPACE
            time.sleep(0.005)
        return True


def file_sink(path: Path) -> Sink:
    """The file that a name's suffix asks for; `CaqlError` for any other."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise CaqlError(f"video = {path} must end in {' or '.join(SUFFIXES)}")
    return GifFile(path) if suffix == ".gif" else Mp4File(path)
