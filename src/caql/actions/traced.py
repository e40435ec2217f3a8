"""Projection inside `jit`: a fixed number of ADMM steps, then a step back into the set; clipping for a box.

In units in which every variable is in [-1, 1] and every row has length one, the closest point solves

    min 1/2 (x - t)' P (x - t)   with   z = (x, R x) in its box,

P being the distance in the environment's units.  ADMM (as in OSQP, Stellato et al. 2020) solves a linear system whose
matrix depends on the set alone, so that its inverse is made once and a step costs two small products.  What a fixed
number of steps leaves open is closed along the segment to a point c well inside the set,

    c + s v,   v the part of x - c that changes no equality,   s the largest step in [0, 1] that keeps every row,

so the result is admissible wherever c is.  c is the best of a few ADMM runs on the set pulled in by a margin; what has
nothing to spare even there counts as an equality.  A target that is admissible already is returned as it is.
The result is close to the closest point, not that point itself: the host's projection is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.actions import hull
from caql.errors import CaqlError

if TYPE_CHECKING:
    from caql.actions.set import ActionSet

STEPS = 40
"""ADMM steps of a projection."""
CENTRE_STEPS = 150
"""ADMM steps of the search for a point inside."""
MARGINS = (0.5, 0.25, 0.1, 0.04, 0.015, 0.005, 0.0)
"""How far rows are pulled in to find a point inside, in half widths of the box."""
QUICK = 4
"""How many of the margins are tried first, one after another."""
PENALTY, EQUALITY_PENALTY, RELAXATION = 0.5, 10.0, 1.6
"""ADMM's penalty on inequalities and on equalities, and its over-relaxation."""
THIN = 1e-4
"""A row or bound with less than this to spare at c, in half widths of the box, is taken for an equality."""
NARROW = 1e-5
"""A width of this fraction of a number's size is rounding, in float32."""
FURTHEST = 8.0
"""Targets are brought this close first, in half widths of the box: nothing is lost but time."""


class Prepared(NamedTuple):
    """What a set's projections share: its rows in units of the box, (..., m, n) and (..., m), and a point inside.

    inverse: of P + penalties, (..., n, n).  keeps: onto the directions that change no equality, (..., n, n).
    inside: c, (..., n).  empty: (...,) where the rows are proved to contradict each other.
    """

    centre: jax.Array
    radius: jax.Array
    cost: jax.Array
    rows: jax.Array
    row_low: jax.Array
    row_high: jax.Array
    penalty: jax.Array
    inverse: jax.Array
    keeps: jax.Array
    inside: jax.Array
    empty: jax.Array


@partial(jax.tree_util.register_dataclass, data_fields=("action_set", "prepared"), meta_fields=())
@dataclass(frozen=True)
class Projector:
    """Brings (..., d) actions into the set; a pytree, so that it is prepared once and used in a loop."""

    action_set: ActionSet
    prepared: Prepared | None

    def __call__(self, actions: jax.Array) -> jax.Array:
        low, high = self.action_set.low, self.action_set.high
        if self.prepared is None:
            return jnp.clip(actions, low, high)
        return jnp.clip(_projected(self.prepared, actions), low, high)

    @property
    def empty(self) -> jax.Array:
        """(...,) where the set is proved to be empty; never for one that is not."""
        shape = self.action_set.low.shape[:-1]
        return jnp.zeros(shape, bool) if self.prepared is None else jnp.broadcast_to(self.prepared.empty, shape)


def projector(action_set: ActionSet) -> Projector:
    """The set's projection, its inverse made and a point inside found.

    Raises CaqlError for whole numbers, which this method cannot handle.
    """
    if action_set.integer:
        raise CaqlError(
            "the action set has whole numbers, which gradient ascent and cross-entropy cannot search; "
            "use the solver exact or mip"
        )
    return Projector(action_set, None if action_set.is_box else _prepare(action_set))


