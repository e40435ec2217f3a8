"""Writing results to the standard output, which may be full or closed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from caql.errors import CaqlError


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Print inside; what cannot be written is one sentence, not a traceback at the interpreter's end."""
    # Python starts with no such object when the shell closed the descriptor (`>&-`).
    if sys.stdout is None:
        raise CaqlError("the standard output is closed; there is nowhere to write the results")
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        # The buffer's rest would fail once more when the interpreter ends.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CaqlError(f"the results cannot be written to the standard output: {problem.strerror}") from problem
