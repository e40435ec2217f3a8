"""Values as affine expressions of the units of one layer, with everything that they leave out bounded.

At a layer with units u (the actions, or the ReLUs of a hidden layer) a value v of the graph is

    v = bias + sum_i coefficients_i u_i + sum_g generators_g t_g + e,     |t_g| <= 1,  |e| <= error,

for every admissible action.  The generators are the errors of smooth activations: they pass through linear operations
with their signs, so that they may cancel.  `error` is all the rest, above all rounding.  An operation with sums of n
products changes it to

    error' = op(error) + gamma_n op(size),      size = |bias| + sum_i |coefficients_i| max |u_i|,

where op is applied to absolute values and gamma_n is a small multiple of n 2^-53.  gamma covers both the composed
coefficients and the evaluation of the graph itself in float64, so that a bound on the expression plus its error is
a bound on the number that `Network.evaluate` returns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caql.graphs.operations import Array, Linear, Shape

UNIT = 2.0**-53


class StatesDiffer(Exception):
    """The states of a batch differ in more than the first layer's bias: each has to be lowered by itself."""


def gamma(terms: int) -> float:
    """Relative rounding error of a sum of so many products, twice, with room for higher orders."""
    return 4.0 * (terms + 4) * UNIT


@dataclass(frozen=True)
class Expression:
    """bias (B or 1, *shape), coefficients (units, *shape), generators (g, *shape), error and size (1, *shape)."""

    bias: Array
    coefficients: Array
    generators: Array
    error: Array
    size: Array

    @property
    def shape(self) -> Shape:
        return self.bias.shape[1:]

    @property
    def spread(self) -> Array:
        """By how much the value can differ from its affine part, (1, *shape)."""
        return self.error + np.abs(self.generators).sum(axis=0, keepdims=True)

    def rows(self) -> tuple[Array, Array]:
        """The affine part flattened: (units, m) coefficients and (B or 1, m) bias."""
        return self.coefficients.reshape(len(self.coefficients), -1), self.bias.reshape(len(self.bias), -1)


def sized(bias: Array, coefficients: Array, largest: Array) -> Array:
    """The sum of the absolute values of all terms, (1, *shape); `largest` bounds the units."""
    return np.abs(bias).max(axis=0, keepdims=True) + np.tensordot(largest, np.abs(coefficients), 1)[None]


def exact(bias: Array, coefficients: Array, largest: Array) -> Expression:
    """An expression without any error."""
    nothing = np.zeros((0, *bias.shape[1:]))
    size = sized(bias, coefficients, largest)
    return Expression(bias, coefficients, nothing, np.zeros_like(size), size)


def padded_generators(generators: Array, count: int) -> Array:
    """The generators with zeros for those that came later."""
    missing = count - len(generators)
    return generators if not missing else np.concatenate([generators, np.zeros((missing, *generators.shape[1:]))])


def apply(operation: Linear, operands: list[Expression | Array], largest: Array) -> Expression:
    """A linear operation on expressions and on fixed arrays (B or 1, *shape)."""
    varying = [each for each in operands if isinstance(each, Expression)]
    if not operation.additive and any(not isinstance(each, Expression) and len(each) > 1 for each in operands):
        raise StatesDiffer
    count = max(len(each.generators) for each in varying)

    def on(attribute: str) -> Array:
        parts = []
        for each in operands:
            if isinstance(each, Expression):
                part = getattr(each, attribute)
                parts.append(padded_generators(part, count) if attribute == "generators" else part)
            elif attribute == "size":
                parts.append(np.abs(each).max(axis=0, keepdims=True))
            elif operation.additive:
                parts.append(np.zeros_like(each[:1]))
            else:
                parts.append(np.abs(each) if attribute == "error" else each)
        return operation.evaluate(*parts)

    bias = operation.evaluate(*(each.bias if isinstance(each, Expression) else each for each in operands))
    coefficients = on("coefficients")
    terms = operation.terms(*(each.shape if isinstance(each, Expression) else each.shape[1:] for each in operands))
    error = on("error") + gamma(terms) * on("size")
    generators = on("generators") if count else np.zeros((0, *bias.shape[1:]))
    return Expression(bias, coefficients, generators, error, sized(bias, coefficients, largest))


def straightened(x: Expression, slope: Array, offset: Array, errors: Array, largest: Array) -> Expression:
    """slope x + offset with one more generator, of size `errors`, for each entry that has an error; all (1, *shape)."""
    bias, coefficients = slope * x.bias + offset, slope * x.coefficients
    size = sized(bias, coefficients, largest)
    own = np.flatnonzero(errors)
    added = np.zeros((len(own), errors.size))
    added[np.arange(len(own)), own] = errors.ravel()[own]
    generators = np.concatenate([slope * x.generators, added.reshape(len(own), *x.shape)])
    error = np.abs(slope) * x.error + gamma(2) * (np.abs(slope) * x.size + np.abs(offset))
    return Expression(bias, coefficients, generators, error, size)
