"""Max-Q problems of every kind that has ever been trouble, and some that have not.

A case is a batch of states of one network, with the states folded away: what is left are a bias a state, the action's
weights and the later layers.  Everything is float64 and comes from one random generator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

Array = Any
Random = np.random.Generator
Layers = tuple[tuple[Array, Array], ...]


@dataclass(frozen=True)
class Case:
    """max over low <= a <= high of the network's output, for B states.

    first: (B, h) the first layer's bias, each state's part added.     action: (d, h)
    later: the layers after the first.     low, high: (B, d)
    """

    kind: str
    first: Array
    action: Array
    later: Layers
    low: Array
    high: Array
    tolerance: float = 1e-6

    def __len__(self) -> int:
        return len(self.first)

    def row(self, k: int) -> Case:
        """One state alone."""
        return replace(self, first=self.first[k : k + 1], low=self.low[k : k + 1], high=self.high[k : k + 1])

    def layers(self) -> list[tuple[Array, Array]]:
        """The whole network: its states are the first layer's biases, so that nothing is lost in the folding."""
        h = self.first.shape[1]
        return [(np.vstack([np.eye(h), self.action]), np.zeros(h)), *self.later]

    def arrays(self) -> dict[str, Array]:
        """The case as `caql solve` reads it; one box, since all states of a case have the same."""
        named = {}
        for k, (weights, bias) in enumerate(self.layers()):
            named |= {f"W{k}": weights, f"b{k}": bias}
        return {**named, "states": self.first, "low": self.low[0], "high": self.high[0]}


def case_of_arrays(arrays: dict[str, Array], kind: str, tolerance: float) -> Case:
    """Any network file's arrays as a case."""
    count = sum(name.startswith("W") for name in arrays)
    (weights, bias), *later = [(np.asarray(arrays[f"W{k}"]), np.asarray(arrays[f"b{k}"])) for k in range(count)]
    states = np.atleast_2d(arrays.get("states", np.zeros((1, 0))))
    split = states.shape[1]
    shape = (len(states), len(weights) - split)
    low, high = (np.array(np.broadcast_to(arrays[side], shape), float) for side in ("low", "high"))
    return Case(kind, states @ weights[:split] + bias, weights[split:], tuple(later), low, high, tolerance)


def he(rng: Random, kind: str, hidden: tuple[int, ...], d: int, rows: int, bias: float = 0.3) -> Case:
    """He-initialised weights, normal states of three numbers, actions in [-1, 1]."""
    sizes = (d, *hidden, 1)
    made = []
    for a, b in itertools.pairwise(sizes):
        made.append((rng.normal(size=(a, b)) * np.sqrt(2 / a), bias * rng.normal(size=b)))
    (action, first), *later = made
    states = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, sizes[1])) * 0.5
    return Case(kind, states + first, action, tuple(later), -np.ones((rows, d)), np.ones((rows, d)))


def some(rng: Random, kind: str, widest: int = 8, deepest: int = 3) -> Case:
    """A network of random size: mostly one action, which the exact oracle answers."""
    d = 1 if rng.random() < 0.7 else int(rng.integers(2, 5))
    hidden = tuple(int(n) for n in rng.integers(1, widest + 1, size=rng.integers(1, deepest + 1)))
    case = he(rng, kind, hidden, d, 128 if d == 1 else 16, bias=float(rng.choice([0.0, 0.3, 1.0])))
    return replace(case, tolerance=float(rng.choice([1e-4, 1e-6, 1e-8])))


def mapped(case: Case, change: Callable[[Array], Array], states: bool = True) -> Case:
    """Every number of the network changed alike."""
    later = tuple((change(w), change(b)) for w, b in case.later)
    return replace(case, first=change(case.first) if states else case.first, action=change(case.action), later=later)


def _random(rng: Random) -> Case:
    case = some(rng, "random")
    spread = 10.0 ** rng.uniform(-1, 1)
    return mapped(case, lambda x: x * spread)


@cache
def _shipped(name: str) -> dict[str, Array]:
    from safetensors.numpy import load

    stored = load((resources.files("caql") / "bench" / "networks" / f"{name}.safetensors").read_bytes())
    renamed = {name.replace("weights_", "W").replace("bias_", "b"): value for name, value in stored.items()}
    return {name: np.asarray(value, np.float64) for name, value in renamed.items()}


def _trained(rng: Random) -> Case:
    name = str(rng.choice(["pendulum", "pendulum", "hopper", "halfcheetah", "ant", "humanoid"]))
    arrays = _shipped(name)
    seen = arrays["states"]
    rows = 128 if name == "pendulum" else 8
    states = seen[rng.integers(len(seen), size=rows)]
    states = states + rng.normal(size=states.shape) * seen.std(axis=0) * rng.choice([0.0, 0.1, 1.0])
    return case_of_arrays({**arrays, "states": states}, "trained", 1e-4)


