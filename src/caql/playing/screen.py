"""Whether there is a screen, and what MuJoCo and SDL must be told where there is none.

Both read their environment variables when they are first imported, so `prepare` comes before any environment.
Without a screen MuJoCo draws through OSMesa (in software) or EGL, whichever the machine has, and SDL, which draws
Gymnasium's classic control, into memory.
"""

from __future__ import annotations

import ctypes.util
import os
import sys

OFF_SCREEN = (("osmesa", "OSMesa"), ("egl", "EGL"))
"""MuJoCo's names for the libraries that need no screen, and the libraries'."""


def has_screen() -> bool:
    """Whether a window could be opened."""
    return sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def prepare() -> None:
    """Choose how to draw, where the user has not; call it before an environment is made."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if has_screen():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    found = next((name for name, library in OFF_SCREEN if ctypes.util.find_library(library)), None)
    if found is not None:
        os.environ.setdefault("MUJOCO_GL", found)
