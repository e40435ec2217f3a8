"""Encoders of the observation: Q(x, a) = head(phi(x), a), where only the head must be piecewise linear.

For a fixed observation phi(x) is a constant, so any phi, convolutions, attention, what you like, is folded away with
the state: the solver sees the head's network of the action alone, and a certificate holds for the whole of Q.

An encoder is an object with two pure functions:

    init(key, shape) -> parameters                  any pytree of float32 arrays; `shape` is one observation's
    apply(parameters, observations) -> features     (B, *shape) -> (B, k) float32

Observations come as the environment gives them, uint8 for images and float32 for everything else.  `Cnn` is the one
for images, `Keypoints` the one for images in which places matter.  A configuration holds an encoder's name; `use` makes
an encoder of your own known by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from caql.errors import CaqlError
from caql.named_code import import_named
from caql.networks import Layers, init_layers


class Encoder(Protocol):
    """What turns observations into features."""

    def init(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        """Fresh parameters for observations of `shape`."""
        ...

    def apply(self, parameters: Any, observations: jax.Array) -> jax.Array:
        """Features (B, k) of observations (B, *shape)."""
        ...


@dataclass(frozen=True)
class Cnn:
    """Convolutions with ReLU, then one layer of `features` units with ReLU; images are (height, width, channels).

    Pixels in uint8 are divided by 255.  A convolution is left out unless three of its kernels fit side by side: images
    of 84 x 84 pixels take all of them, 16 x 16 the second alone.  Weights begin uniform in +-sqrt(6 / fan in), which
    keeps the size of a signal through ReLUs (He et al. 2015): a few bright pixels would be lost with less.
    """

    channels: tuple[int, ...] = (16, 16, 32)
    kernels: tuple[int, ...] = (8, 4, 3)
    strides: tuple[int, ...] = (4, 2, 2)
    features: int = 64

    def _convolutions(self, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
        if len(shape) != 3:
            raise CaqlError(
                f"CnnPolicy needs images (height, width, channels); the observations have shape {shape}; "
                "for vectors take 'MlpPolicy'"
            )
        side, found = min(shape[:2]), []
        for channels, kernel, stride in zip(self.channels, self.kernels, self.strides, strict=True):
            if 3 * kernel <= side:
                found.append((channels, kernel, stride))
                side = (side - kernel) // stride + 1
        return found

    def strides_for(self, shape: tuple[int, ...]) -> list[int]:
        """The strides of the convolutions that images of `shape` take."""
        return [stride for _, _, stride in self._convolutions(shape)]

    def fresh(self, key: jax.Array, sizes: tuple[int, ...]) -> Layers:
        """Layers before their first step: those of all networks, sqrt(6) times as large, with biases of zero."""
        return tuple((np.float32(math.sqrt(6.0)) * weights, 0 * bias) for weights, bias in init_layers(key, sizes))

    def init(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        convolutions, filters = self._convolutions(shape), []
        height, width, inputs = shape
        for channels, kernel, stride in convolutions:
            key, own = jax.random.split(key)
            ((weights, bias),) = self.fresh(own, (kernel * kernel * inputs, channels))
            filters.append((weights.reshape(kernel, kernel, inputs, channels), bias))
            height, width, inputs = (height - kernel) // stride + 1, (width - kernel) // stride + 1, channels
        return filters, self.fresh(key, (height * width * inputs, self.features))

    def apply(self, parameters: Any, observations: jax.Array) -> jax.Array:
        filters, ((weights, bias),) = parameters
        maps = self._maps(filters, observations)
        return jax.nn.relu(maps.reshape(len(maps), -1) @ weights + bias)

    def _maps(self, filters: Any, observations: jax.Array) -> jax.Array:
        """What the convolutions make of the pixels, (B, height, width, channels)."""
        pixels = observations.astype(jnp.float32) / (255.0 if observations.dtype == jnp.uint8 else 1.0)
        for (kernel, shift), stride in zip(filters, self.strides_for(observations.shape[1:]), strict=True):
            pixels = jax.nn.relu(_convolve(pixels, kernel, stride) + shift)
        return pixels


@dataclass(frozen=True)
class Keypoints(Cnn):
    """The features of `Cnn`, and where in the image each channel of its last convolution is active.

        y = sum_ij m_ij y_i / (sum_ij m_ij + 0.01),     x alike,

    with m >= 0 the channel's map and coordinates from -1 to 1: the centre of mass of what the channel responds to.  A
    head can compute with places at once, which it would have to learn pixel by pixel otherwise.
    """

    def apply(self, parameters: Any, observations: jax.Array) -> jax.Array:
        filters, ((weights, bias),) = parameters
        maps = self._maps(filters, observations)
        rows, columns = (jnp.linspace(-1.0, 1.0, side) for side in maps.shape[1:3])
        mass = maps.sum(axis=(1, 2)) + 0.01
        y = jnp.einsum("bijc,i->bc", maps, rows) / mass
        x = jnp.einsum("bijc,j->bc", maps, columns) / mass
        return jnp.concatenate([y, x, jax.nn.relu(maps.reshape(len(maps), -1) @ weights + bias)], axis=-1)


def _convolve(pixels: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """The convolution of (B, height, width, inputs) with (side, side, inputs, channels), without padding.

    As one product of matrices, with all windows beside each other: XLA's own convolution is many times slower on a CPU
    inside the loop over minibatches.
    """
    count, height, width, inputs = pixels.shape
    side = kernel.shape[0]
    tops, lefts = (np.arange(0, length - side + 1, stride) for length in (height, width))
    y = tops[:, None, None, None] + np.arange(side)[:, None]
    x = lefts[:, None, None] + np.arange(side)
    windows = pixels.reshape(count, height * width, inputs)[:, (y * width + x).reshape(-1)]
    flat = windows.reshape(count, len(tops), len(lefts), side * side * inputs)
    return flat @ kernel.reshape(-1, kernel.shape[-1])


_KNOWN: dict[str, Encoder] = {"cnn": Cnn(), "keypoints": Keypoints()}


def use(encoder: str | Encoder) -> str:
    """Make an encoder known, and say by which name: an object, or `MODULE:NAME` of one, which is imported.

    A saved model holds the name alone, because no file may say which code to run: call `use` again before it is loaded.
    Raises `CaqlError` for what is no encoder or cannot be imported.
    """
    if isinstance(encoder, str) and encoder in _KNOWN:
        return encoder
    found: Any = (
        import_named("encoder", encoder, "'cnn', 'keypoints' or MODULE:NAME") if isinstance(encoder, str) else encoder
    )
    if not all(callable(getattr(found, part, None)) for part in ("init", "apply")):
        raise CaqlError(f"encoder = {encoder!r} must have the functions init(key, shape) and apply(parameters, x)")
    kind = type(found)
    given = getattr(found, "__module__", kind.__module__), getattr(found, "__qualname__", kind.__qualname__)
    name = encoder if isinstance(encoder, str) else ":".join(given)
    _KNOWN[name] = found
    return name


def choose_encoder(policy: str, agent: str, settings: dict[str, Any]) -> None:
    """Put the encoder that a user's policy and settings ask for, by its name, into the settings.

    Raises `CaqlError` for an unknown policy, and for an encoder of any agent but CAQL.
    """
    if policy not in ("MlpPolicy", "CnnPolicy"):
        raise CaqlError(f"policy = {policy!r} is not known; take 'MlpPolicy', or 'CnnPolicy' for images")
    if policy == "CnnPolicy":
        settings.setdefault("encoder", "cnn")
    if settings.get("encoder") is not None:
        if agent != "caql":
            raise CaqlError(f"policy = {policy!r} with an encoder needs CAQL; {agent} takes vectors, with 'MlpPolicy'")
        settings["encoder"] = use(settings["encoder"])


class FlatEncoder:
    """An encoder bound to the form of a task's observations, its parameters in one vector.

    name: of `use`.  shape: one observation's.  dtype: what the environment gives, uint8 or float32.
    Raises `CaqlError` if the encoder is not known here or does not give features.
    """

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> None:
        if name not in _KNOWN:
            raise CaqlError(
                f"encoder = {name!r} is not known here, and files hold its name alone; "
                f"call caql.encoders.use({name!r}), or use(encoder) with the object, first"
            )
        self.encoder, self.shape, self.dtype = _KNOWN[name], shape, np.dtype(dtype)
        try:
            parameters = jax.eval_shape(lambda key: self.encoder.init(key, shape), jax.random.key(0))
        except CaqlError as problem:
            raise CaqlError(str(problem)) from None  # without JAX's remarks on its own frames
        if any(leaf.dtype != jnp.float32 for leaf in jax.tree.leaves(parameters)):
            raise CaqlError(f"encoder = {name!r} has parameters that are not float32")
        self.size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(parameters))
        self._parameters = parameters
        example = jax.ShapeDtypeStruct((2, *shape), self.dtype)
        found = jax.eval_shape(self.encoder.apply, parameters, example)
        if len(found.shape) != 2 or found.shape[0] != 2 or found.dtype != jnp.float32:
            raise CaqlError(
                f"encoder = {name!r} gives {found.dtype} of shape {found.shape} for two observations of shape {shape}; "
                "it must give float32 of shape (2, k)"
            )
        self.features: int = found.shape[1]

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh parameters, (size,)."""
        return ravel_pytree(self.encoder.init(key, self.shape))[0]

    def apply(self, vector: jax.Array, observations: jax.Array) -> jax.Array:
        """Features (B, k) of flat observations (B, n)."""
        given = observations.astype(self.dtype).reshape(-1, *self.shape)
        return self.encoder.apply(self.parameters(vector), given)

    def parameters(self, vector: jax.Array) -> Any:
        """The encoder's own parameters in a vector (size,)."""
        leaves, structure = jax.tree.flatten(self._parameters)
        ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])[:-1].tolist()
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(vector, ends), leaves, strict=True)]
        return jax.tree.unflatten(structure, parts)
