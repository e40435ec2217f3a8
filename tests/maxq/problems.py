"""The table of max-Q problems that every solver and every bound is run through, and an independent oracle.

A new case is one entry of `PROBLEMS`.  Shapes repeat where the case allows it, so that JAX compiles fewer programs.
"""

import itertools
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from scipy.optimize import linprog

from caql.ensembles import combined
from caql.networks import FoldedNetwork

TASKS = ("pendulum", "hopper", "halfcheetah", "ant", "humanoid")


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    layers: list[tuple[Any, Any]]
    low: Any
    high: Any
    states: Any = None
    tolerance: float = field(default=1e-5)

    @property
    def folded(self) -> FoldedNetwork:
        (weights, bias), *later = [(np.asarray(w, np.float64), np.asarray(b, np.float64)) for w, b in self.layers]
        states = np.zeros((1, 0)) if self.states is None else np.atleast_2d(np.asarray(self.states, np.float64))
        split = states.shape[1]
        return FoldedNetwork(states @ weights[:split] + bias, weights[split:], tuple(later))

    @property
    def actions(self) -> int:
        return len(self.folded.action_weights)

    def arguments(self) -> dict[str, Any]:
        return {"layers": self.layers, "low": self.low, "high": self.high, "states": self.states}


def he_layers(seed: int, sizes: tuple[int, ...], scale: float = 1.0) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [
        (scale * rng.normal(size=(a, b)) * np.sqrt(2 / a), scale * rng.normal(size=b) * 0.3)
        for a, b in itertools.pairwise(sizes)
    ]


def _states(seed: int, rows: int, columns: int) -> Any:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def _with_bias(layers: list[tuple[Any, Any]], layer: int, shift: float) -> list[tuple[Any, Any]]:
    changed = list(layers)
    changed[layer] = (layers[layer][0], layers[layer][1] + shift)
    return changed


