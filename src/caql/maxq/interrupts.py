"""Ctrl-C while the main thread is inside a long call that is not Python's.

Python notes the signal at once but acts on it only when the call returns, which for one hard state may take a minute.
It can, however, write the signal's number to a socket as it comes in (`signal.set_wakeup_fd`).  A thread that
waits at the other end then tells the search to stop, and the call returns what it knows.  A call that nobody
interrupts costs two changes of that socket, a few microseconds.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from functools import cache
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a search; `solution` is the `Solution` as far as it was known, with status LIMIT where open."""

    def __init__(self, solution: Any) -> None:
        super().__init__("the search was interrupted")
        self.solution = solution


class _Watch:
    """The thread and its socket."""

    def __init__(self) -> None:
        self.stop: Callable[[], object] | None = None
        self.previous = -1
        self.reader, self.writer = socket.socketpair()
        self.writer.setblocking(False)
        self.descriptor = self.writer.fileno()
        threading.Thread(target=self._run, name="caql-interrupts", daemon=True).start()

    def _run(self) -> None:
        while True:
            numbers = self.reader.recv(64)
            stop, previous = self.stop, self.previous
            if stop is not None and signal.SIGINT in numbers and _raises():
                stop()
            if previous >= 0:  # whoever listened before, such as an event loop, still hears of it
                os.write(previous, numbers)


def _raises() -> bool:
    """Whether Ctrl-C means `KeyboardInterrupt`."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


@cache
def _watch(process: int) -> _Watch:  # noqa: ARG001 - a forked process has no thread, and needs its own
    return _Watch()


class interruptible:
    """A context in which Ctrl-C calls `stop`, in another thread, and sets `interrupted` instead of raising.

        with interruptible(search.stop) as attempt:
            search.run()
        if attempt.interrupted: ...

    Only in the main thread, and only while Ctrl-C means `KeyboardInterrupt`: a program that has its own handler, as
    a training run has, decides by itself when to stop.
    """

    def __init__(self, stop: Callable[[], object]) -> None:
        self.stop = stop
        self.interrupted = False
        self.watch: _Watch | None = None

    @property
    def listening(self) -> bool:
        """Whether Ctrl-C would call `stop`."""
        return self.watch is not None and _raises()

    def _stop(self) -> None:
        # Some libraries have a handler of their own, and Python never hears of the signal.
        self.interrupted = True
        self.stop()

    def __enter__(self) -> interruptible:
        if threading.current_thread() is not threading.main_thread():
            return self
        watch = _watch(os.getpid())
        watch.stop = self._stop
        previous = signal.set_wakeup_fd(watch.descriptor, warn_on_full_buffer=False)
        watch.previous = -1 if previous == watch.descriptor else previous
        self.watch = watch
        return self

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> bool:
        if self.watch is None:
            return False
        signal.set_wakeup_fd(self.watch.previous, warn_on_full_buffer=False)
        self.watch.stop = None
        if kind is not KeyboardInterrupt or not _raises():
            return False
        self.interrupted = True
        return True