def _tied(rng: Random) -> Case:
    """A few magnitudes with random signs, as in ternary networks: many neurons become equal or opposite."""
    case = some(rng, "tied")

    def tie(x: Array) -> Array:
        if rng.random() < 0.5:  # one magnitude a column
            sizes = np.abs(rng.normal(size=x.shape[-1:])) * np.ones_like(x)
        else:
            sizes = rng.choice(np.abs(rng.normal(size=2)), size=x.shape)
        return sizes * rng.choice([-1.0, 1.0], size=x.shape)

    return mapped(case, tie, states=bool(rng.random() < 0.3))


def _duplicated(rng: Random) -> Case:
    """Neurons of the first layer there twice, or as multiples, with outgoing weights of either sign."""
    case = some(rng, "duplicated", widest=5)
    if not case.later:
        return case
    factor = rng.choice([0.5, 1.0, 1.0, 2.0], size=case.action.shape[1])
    (w, b), *rest = case.later
    again = np.vstack([w, w * rng.choice([-1.0, -0.5, 1.0], size=(len(w), 1))])
    return replace(
        case,
        first=np.hstack([case.first, case.first * factor]),
        action=np.hstack([case.action, case.action * factor]),
        later=((again, b), *rest),
    )


def _quantised(rng: Random) -> Case:
    step = float(rng.choice([0.125, 0.25, 0.5]))
    case = some(rng, "quantised", deepest=4)
    return mapped(case, lambda x: np.round(x / step) * step, states=bool(rng.random() < 0.5))


def _integer(rng: Random) -> Case:
    case = some(rng, "integer")
    return mapped(case, lambda x: np.asarray(rng.integers(-3, 4, size=x.shape), float))


def _dead(rng: Random) -> Case:
    case = some(rng, "dead")
    k = int(rng.integers(len(case.later) + 1))
    drop = float(rng.choice([-100.0, -1.0, 100.0]))
    if k == len(case.later) or not case.later:
        return replace(case, first=case.first + drop * (rng.random(case.first.shape[1]) < 0.7))
    later = list(case.later)
    later[k] = (later[k][0] * (rng.random(later[k][0].shape) < 0.5), later[k][1] + drop)
    return replace(case, later=tuple(later))


def _scaled(rng: Random, kind: str, least: float, most: float) -> Case:
    case = some(rng, kind)
    if rng.random() < 0.5:
        factor = 10.0 ** rng.uniform(least, most)
        return replace(mapped(case, lambda x: x * factor), tolerance=1e-6 * max(factor, 1e-6))
    # One layer large and the next one small again: the same function of other numbers.
    factor = 10.0 ** rng.uniform(least, most)
    if not case.later:
        return replace(case, first=case.first * factor, action=case.action * factor)
    (w, b), *rest = case.later
    return replace(case, first=case.first * factor, action=case.action * factor, later=((w / factor, b), *rest))


def _cancelling(rng: Random) -> Case:
    """Pairs of nearly equal neurons with weights near 1e6 to 1e12 of opposite sign, so that only a little is left."""
    return _at_corners(rng) if rng.random() < 0.5 else _opposite(rng)


def _at_corners(rng: Random) -> Case:
    """Neurons that are nearly zero at a corner of the box, weighed by 1e9 to 1e12, and a large layer after them."""
    d, h, m = int(rng.integers(1, 3)), int(rng.integers(2, 5)), int(rng.integers(1, 4))
    rows, size = 64 if d == 1 else 8, 10.0 ** rng.uniform(9, 12)
    action = np.round(rng.normal(size=(d, h)), int(rng.choice([1, 16])))
    corner = rng.choice([-1.0, 1.0], size=(d, h))
    first = -(action * corner).sum(axis=0) + rng.normal(size=(rows, h)) * 10.0 ** rng.uniform(-13, -9, size=(rows, 1))
    near = rng.normal(size=h) * 10.0 ** rng.uniform(-13, -11)
    large = size * rng.choice([-1.0, 0.0, 1.0], size=(h, m)) * rng.choice([1.0, 1.1317116032088242], size=(h, 1))
    later = (
        (np.vstack([large, rng.choice([-2.0, -1.0, 1.0], size=(h, m)) - large]), np.zeros(m)),
        (np.round(rng.normal(size=(m, 1)), 1) * 10.0 ** rng.uniform(0, 5), 1e4 * rng.normal(size=1)),
    )
    first, action = np.hstack([first, first + near]), np.hstack([action, action * (1 + near)])
    low, high = -np.ones((rows, d)), np.ones((rows, d))
    return Case("cancelling", first, action, later, low, high, float(rng.choice([1e-6, 1e-4, 1.0])))