def _duplicated(layers: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every neuron of the first layer twice, one of each pair with opposite outgoing weights halved."""
    (w0, b0), (w1, b1), *rest = layers
    return [(np.hstack([w0, w0]), np.hstack([b0, b0])), (np.vstack([w1, -w1 / 2]), b1), *rest]


def _zeros(layers: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(np.zeros_like(w), b) for w, b in layers]


def _sparse(layers: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(5)
    return [(w * (rng.random(w.shape) < 0.4), b) for w, b in layers]


def _unbiased(layers: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(w, np.zeros_like(b)) for w, b in layers]


def _float32(layers: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(w.astype(np.float32), b.astype(np.float32)) for w, b in layers]


def _scaled_first(layers: list[tuple[Any, Any]], factor: float) -> list[tuple[Any, Any]]:
    """The same function with the first hidden layer's units `factor` times as large."""
    (w0, b0), (w1, b1), *rest = layers
    return [(w0 * factor, b0 * factor), (w1 / factor, b1), *rest]


PROBLEMS = [
    Case("affine, no hidden layer", he_layers(0, (4 + 3, 1)), -1.0, 1.0, _states(0, 3, 4)),
    Case("one hidden layer", he_layers(1, (2 + 2, 8, 1)), -1.0, 1.0, _states(1, 3, 2)),
    Case("two hidden layers", he_layers(2, (3 + 3, 12, 8, 1)), -1.0, 1.0, _states(2, 2, 3)),
    Case("the paper's 32 x 16", he_layers(3, (11 + 3, 32, 16, 1)), -0.25, 0.25, _states(3, 2, 11)),
    Case("three hidden layers", he_layers(4, (3 + 2, 8, 8, 8, 1)), -1.0, 1.0, _states(4, 2, 3)),
    Case("five narrow layers", he_layers(5, (2 + 2, 5, 5, 5, 5, 5, 1)), -1.0, 1.0, _states(5, 2, 2)),
    Case("wide and shallow", he_layers(6, (2 + 2, 40, 1)), -0.5, 0.5, _states(6, 2, 2)),
    Case("no state", he_layers(7, (2, 10, 6, 1)), -1.0, 1.0),
    Case("one state given as a vector", he_layers(8, (4 + 2, 10, 6, 1)), -1.0, 1.0, _states(8, 1, 4)[0]),
    Case("one-dimensional action", he_layers(9, (3 + 1, 12, 8, 1)), -2.0, 2.0, _states(9, 3, 3)),
    Case("dead first layer", _with_bias(he_layers(10, (3 + 2, 10, 6, 1)), 0, -100.0), -1.0, 1.0, _states(10, 2, 3)),
    Case("dead second layer", _with_bias(he_layers(11, (3 + 2, 10, 6, 1)), 1, -100.0), -1.0, 1.0, _states(11, 2, 3)),
    Case(
        "active first layer", _with_bias(he_layers(12, (3 + 2, 10, 6, 1)), 0, 100.0), -1.0, 1.0, _states(12, 2, 3), 1e-4
    ),
    Case(
        "active second layer",
        _with_bias(he_layers(13, (3 + 2, 10, 6, 1)), 1, 100.0),
        -1.0,
        1.0,
        _states(13, 2, 3),
        1e-4,
    ),
    Case("duplicate neurons", _duplicated(he_layers(14, (2 + 2, 5, 6, 1))), -1.0, 1.0, _states(14, 2, 2)),
    Case("zero weights", _zeros(he_layers(15, (3 + 2, 10, 6, 1))), -1.0, 1.0, _states(15, 2, 3)),
    Case("sparse weights", _sparse(he_layers(16, (3 + 3, 12, 8, 1))), -1.0, 1.0, _states(16, 2, 3)),
    Case(
        "the minimum of two networks",
        list(combined([tuple(he_layers(seed, (3 + 2, 8, 5, 1))) for seed in (60, 61)])),
        -1.0,
        1.0,
        _states(60, 2, 3),
    ),
    Case(
        "the mean of three networks",
        list(combined([tuple(he_layers(seed, (3 + 2, 6, 4, 1))) for seed in (62, 63, 64)], "mean")),
        -1.0,
        1.0,
        _states(62, 2, 3),
    ),
    Case("asymmetric box", he_layers(17, (3 + 3, 12, 8, 1)), [-0.1, 0.5, -3.0], [2.0, 0.75, -1.0], _states(17, 2, 3)),
    Case("some sides fixed", he_layers(18, (3 + 3, 12, 8, 1)), [-1.0, 0.3, 0.5], [1.0, 0.3, 0.5], _states(18, 2, 3)),
    Case("a single admissible action", he_layers(19, (3 + 2, 10, 6, 1)), [0.2, -0.7], [0.2, -0.7], _states(19, 2, 3)),
    Case(
        "a box per state", he_layers(20, (3 + 2, 10, 6, 1)), [[-1, -1], [0, 0.5]], [[0, 1], [1, 0.5]], _states(20, 2, 3)
    ),
    Case(
        "a far and narrow box",
        he_layers(21, (2 + 2, 10, 6, 1)),
        [99.0, -50.01],
        [100.0, -50.0],
        _states(21, 2, 2),
        1e-3,
    ),
    Case(
        "float32 weights", _float32(he_layers(22, (5 + 3, 12, 8, 1))), -1.0, 1.0, _states(22, 2, 5).astype(np.float32)
    ),
    Case("large scale", he_layers(23, (3 + 2, 10, 6, 1), 100.0), -1.0, 1.0, _states(23, 2, 3), 10.0),
    Case("tiny scale", he_layers(24, (3 + 2, 10, 6, 1), 0.01), -1.0, 1.0, _states(24, 2, 3), 1e-11),
    Case("large hidden units", _scaled_first(he_layers(25, (3 + 2, 10, 6, 1)), 1e5), -1.0, 1.0, _states(25, 2, 3)),
    Case("tiny hidden units", _scaled_first(he_layers(26, (3 + 2, 10, 6, 1)), 1e-5), -1.0, 1.0, _states(26, 2, 3)),
    Case("a tiny box around a kink", _unbiased(he_layers(27, (3 + 3, 12, 8, 1))), -1e-6, 1e-6, np.zeros((2, 3)), 1e-11),
]


def trained_problems(rows: int = 2) -> list[Case]:
    """The trained networks that come with the package."""
    folder = resources.files("caql") / "bench" / "networks"
    cases = []
    for task in TASKS:
        file = folder / f"{task}.safetensors"
        if not file.is_file():
            continue
        from safetensors.numpy import load

        tensors = load(file.read_bytes())
        count = sum(name.startswith("weights_") for name in tensors)
        layers = [(tensors[f"weights_{k}"], tensors[f"bias_{k}"]) for k in range(count)]
        cases.append(Case(f"trained {task}", layers, tensors["low"], tensors["high"], tensors["states"][:rows], 1e-3))
    return cases


ALL_PROBLEMS = PROBLEMS + trained_problems()


@cache
def enumerated_maximum(case: Case) -> Any:
    """Each state's maximum by a linear program for every activation pattern: exponential, and nothing like a solver."""
    network, d = case.folded, case.actions
    low, high = (
        np.broadcast_to(np.asarray(side, np.float64), (len(network.first_bias), d)) for side in (case.low, case.high)
    )
    best = np.full(len(network.first_bias), -np.inf)
    widths = [network.first_bias.shape[1], *(len(bias) for _, bias in network.later)][:-1]
    assert sum(widths) <= 10
    for row, pattern in itertools.product(range(len(best)), itertools.product([0.0, 1.0], repeat=sum(widths))):
        slope, constant = np.asarray(network.action_weights), network.first_bias[row]
        rows, limits, used = [], [], 0
        for (weights, bias), width in zip(network.later, widths, strict=True):
            phase = np.array(pattern[used : used + width])
            sign = 1 - 2 * phase
            rows.append((slope * sign).T)
            limits.append(-constant * sign)
            slope, constant = slope * phase @ weights, constant * phase @ weights + bias
            used += width
        found = linprog(
            -slope[:, 0], np.vstack(rows), np.hstack(limits), bounds=list(zip(low[row], high[row], strict=True))
        )
        if found.status == 0:
            best[row] = max(best[row], constant[0] - found.fun)
    return best
