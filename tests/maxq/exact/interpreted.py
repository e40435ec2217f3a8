"""The solver's compiled functions as plain Python, for tests that look inside: nothing has to be compiled.

`interpreted.node.evaluate` and the rest are the same source, imported a second time with decorators that do nothing.
"""

import importlib
import sys
import time
import types

import numpy as np

PACKAGE = "caql.maxq.exact"


def _stand_in() -> types.ModuleType:
    """In place of `compilation`."""
    module = types.ModuleType(f"{PACKAGE}.compilation")
    module.NATURAL = 0x7FFFFFFF
    module.seconds = time.monotonic
    module.is_finite = np.isfinite
    module.__getattr__ = lambda name: lambda function: function
    return module


def _import_again() -> dict[str, types.ModuleType]:
    """`search` and all that it imports, in modules of their own; those in use are left as they were."""
    package = importlib.import_module(PACKAGE)
    in_use = {name: module for name, module in sys.modules.items() if name.startswith(f"{PACKAGE}.")}
    attributes = dict(vars(package))
    for name in in_use:
        del sys.modules[name]
    sys.modules[f"{PACKAGE}.compilation"] = _stand_in()
    try:
        importlib.import_module(f"{PACKAGE}.search")
        return {name: module for name, module in sys.modules.items() if name.startswith(f"{PACKAGE}.")}
    finally:
        for name in [name for name in sys.modules if name.startswith(f"{PACKAGE}.")]:
            del sys.modules[name]
        sys.modules.update(in_use)
        for name in set(vars(package)) - set(attributes):
            delattr(package, name)
        vars(package).update(attributes)


_modules = _import_again()
NAMES = (
    "relaxation",
    "rows",
    "tightening",
    "presolve",
    "pivoting",
    "simplex",
    "limits",
    "tangent",
    "facets",
    "workspace",
    "tangent_bound",
    "written_rows",
    "tableau",
    "branching",
    "node",
    "open_nodes",
    "tree",
    "parts",
    "search",
)
(
    relaxation,
    rows,
    tightening,
    presolve,
    pivoting,
    simplex,
    limits,
    tangent,
    facets,
    workspace,
    tangent_bound,
    written_rows,
    tableau,
    branching,
    node,
    open_nodes,
    tree,
    parts,
    search,
) = (_modules[f"{PACKAGE}.{name}"] for name in NAMES)


def begin(network, row, low, high):
    """A state presolved into the root node of a new workspace: (neurons, actions, workspace, value, rounding error)."""
    weights = np.asarray(network.action_weights, np.float64)
    sizes = np.array(
        [*weights.shape, *(w.shape[1] for w, _ in network.later[:-1])] if network.later else [len(weights)]
    )
    flat = np.concatenate([weights.ravel(), *(part.ravel() for layer in network.later for part in layer)])
    stack = presolve.Stack(sizes, flat, np.asarray(network.first_bias, np.float64))
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    space = workspace.make_workspace(
        len(low), 0, int(sizes[1:].sum()), int(max(sizes[1:], default=1)), np.zeros(1, np.int64)
    )
    nothing = np.empty(0)
    region = rows.Region(len(low), low, high, np.empty((0, len(low))), nothing, nothing, np.zeros(len(low)))
    n, value, rounding = node.begin(presolve.Case(stack, row, region), 0.5 * (low + high), space)
    return n, len(low), space, value, rounding


def explore(space, n, value, limits, queue):
    """A whole search from the root node, with a queue that grows: (the queue in the end, what was found)."""
    progress, found = tree.explore(space, n, limits, queue, tree.outset(value))
    while found.status == tree.FULL:
        queue = open_nodes.grow(n, space.node.low.size, queue)
        progress, found = tree.explore(space, n, limits, queue, progress)
    return queue, found
