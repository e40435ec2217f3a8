"""The one exception that users are meant to see, and the one warning.

Every rejected input raises `CaqlError` with a single sentence that names the argument, the value it
had and what would be right.  The command line prints that sentence and exits with status 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CaqlError(ValueError):
    """Bad input, or a run that cannot go on; the message is the whole explanation."""


class CaqlWarning(UserWarning):
    """An answer that is less than was asked for, such as a search that stopped at a limit."""


def require(settings: object, field: str, right: str, valid: bool) -> None:
    """Reject a setting in one sentence: the field, the value it has and what would be `right`."""
    if not valid:
        raise CaqlError(f"{field} = {getattr(settings, field)!r} must be {right}")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest known one, then all of them."""
    names = list(known)
    by_lower = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    return f"{hint}known: {', '.join(names)}"
