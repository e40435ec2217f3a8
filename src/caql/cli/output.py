"""The standard output, which may be full or closed, and whatever else the system may refuse a command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from caql.errors import CaqlError


def require_output() -> None:
    """Refuse to work for nothing: Python has no standard output if the shell closed it (`>&-`)."""
    if sys.stdout is None:
        raise CaqlError("the standard output is closed; there is nowhere to write the results")


@contextlib.contextmanager
def system_errors() -> Iterator[None]:
    """Run a command inside; what the system refuses is one sentence, not a traceback at the interpreter's end."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        # The buffer's rest would fail once more when the interpreter ends.
        with contextlib.suppress(OSError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        what = "the output cannot be written" if problem.filename is None else f"{problem.filename} cannot be used"
        raise CaqlError(f"{what}: {problem.strerror or problem}") from problem
