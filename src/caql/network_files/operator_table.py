"""Every ONNX operator that can be read: its function, and the least and the largest number of its inputs."""

from __future__ import annotations

import math
from functools import partial

from caql.graphs.activations import Abs, Cos, Erf, Mish, Relu, Sigmoid, Sin, Softplus, Softsign, Tanh
from caql.graphs.opaque import OPAQUE
from caql.graphs.operations import Add, Divide, MatMul
from caql.network_files import operators as op
from caql.network_files import shaping
from caql.network_files import state_functions as state
from caql.network_files.operators import Operator, simple

OPERATORS: dict[str, tuple[Operator, int, float]] = {
    "Gemm": (op.gemm, 2, 3),
    "MatMul": (simple(MatMul()), 2, 2),
    "Add": (simple(Add()), 2, 2),
    "Sub": (op.subtract, 2, 2),
    "Mul": (op.multiply, 2, 2),
    "Div": (simple(Divide()), 2, 2),
    "Neg": (op.negative, 1, 1),
    "Sum": (op.total, 1, math.inf),
    "Max": (op.largest, 1, math.inf),
    "Min": (op.smallest, 1, math.inf),
    "Relu": (simple(Relu()), 1, 1),
    "LeakyRelu": (op.leaky, 1, 1),
    "PRelu": (op.prelu, 2, 2),
    "Abs": (simple(Abs()), 1, 1),
    "Clip": (op.clip, 1, 3),
    "HardSigmoid": (op.hard_sigmoid, 1, 1),
    "Tanh": (simple(Tanh()), 1, 1),
    "Sigmoid": (simple(Sigmoid()), 1, 1),
    "Softplus": (simple(Softplus()), 1, 1),
    "Elu": (op.elu, 1, 1),
    "Selu": (op.selu, 1, 1),
    "Gelu": (op.gelu, 1, 1),
    "Celu": (op.celu, 1, 1),
    "HardSwish": (op.hard_swish, 1, 1),
    "Swish": (op.swish, 1, 1),
    "Mish": (simple(Mish()), 1, 1),
    "Softsign": (simple(Softsign()), 1, 1),
    "Sin": (simple(Sin()), 1, 1),
    "Cos": (simple(Cos()), 1, 1),
    "Erf": (simple(Erf()), 1, 1),
    "BatchNormalization": (op.batch_norm, 5, 5),
    "Identity": (op.first, 1, 1),
    "Dropout": (op.dropout, 1, 3),
    "Cast": (state.cast, 1, 1),
    "Softmax": (state.softmax, 1, 1),
    "LayerNormalization": (state.layer_norm, 2, 3),
    "Reshape": (shaping.reshape, 1, 2),
    "Flatten": (shaping.flatten, 1, 1),
    "Squeeze": (shaping.squeeze, 1, 2),
    "Unsqueeze": (shaping.unsqueeze, 1, 2),
    "Transpose": (shaping.transpose, 1, 1),
    "Concat": (shaping.concat, 1, math.inf),
    "Slice": (shaping.slice_, 1, 5),
    "Split": (shaping.split, 1, 2),
    "Gather": (shaping.gather, 2, 2),
    "Expand": (shaping.expand, 2, 2),
    "Shape": (shaping.shape_of, 1, 1),
    "Pad": (shaping.pad, 1, 4),
    "ReduceSum": (partial(shaping.reduce, "Sum"), 1, 2),
    "ReduceMean": (partial(shaping.reduce, "Mean"), 1, 2),
    "ReduceMax": (partial(shaping.reduce, "Max"), 1, 2),
    "ReduceMin": (partial(shaping.reduce, "Min"), 1, 2),
    "Conv": (shaping.conv, 2, 3),
    "MaxPool": (shaping.max_pool, 1, 1),
    "AveragePool": (shaping.average_pool, 1, 1),
    "GlobalAveragePool": (partial(shaping.global_pool, "Average"), 1, 1),
    "GlobalMaxPool": (partial(shaping.global_pool, "Max"), 1, 1),
    **{name: (state.opaque(name), 1, 1) for name in OPAQUE if name != "Pow"},
    "Pow": (state.opaque("Pow"), 2, 2),
}
