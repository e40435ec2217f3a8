"""Several critics as one ReLU network: their mean, or their minimum, so that its maximum is a max-Q problem like any.

Hidden layers stand side by side (block-diagonal weights), which leaves the k values as linear functions of the last of
them.  The mean of those is linear too.  The minimum of two takes one more hidden layer:

    min(q1, q2) = q2 - (q2 - q1)+ = - relu(q2 - q1) + relu(q2) - relu(-q2)

Of more than two, the minima of pairs are taken again, layer by layer; one that has no partner is carried on as
q = relu(q) - relu(-q).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from caql.errors import CaqlError
from caql.networks import Layers

Combine = Literal["min", "mean"]

_PAIR_IN, _PAIR_OUT = np.array([[-1, 0, 0], [1, 1, -1]]), np.array([[-1], [1], [-1]])
_ALONE_IN, _ALONE_OUT = np.array([[1, -1]]), np.array([[1], [-1]])


def combined(networks: Sequence[Layers], combine: Combine = "min") -> Layers:
    """The minimum or the mean of networks with one output each, as the layers of one network.

    networks: of JAX or NumPy arrays, with the same inputs and the same number of layers; widths may differ.
    Raises `CaqlError` if they do not fit together.
    """
    _check(networks, combine)
    if len(networks) == 1:
        return tuple(networks[0])
    xp: Any = jnp if isinstance(networks[0][0][0], jax.Array) else np
    layers = []
    for depth, parts in enumerate(zip(*networks, strict=True)):
        weights = [weights for weights, _ in parts]
        joined = xp.concatenate(weights, axis=1) if depth == 0 else _block_diagonal(xp, weights)
        layers.append((joined, xp.concatenate([bias for _, bias in parts])))
    weights, bias = layers.pop()
    if combine == "mean":
        return (*layers, (weights.mean(axis=1, keepdims=True), bias.mean(keepdims=True)))
    while (count := bias.shape[0]) > 1:
        into, out = _pairwise_minimum(count)
        into, out = into.astype(weights.dtype), out.astype(weights.dtype)
        layers.append((weights @ into, bias @ into))
        weights, bias = xp.asarray(out), xp.zeros(out.shape[1], weights.dtype)
    return (*layers, (weights, bias))


def _check(networks: Sequence[Layers], combine: str) -> None:
    if not networks:
        raise CaqlError("networks is empty; give at least one network to combine")
    if combine not in ("min", "mean"):
        raise CaqlError(f"combine = {combine!r} must be 'min' or 'mean'")
    shapes = [(np.shape(each[0][0])[0], len(each), np.shape(each[-1][1])[0]) for each in networks]
    for index, shape in enumerate(shapes):
        if shape[2] != 1 or shape != shapes[0]:
            raise CaqlError(
                f"networks[{index}] has {shape[0]} inputs, {shape[1]} layers and {shape[2]} outputs; each must have "
                f"the {shapes[0][0]} inputs and {shapes[0][1]} layers of the first, and one output"
            )


def _block_diagonal(xp: Any, blocks: Sequence[Any]) -> Any:
    """The blocks along the diagonal, zeros elsewhere."""

    def row(block: Any, place: int) -> Any:
        parts = [xp.zeros((block.shape[0], other.shape[1]), block.dtype) for other in blocks]
        return xp.concatenate([*parts[:place], block, *parts[place + 1 :]], axis=1)

    return xp.concatenate([row(block, place) for place, block in enumerate(blocks)])


def _pairwise_minimum(count: int) -> tuple[Any, Any]:
    """From `count` values to the units of a hidden layer, and from those to the minima of neighbours."""
    pairs, alone = divmod(count, 2)
    into = [_PAIR_IN] * pairs + [_ALONE_IN] * alone
    out = [_PAIR_OUT] * pairs + [_ALONE_OUT] * alone
    return _block_diagonal(np, into), _block_diagonal(np, out)
