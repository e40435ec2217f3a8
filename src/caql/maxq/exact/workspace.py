"""The arrays that one thread searches in, made once for a batch and used again for every state and node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import allocating
from caql.maxq.exact.facets import Facets
from caql.maxq.exact.pivoting import KINDS, Tableau
from caql.maxq.exact.presolve import Affine, Presolve
from caql.maxq.exact.relaxation import Compact, Floats, Integers, Node, Planes, Scratch
from caql.maxq.exact.rows import Scaling
from caql.maxq.exact.tangent import LANES, Tangent


class Search(NamedTuple):
    """A point, its activations and pre-activations, the best point so far, and what the children of a node need."""

    point: Floats
    active: Floats
    pre: Floats
    best: Floats
    saved: Floats
    shared: Floats
    split: Floats
    gains: Floats
    """By action, what halving its side promises."""
    corners: Floats
    """(2, d): the part of the box at hand, in the user's units."""
    trial: Floats
    parent: Floats
    """(1,): the bound of the node that the one at hand was split from."""


class Workspace(NamedTuple):
    """All the arrays that a thread works in."""

    net: Compact
    node: Node
    scratch: Scratch
    tab: Tableau
    presolve: Presolve
    search: Search
    scaling: Scaling
    tangent: Tangent
    facets: Facets


@allocating
def make_tableau(d: int, n: int, stop: Integers) -> Tableau:
    """The arrays of a tableau of d actions and at most n neurons."""
    columns, rows, variables = d + n, (KINDS - 1) * n + 2, d + KINDS * n + 1
    return Tableau(
        np.empty((rows + 1, (columns + 4) // 4 * 4)),
        np.empty(rows, np.int64),
        np.empty(columns + 1, np.int64),
        np.empty(rows),
        np.empty(columns + 1),
        np.empty(columns + 1),
        np.empty(variables),
        np.empty(variables),
        np.empty(rows),
        np.empty(rows),
        np.empty(variables),
        np.empty(n + 1, np.int64),
        np.empty(columns + 5),
        np.empty(columns + 1, np.int64),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.int64),
        np.empty((d + 1, n)),
        np.empty(n, np.int64),
        np.zeros(1, np.int64),
        np.empty(columns + 1, np.int64),
        np.empty(columns + 5),
        np.empty(columns + 1),
        np.empty(columns + 1),
        np.empty(n),
        np.empty(variables, np.int64),
        stop,
    )


@allocating
def make_workspace(variables: int, rows: int, neurons: int, widest: int, stop: Integers) -> Workspace:
    """Arrays for action sets of so many variables and rows and networks of at most so many neurons.

    A non-zero `stop[0]` ends the search.
    """
    d, n, w = variables, rows + neurons, rows + widest
    columns = d + n
    net = Compact(
        np.empty((n + 1, columns)),
        np.empty((columns, n + 1)),
        np.empty(n + 1),
        np.empty(n + 1),
        np.empty(n + 1, np.int64),
        np.zeros(2, np.int64),
    )
    node = Node(
        np.empty(d),
        np.empty(d),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n + d, np.int8),
        np.zeros(n),
        np.empty(d),
        np.zeros((d + 1, n)),
    )
    scratch = Scratch(np.empty(columns + 1), np.empty(n), np.empty(n, np.int8))
    planes = Planes(np.empty((columns, 2 * w)), np.empty(2 * w), np.empty(2 * w), np.empty(2 * w))
    presolve = Presolve(
        Affine(np.empty((columns, w)), np.empty(w), np.empty(w), np.empty(w)),
        Affine(np.empty((columns, w)), np.empty(w), np.empty(w), np.empty(w)),
        np.empty(columns),
        planes,
    )
    search = Search(
        np.empty(d),
        np.empty(n + 1),
        np.empty(n + 1),
        np.empty(d),
        np.empty(n),
        np.empty(n),
        np.empty(4),
        np.empty(d),
        np.empty((2, d)),
        np.empty(d),
        np.empty(1),
    )
    scaling = Scaling(
        np.empty(d),
        np.empty(d),
        np.empty(d),
        np.empty(d),
        np.empty(d),
        np.empty(rows),
        np.empty(rows),
        np.zeros(2, np.int64),
    )
    lanes = (d + LANES) // LANES * LANES
    tangent = Tangent(
        np.zeros((2 * n + 1, lanes)),
        np.empty(d),
        np.empty(d),
        np.empty(d, np.int64),
        np.empty(lanes),
        np.empty(lanes),
    )
    facets = Facets(
        np.empty(2 * d, np.int64),
        np.empty(2 * d),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.zeros((d + 1, n)),
    )
    return Workspace(net, node, scratch, make_tableau(d, n, stop), presolve, search, scaling, tangent, facets)
