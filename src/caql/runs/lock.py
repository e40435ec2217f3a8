"""One process at a time: a lock that the system gives back however its holder ends, even by kill -9."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
"""How a file system says that it cannot lock, as some network file systems cannot."""


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold the lock of an existing file or folder; True if it is ours, False if another process has it.

    Where the file system has no locks it is always ours: training there is as safe as it can be.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield _taken(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno not in WITHOUT_LOCKS:
            raise
    return True
