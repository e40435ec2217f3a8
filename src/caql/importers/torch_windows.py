"""torch's convolutions, poolings and paddings as functions: the layers of the same kind, with their settings given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.importers.torch_layers import LAYERS, convolution, padded
from caql.importers.torch_values import Function, constant_of, node_of

POOL = ("stride", "padding")
_POOL = {"stride": None, "padding": 0, "ceil_mode": False}


def _layer(kind: str, order: tuple[str, ...], **defaults: Any) -> Function:
    """A layer of torch as a function; `order` of the settings that may be given without their names."""

    def applied(builder: Builder, x: Any, *given: Any, **settings: Any) -> int:
        if settings.pop("return_indices", False):
            raise CaqlError(f"{builder.label}: its values, not their indices, can be read")
        named = dict(zip(order, given, strict=False)) | settings
        if len(given) > len(order) or not set(named) <= {*defaults, *order}:
            raise CaqlError(f"{builder.label}: it can be read with {', '.join(order)}, {', '.join(defaults)}")
        layer = type(kind, (SimpleNamespace,), {})(**{**defaults, **named})
        return LAYERS[kind](builder, layer, node_of(builder, x))

    return applied


def _convolve(builder: Builder, x: Any, weight: Any, bias: Any = None, *given: Any, **settings: Any) -> int:
    named = dict(zip(("stride", "padding", "dilation", "groups"), given, strict=False)) | settings
    kernels = constant_of(builder, weight, "weight")
    shift = None if bias is None else constant_of(builder, bias, "bias")
    layer = SimpleNamespace(**({"stride": 1, "padding": 0, "dilation": 1, "groups": 1} | named), padding_mode="zeros")
    return convolution(builder, node_of(builder, x), kernels, shift, layer)


def _pad(builder: Builder, x: Any, pad: Any, mode: str = "constant", value: float | None = None) -> int:
    return padded(builder, node_of(builder, x), list(pad), mode, 0.0 if value is None else float(value))


WINDOWS: dict[str, Function] = {
    "pad": _pad,
    **{f"conv{n}d": _convolve for n in (1, 2, 3)},
    **{
        f"max_pool{n}d": _layer(
            f"MaxPool{n}d", ("kernel_size", *POOL, "dilation", "ceil_mode"), dilation=1, **_POOL
        )
        for n in (1, 2, 3)
    },
    **{
        f"avg_pool{n}d": _layer(
            f"AvgPool{n}d",
            ("kernel_size", *POOL, "ceil_mode", "count_include_pad", "divisor_override"),
            count_include_pad=True,
            divisor_override=None,
            **_POOL,
        )
        for n in (1, 2, 3)
    },
    **{f"adaptive_{kind.lower()}_pool{n}d": _layer(f"Adaptive{kind}Pool{n}d", ("output_size",))
       for kind in ("Avg", "Max") for n in (1, 2, 3)},
}  # fmt: skip
