"""Radial squashing: an actor's output sent onto a set by a gauge, so that no two outputs share an action.

With u = tanh(raw), a point of the unit cube, and c a point inside the set,

    a = c + v |u|_inf / gauge(v),    v = radius * u,    gauge(v) = the smallest t > 0 with c + v / t in the set

The cube's shells go onto the set's shells around c (the gauge map of Tabas and Zhang, 2022): the edge of the set is
reached only in the limit, and the gradient dies nowhere before it.  The functions use only what JAX and NumPy share.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from caql.actions import ActionSet
from caql.errors import CaqlError

PULL = 0.25
"""The point inside is sought where every row and bound is a quarter of the way from its edge to its far end."""
TINY = 1e-12


def require_radial(form: ActionSet) -> None:
    """Raise `CaqlError` unless sets of this form can be squashed onto radially."""
    equal = bool(np.any(np.asarray(form.row_low) == np.asarray(form.row_high)))
    if form.integer or form.auxiliary_low.shape[-1] or equal:
        raise CaqlError(
            "squash = 'radial' needs a set of inequalities in the actions alone; this one has equalities, auxiliary "
            "variables or whole numbers: take squash = 'tanh'"
        )


def radial(action_set: ActionSet, box: ActionSet, raw: Any) -> Any:
    """Any real vectors (B, d) sent onto their states' sets, shared or (B, ...); `box` is the actor's."""
    xp: Any = jnp if isinstance(raw, jax.Array) else np
    centre = _inner_point(action_set, box, raw)
    unit = xp.tanh(raw)
    way = box.radius * unit
    gauge = xp.max(_shares(xp, action_set, centre, way), axis=-1, keepdims=True)
    shell = xp.max(xp.abs(unit), axis=-1, keepdims=True)
    return centre + way * (shell / xp.maximum(gauge, TINY))


def _inner_point(action_set: ActionSet, box: ActionSet, raw: Any) -> Any:
    """A point well inside the set: the closest to the box's centre where rows and bounds are pulled in."""
    xp: Any = jnp if isinstance(raw, jax.Array) else np
    ends = [action_set.rows * side[..., None, :] for side in (action_set.low, action_set.high)]
    least, most = xp.minimum(*ends).sum(axis=-1), xp.maximum(*ends).sum(axis=-1)
    width = action_set.high - action_set.low
    low, high = xp.maximum(action_set.row_low, least), xp.minimum(action_set.row_high, most)
    pulled = replace(
        action_set,
        low=action_set.low + PULL * width,
        high=action_set.high - PULL * width,
        row_low=xp.where(action_set.row_low > least, low + PULL * (most - low), action_set.row_low),
        row_high=xp.where(action_set.row_high < most, high - PULL * (high - least), action_set.row_high),
    )
    middle = xp.broadcast_to(box.centre, raw.shape)
    if xp is jnp:
        return jax.lax.stop_gradient(pulled.project(middle))
    try:
        return pulled.project(middle)
    except CaqlError:
        return action_set.project(middle)


def _shares(xp: Any, action_set: ActionSet, centre: Any, way: Any) -> Any:
    """How much of each row's and bound's distance from `centre` the step `way` uses up -> (B, 2 m + 2 d)."""
    heights, slopes = (xp.sum(action_set.rows * x[..., None, :], axis=-1) for x in (centre, way))
    sides = (
        (slopes, action_set.row_high - heights),
        (-slopes, heights - action_set.row_low),
        (way, action_set.high - centre),
        (-way, centre - action_set.low),
    )
    shares = [xp.where(slope > 0, slope, 0) / xp.maximum(distance, TINY) for slope, distance in sides]
    return xp.concatenate(shares, axis=-1)
