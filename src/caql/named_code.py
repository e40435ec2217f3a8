"""What `MODULE:NAME` stands for: code that the user names, such as an action set or an encoder."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from caql.errors import CaqlError


def import_named(argument: str, name: str, what: str) -> Any:
    """The object that `module:name` stands for; the module is imported.

    The present folder counts as a place for modules, after all others.
    argument, what: for the sentence of a `CaqlError`: which argument it is and what it may be.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise CaqlError(f"{argument} = {name!r} must be {what}")
    here = os.getcwd()
    sys.path.append(here)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as problem:  # a module may raise anything while it is imported
        raise CaqlError(f"{argument} = {name!r} cannot be imported: {type(problem).__name__}: {problem}") from problem
    finally:
        sys.path.remove(here)
    return found