def _opposite(rng: Random) -> Case:
    case = some(rng, "cancelling", widest=4)
    size = 10.0 ** rng.uniform(6, 12)
    near = 1 + rng.choice([0.0, 1e-12, 1e-9]) * rng.normal(size=case.action.shape[1])
    (w, b), *rest = case.later if case.later else ((np.ones((case.action.shape[1], 1)), np.zeros(1)),)
    large = size * rng.normal(size=w.shape)
    return replace(
        case,
        first=np.hstack(
            [case.first, case.first + rng.choice([0.0, 1e-11, 1e-9]) * rng.normal(size=case.first.shape[1])]
        ),
        action=np.hstack([case.action, case.action * near]),
        later=((np.vstack([large, w - large]), b), *rest),
        tolerance=float(rng.choice([1e-6, 1e-4, 1.0])),
    )


def _point(rng: Random) -> Case:
    case = some(rng, "point boxes")
    fixed = rng.random(case.low.shape[1]) < rng.choice([0.5, 1.0])
    middle = rng.uniform(-1, 1, size=case.low.shape[1])
    return replace(case, low=np.where(fixed, middle, case.low), high=np.where(fixed, middle, case.high))


def _thin(rng: Random) -> Case:
    case = some(rng, "thin boxes")
    middle = rng.choice([0.0, 1.0, 100.0]) * rng.normal(size=case.low.shape[1])
    width = 10.0 ** rng.uniform(-12, -4)
    rows = np.ones((len(case), 1))
    return replace(case, low=rows * (middle - width), high=rows * (middle + width), tolerance=1e-8)


def _linear(rng: Random) -> Case:
    return he(rng, "no hidden layer", (), int(rng.integers(1, 6)), 128)


def _deep(rng: Random) -> Case:
    d = int(rng.integers(1, 3))
    hidden = tuple(int(n) for n in rng.integers(1, 4, size=rng.integers(4, 8)))
    return he(rng, "deep and narrow", hidden, d, 64 if d == 1 else 16)


def _wide(rng: Random) -> Case:
    d = 1 if rng.random() < 0.8 else 2
    return he(rng, "wide and shallow", (int(rng.integers(20, 41)),), d, 64 if d == 1 else 8)


def _crowded(rng: Random) -> Case:
    """So many unstable neurons that the box is searched in parts: two or three layers, boxes of any size and place."""
    d = int(rng.integers(2, 5))
    hidden = tuple(int(n) for n in rng.integers(50, 81, size=rng.integers(2, 4)))
    case = he(rng, "crowded", hidden, d, 2, bias=float(rng.choice([0.0, 0.3])))
    middle, width = 0.3 * rng.normal(size=d), 10.0 ** rng.uniform(-0.7, 0.3, size=d)
    case = replace(case, low=case.low * width + middle, high=case.high * width + middle, tolerance=1e-2)
    if rng.random() < 0.3:
        return mapped(case, lambda x: np.round(x * 8) / 8)
    factor = 10.0 ** rng.uniform(-3, 3)
    return replace(mapped(case, lambda x: x * factor), tolerance=1e-2 * factor ** (len(hidden) + 1))


def _float32(rng: Random) -> Case:
    case = some(rng, "float32 weights")
    return mapped(case, lambda x: np.asarray(np.float32(x), np.float64))


def _equal(rng: Random) -> Case:
    """The same value everywhere, or on a large part of the box."""
    case = some(rng, "equal values")
    if rng.random() < 0.5 or not case.later:
        return replace(case, action=np.zeros_like(case.action))
    *front, (w, b) = case.later
    return replace(case, later=(*front, (-np.abs(w) if rng.random() < 0.5 else np.zeros_like(w), b)))


def _biased(rng: Random) -> Case:
    size = 10.0 ** rng.uniform(3, 7)
    case = some(rng, "large biases")
    later = tuple((w, b + size * rng.normal(size=b.shape)) for w, b in case.later)
    shift = size * rng.normal(size=case.first.shape[1]) if rng.random() < 0.5 else 0.0
    return replace(case, first=case.first + shift, later=later)


KINDS: dict[str, Callable[[Random], Case]] = {
    "random": _random,
    "he": lambda rng: some(rng, "he"),
    "trained": _trained,
    "tied": _tied,
    "duplicated": _duplicated,
    "quantised": _quantised,
    "integer": _integer,
    "dead": _dead,
    "huge": lambda rng: _scaled(rng, "huge", 6, 12),
    "tiny": lambda rng: _scaled(rng, "tiny", -12, -6),
    "cancelling": _cancelling,
    "point boxes": _point,
    "thin boxes": _thin,
    "no hidden layer": _linear,
    "deep and narrow": _deep,
    "wide and shallow": _wide,
    "crowded": _crowded,
    "float32 weights": _float32,
    "equal values": _equal,
    "large biases": _biased,
}
