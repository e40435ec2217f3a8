"""The built-in encoders as graphs: what `caql.encoders` computes in JAX, for files that are read without it.

    pixels (height, width, channels)  ->  [/ 255]  ->  convolutions with ReLU  ->  a layer with ReLU
                                                       and, for keypoints, the centre of mass of each channel

An encoder of a user's own is code, which no graph can hold.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from caql.encoders import Cnn, FlatEncoder, Keypoints
from caql.errors import CaqlError
from caql.graphs.activations import Relu
from caql.graphs.builder import Builder
from caql.graphs.operations import Array, Divide, MatMul, SumLast
from caql.graphs.windows import Windows, convolve


class Encoding(NamedTuple):
    """An encoder and its parameters, (size,)."""

    encoder: FlatEncoder
    vector: Any

    def features(self, builder: Builder, name: str) -> tuple[int, int]:
        """The observation, as an input of that name, and the features of it, (k,).

        Raises `CaqlError` for an encoder that is not built in.
        """
        encoder = self.encoder.encoder
        if not isinstance(encoder, Cnn) or type(encoder) not in (Cnn, Keypoints):
            raise CaqlError(
                f"an encoder of your own ({type(encoder).__name__}) is code and cannot be exported; right would be "
                "model.q_layers(), written by caql.network_files.export.write_onnx, behind model.q_inputs(observations)"
            )
        state = builder.input(self.encoder.shape, name)
        pixels = builder.scale(state, 1.0 / 255.0) if self.encoder.dtype == np.uint8 else state
        filters, ((weights, bias),) = self.encoder.parameters(self.vector)
        maps = _convolved(builder, pixels, filters, encoder.strides_for(self.encoder.shape))
        _, channels, height, width = builder.shape(maps)
        last = builder.reshape(builder.transpose(maps, (0, 2, 3, 1)), (height * width * channels,))
        found = [builder.add(Relu(), builder.dense(last, _exact(weights), _exact(bias)))]
        if isinstance(encoder, Keypoints):
            found = [*_centres(builder, builder.reshape(maps, (channels, height * width)), height, width), *found]
        return state, builder.concat(found, 0)


def _exact(array: Any) -> Array:
    return np.asarray(array, np.float64)


def _convolved(builder: Builder, pixels: int, filters: Any, strides: list[int]) -> int:
    """The maps (1, channels, height, width) of an image (height, width, channels)."""
    shape = builder.shape(pixels)
    maps = builder.transpose(builder.reshape(pixels, (1, *shape)), (0, 3, 1, 2))
    for (kernel, shift), stride in zip(filters, strides, strict=True):
        kernels = _exact(kernel).transpose(3, 2, 0, 1)
        windows = Windows(kernels.shape[2:], (stride, stride), (1, 1), ((0, 0), (0, 0)))
        maps = builder.add(Relu(), convolve(builder, maps, kernels, _exact(shift), windows, 1))
    return maps


def _centres(builder: Builder, maps: int, height: int, width: int) -> list[int]:
    """Where each of (channels, height * width) maps is active: along the rows, and along the columns."""
    rows, columns = (np.linspace(-1.0, 1.0, side) for side in (height, width))
    mass = builder.shift(builder.add(SumLast(), maps), 0.01)
    places = np.repeat(rows, width), np.tile(columns, height)
    sums = [builder.add(MatMul(), maps, builder.constant(each)) for each in places]
    return [builder.add(Divide(), each, mass) for each in sums]