def _times(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Matrix (..., a, b) times vector (..., b); a sum that fuses, where a batch of tiny products would not."""
    return jnp.sum(matrix * vector[..., None, :], axis=-1)


def _prepare(action_set: ActionSet) -> Prepared:
    within = action_set.tightened()
    low, high = (jnp.asarray(side) for side in hull.variable_bounds(within))
    d, n = action_set.size, low.shape[-1]
    centre, radius = (low + high) / 2, (high - low) / 2
    radius = jnp.where(radius <= NARROW * jnp.maximum(jnp.abs(low), jnp.abs(high)), 0.0, radius)
    given = jnp.asarray(action_set.rows)
    rows, moved = given * radius[..., None, :], _times(given, centre)
    size = jnp.sqrt(jnp.sum(rows * rows, axis=-1))
    used = size > NARROW * _times(jnp.abs(given), jnp.abs(centre))
    size = jnp.where(used, size, 1.0)
    row_low = jnp.where(used, (action_set.row_low - moved) / size, -jnp.inf)
    row_high = jnp.where(used, (action_set.row_high - moved) / size, jnp.inf)
    rows = jnp.where(used[..., None], rows / size[..., None], 0.0)
    equal = row_high - row_low <= 1e-6
    scale = jnp.max(radius[..., :d], axis=-1, keepdims=True)
    cost = jnp.where(np.arange(n) < d, (radius / jnp.maximum(scale, 1e-30)) ** 2, 0.0)
    penalty = jnp.where(equal, EQUALITY_PENALTY, PENALTY)
    transposed, identity = jnp.swapaxes(rows, -1, -2), jnp.eye(n)
    inverse = jnp.linalg.inv((cost + PENALTY)[..., None] * identity + (transposed * penalty[..., None, :]) @ rows)
    start = Prepared(
        centre, radius, cost, rows, row_low, row_high, penalty, inverse, inverse, centre, equal.any(axis=-1)
    )
    inside, empty = _point_inside(start, _back(jnp.where(equal[..., None], rows, 0.0)), equal)
    heights = _times(rows, inside)
    tight = jnp.minimum(row_high - heights, heights - row_low) < THIN
    at_edge = (1.0 - jnp.abs(inside) < THIN)[..., None]
    kept = [jnp.where((equal | tight)[..., None], rows, 0.0), jnp.where(at_edge, identity, 0.0)]
    leading = jnp.broadcast_shapes(*(each.shape[:-2] for each in kept))
    fixed = jnp.concatenate([jnp.broadcast_to(each, (*leading, *each.shape[-2:])) for each in kept], axis=-2)
    return start._replace(keeps=identity - _back(fixed) @ fixed, inside=inside, empty=empty)


def _back(fixed: jax.Array) -> jax.Array:
    """The pseudo-inverse of rows of which some may be zero, (..., m, n) -> (..., n, m)."""

    def inverted() -> jax.Array:
        none = jnp.sum(fixed * fixed, axis=-1) == 0
        gram = fixed @ jnp.swapaxes(fixed, -1, -2) + jnp.where(none, 1.0, 1e-6)[..., None] * jnp.eye(fixed.shape[-2])
        return jnp.swapaxes(fixed, -1, -2) @ jnp.linalg.inv(gram)

    return jax.lax.cond(jnp.any(fixed != 0), inverted, lambda: jnp.zeros_like(jnp.swapaxes(fixed, -1, -2)))


def _columns(array: jax.Array, own: int, leading: int) -> jax.Array:
    """(..., own axes) -> (own axes, ...), with `leading` axes of states: innermost, where the processor wants them."""
    padded = array.reshape(*([1] * (leading + own - array.ndim)), *array.shape)
    return jnp.moveaxis(padded, range(leading, leading + own), range(own))


def _sum_of_products(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Matrix (a, b, ...) times vector (b, ...) -> (a, ...), written out so that it is one pass over the states."""
    total = matrix[:, 0] * vector[0]
    for index in range(1, len(vector)):
        total = total + matrix[:, index] * vector[index]
    return total


def _admm(p: Prepared, target: jax.Array, margin: Any, steps: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`steps` steps towards the point closest to a target, rows and bounds pulled in by a margin.

    Returns the point, the rows' multipliers, and how these changed in the last third of the steps.
    """
    leading = target.ndim - 1
    low, high = (_columns(jnp.asarray(side), 1, leading) for side in _pulled_in(p, margin))
    edge = 1.0 - _columns(jnp.asarray(margin)[..., None] if jnp.ndim(margin) == 0 else margin, 1, leading)
    rows, inverse = _columns(p.rows, 2, leading), _columns(p.inverse, 2, leading)
    transposed = jnp.swapaxes(rows, 0, 1)
    penalty, wanted = _columns(p.penalty, 1, leading), _columns(target, 1, leading)
    pull = _columns(p.cost, 1, leading) * wanted

    def step(_: int, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        bounds, heights, bound_push, row_push = carry[1:]
        right = pull + PENALTY * bounds - bound_push + _sum_of_products(transposed, penalty * heights - row_push)
        x = _sum_of_products(inverse, right)
        mixed = RELAXATION * x + (1 - RELAXATION) * bounds
        mixed_heights = RELAXATION * _sum_of_products(rows, x) + (1 - RELAXATION) * heights
        bounds = jnp.clip(mixed + bound_push / PENALTY, -edge, edge)
        heights = jnp.clip(mixed_heights + row_push / penalty, low, high)
        return (
            x,
            bounds,
            heights,
            bound_push + PENALTY * (mixed - bounds),
            row_push + penalty * (mixed_heights - heights),
        )

    x = jnp.clip(wanted, -edge, edge)
    heights = jnp.clip(_sum_of_products(rows, x), low, high)
    first = (x, x, heights, jnp.zeros_like(x), jnp.zeros_like(heights))
    late = jax.lax.fori_loop(0, steps - steps // 3, step, first)
    ended = jax.lax.fori_loop(0, steps // 3, step, late)
    return jnp.moveaxis(ended[0], 0, -1), jnp.moveaxis(ended[4], 0, -1), jnp.moveaxis(ended[4] - late[4], 0, -1)


def _pulled_in(p: Prepared, margin: Any) -> tuple[jax.Array, jax.Array]:
    """The rows' sides moved inwards by a margin, at most to the middle between them."""
    width = p.row_high - p.row_low
    most = jnp.where(jnp.isfinite(width), width / 2, jnp.inf)
    moved = jnp.minimum(margin, jnp.maximum(most, 0.0))
    return p.row_low + moved, p.row_high - moved


def _point_inside(p: Prepared, back: jax.Array, equal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A point with something to spare, and where there is provably none.

    Most sets have a wide interior, which a few steps at a large margin find; all margins are tried for all
    states, with many steps, only where that leaves a state without a point.
    """
    leading = jnp.broadcast_shapes(p.centre.shape[:-1], p.rows.shape[:-2])
    start = jnp.zeros((*leading, p.centre.shape[-1]), p.centre.dtype)
    margins = jnp.array(MARGINS)

    def unsettled(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        turn, _, least = carry
        # A smaller margin would give no more than itself.
        return (turn < QUICK) & jnp.any(least < margins[turn])

    def look(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        turn, best, least = carry
        x, _, _ = _admm(p, start, jnp.broadcast_to(margins[turn], (*leading, 1)), STEPS)
        x = _on_equalities(p, x, back, equal)
        spare = jnp.min(_spare(p, x, equal), axis=-1)
        return turn + 1, jnp.where((spare > least)[..., None], x, best), jnp.maximum(spare, least)

    nothing = jnp.full(leading, -jnp.inf, start.dtype)
    _, quick, least = jax.lax.while_loop(unsettled, look, (jnp.int32(0), start, nothing))
    found = least >= MARGINS[QUICK]
    none = jnp.zeros(leading, bool)
    inside, empty = jax.lax.cond(
        jnp.all(found), lambda: (quick, none), lambda: _point_of_all_margins(p, back, equal, start)
    )
    return jnp.where(found[..., None], quick, inside), empty & ~found


def _on_equalities(p: Prepared, x: jax.Array, back: jax.Array, equal: jax.Array) -> jax.Array:
    """The point moved onto the equalities."""
    target = jnp.where(equal, jnp.where(equal, p.row_low + p.row_high, 0.0) / 2, 0.0)
    for _ in range(3):
        off = jnp.where(equal, target - _times(p.rows, x), 0.0)
        x = x + _times(back, off)
    return x


def _spare(p: Prepared, x: jax.Array, equal: jax.Array) -> jax.Array:
    """How far a point is inside each inequality and each bound, (..., m + n)."""
    heights = _times(p.rows, x)
    rows = jnp.where(equal, jnp.inf, jnp.minimum(p.row_high - heights, heights - p.row_low))
    return jnp.concatenate([rows, 1.0 - jnp.abs(x)], axis=-1)


def _point_of_all_margins(
    p: Prepared, back: jax.Array, equal: jax.Array, start: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The point with the most to spare among those found at all margins, and where there is provably none."""
    margins = jnp.array(MARGINS).reshape(-1, *([1] * start.ndim))
    x, push, change = _admm(p, jnp.broadcast_to(start, (len(MARGINS), *start.shape)), margins, CENTRE_STEPS)
    x = _on_equalities(p, x, back, equal)
    spare = _spare(p, x, equal)
    # What has nothing to spare at any margin must not decide between them, as long as it is met.
    hopeless = jnp.max(spare, axis=0) < THIN
    met = jnp.min(jnp.where(hopeless, spare, jnp.inf), axis=-1)
    least = jnp.where(met < -10 * THIN, met, jnp.min(jnp.where(hopeless, jnp.inf, spare), axis=-1))
    best = jnp.argmax(least, axis=0)
    inside = jnp.take_along_axis(x, best[None, ..., None], axis=0)[0]
    return inside, _contradicted(p, push[-1]) | _contradicted(p, change[-1])


def _contradicted(p: Prepared, push: jax.Array) -> jax.Array:
    """Whether weights on the rows prove that no point of the box satisfies them all (Farkas), beyond rounding."""
    push = jnp.where(jnp.isfinite(push), push, 0.0)
    push = jnp.where((push > 0) & jnp.isinf(p.row_high) | (push < 0) & jnp.isinf(p.row_low), 0.0, push)
    push = push / jnp.maximum(jnp.max(jnp.abs(push), axis=-1, keepdims=True), 1e-30)
    sides = jnp.where(push > 0, p.row_high, jnp.where(push < 0, p.row_low, 0.0))
    reach = jnp.sum(jnp.abs(_times(jnp.swapaxes(p.rows, -1, -2), push)), axis=-1)
    allowed = jnp.sum(jnp.where(push == 0, 0.0, push * sides), axis=-1)
    rounding = 1e-4 * (1.0 + jnp.sum(jnp.abs(jnp.where(push == 0, 0.0, push * sides)), axis=-1))
    return allowed < -reach - rounding


def _projected(p: Prepared, actions: jax.Array) -> jax.Array:
    d = actions.shape[-1]
    n = p.centre.shape[-1]
    wide = p.radius[..., :d] > 0
    unit = jnp.where(wide, (actions - p.centre[..., :d]) / jnp.where(wide, p.radius[..., :d], 1.0), 0.0)
    leading = jnp.broadcast_shapes(unit.shape[:-1], p.centre.shape[:-1], p.rows.shape[:-2])
    unit = jnp.broadcast_to(jnp.clip(unit, -FURTHEST, FURTHEST), (*leading, d))
    inside = jnp.broadcast_to(p.inside, (*leading, n))
    target = jnp.concatenate([unit, inside[..., d:]], axis=-1)
    x, _, _ = _admm(p, target, 0.0, STEPS)
    away = _times(p.keeps, x - inside)
    heights, change = _times(p.rows, inside), _times(p.rows, away)
    spare = jnp.where(change > 0, p.row_high - heights, heights - p.row_low)
    moves = (jnp.abs(change) > 1e-7) & (p.row_high - p.row_low > 1e-6)
    most = jnp.min(jnp.where(moves, jnp.maximum(spare, 0.0) / jnp.where(moves, jnp.abs(change), 1.0), jnp.inf), axis=-1)
    spare = jnp.maximum(1.0 - jnp.sign(away) * inside, 0.0)
    sides = jnp.min(jnp.where(away == 0, jnp.inf, spare / jnp.where(away == 0, 1.0, jnp.abs(away))), axis=-1)
    step = jnp.minimum(1.0, jnp.minimum(most, sides))[..., None]
    found = p.centre + p.radius * (inside + step * away)
    # An admissible target, with the auxiliary variables just found, stays as it is.
    own = jnp.concatenate([unit, x[..., d:]], axis=-1)
    heights = _times(p.rows, own)
    fine = jnp.all((heights >= p.row_low) & (heights <= p.row_high), axis=-1) & jnp.all(jnp.abs(own) <= 1.0, axis=-1)
    return jnp.where(fine[..., None] & wide, actions, found[..., :d])
