"""torch's functions and methods mean here what they mean in torch, however their arguments are given."""

import numpy as np
import pytest

from caql import network
from caql.errors import CaqlError

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional
SIDES = (4, 6)
X = np.random.default_rng(0).normal(size=(5, 24))
torch.manual_seed(0)


class Written(nn.Module):
    """One expression of a value x of shape (N, 4, 6), a matrix w, a row b and kernels k."""

    def __init__(self, expression: str) -> None:
        super().__init__()
        self.expression = expression
        self.w = nn.Parameter(torch.randn(6, 3, dtype=torch.float64))
        self.b = nn.Parameter(torch.randn(6, dtype=torch.float64))
        self.register_buffer("k", torch.randn(2, 2, 3, dtype=torch.float64))
        self.register_buffer("two", torch.tensor([2, 0]))

    def forward(self, x):
        names = {"x": x, "w": self.w, "b": self.b, "k": self.k, "two": self.two, "self": self}
        return eval(self.expression, {"torch": torch, "F": F}, names)


EXPRESSIONS = """
    torch.add(x, b, alpha=2.5) | x.sub(b, alpha=0.5) | torch.rsub(x, 3.0) | torch.mul(input=x, other=b)
    2 / (b * b + 1) * x | x.add_(b) | (x * 2).relu_() | F.relu(x + b, inplace=True) | x.negative() | +x
    torch.multiply(x, 2) | x.divide(b) | F.linear(x, w.t(), b[:3]) | F.linear(input=x, weight=w.T)
    torch.addmm(b[:3], x[:, 0], w) | torch.mm(x[:, 1], w) | x @ w | torch.bmm(x, w[None]) | x.matmul(b)
    w.mT @ x.transpose(-1, -2) | F.conv1d(x, k, None, 2, 1, 1, 2)
    F.conv1d(x, k, stride=1, padding='same', groups=2) | torch.conv1d(x, k, b[:2], groups=2)
    F.max_pool1d(x, 2, 1, 1, 1, True) | F.avg_pool1d(x, 3, 2, 1, True, False) | F.adaptive_avg_pool1d(x, 1)
    F.adaptive_max_pool1d(x, output_size=1) | F.pad(x, (1, -2)) | F.pad(x, [1, 0, 2, 1], value=0.5)
    F.pad(x, (2, 1), mode='reflect') | F.softplus(x, 2.0) | F.celu(x, alpha=0.6) | F.hardswish(x) | F.mish(x)
    F.softsign(x) | F.logsigmoid(x) | F.softshrink(x, 0.2) | F.tanhshrink(x) | F.threshold(x, 0.2, 0.2) | F.rrelu(x)
    F.prelu(x, b[:4]) | F.selu(x) | F.dropout(x, 0.5, self.training) | F.leaky_relu(x, negative_slope=-0.3)
    F.elu(x, 0.4) | F.gelu(x, approximate='tanh') | F.hardsigmoid(x) | torch.erf(x) | x.cos() | x.clamp(min=-0.2)
    torch.clamp(x, max=0.4) | x.clamp(0.4, -0.4) | x.clamp_min(0.1) | torch.clamp_max(x, 0.1) | abs(x)
    F.softmax(x, dim=-1) | torch.exp(x) | x ** 2 | torch.sqrt(x.abs()) | x.reshape(x.shape[0], -1)
    x.view(x.size(0), x.size(1) * 2, -1) | x.reshape(-1, x.shape[-1])[: x.shape[0] * 4] | x.flatten(1, -1)
    torch.flatten(x, start_dim=-2) | x.unflatten(2, (2, -1)) | x.squeeze() | x[:, :1].squeeze((1,))
    x.unsqueeze(-1) | x.split([1, 3], 1)[-1] | x.split(split_size=4, dim=2)[1]
    torch.split(x, split_size_or_sections=3, dim=-1)[0] | x.chunk(chunks=4, dim=2)[2] | x.unbind(1)[2]
    x.select(-1, -2) | x.narrow(2, -3, 2) | torch.index_select(x, 2, two) | x[:, 1:, ::2] | x[..., None, -1]
    x[:, -1] | torch.cat(tensors=[x, x], dim=-1) | torch.concatenate([x, -x], axis=1) | torch.stack((x, x), dim=-1)
    x.permute(0, -1, 1) | torch.permute(x, (0, 2, 1)) | x.mT | x.swapaxes(1, 2) | x.movedim(1, -1) | x.flip(1)
    torch.flip(x, [1, 2]) | x[:, :1].expand(-1, 3, 6) | x[:, :1].expand_as(x) + x | x.repeat(1, 2, 1)
    torch.tile(x, (2,)) | torch.broadcast_to(x, (1, 1, 4, 6)) | x.contiguous().clone().detach()
    x.to(torch.float64) | x.view_as(x) | x.dim() * x | x.numel() * x + x.ndim | x.sum((1, 2)) | x.mean(-1, True)
    torch.amax(x, dim=(1, 2), keepdim=True) | x.min(1).values | torch.max(x, 2, keepdim=True)[0]
    torch.max(x, other=-x) | torch.minimum(x, b)
"""
EACH = [each.strip() for line in EXPRESSIONS.strip().splitlines() for each in line.split(" | ")]


@pytest.mark.parametrize("expression", EACH)
def test_a_function_computes_what_torch_computes(expression: str) -> None:
    module = Written(expression).eval()
    found = network(module, shapes={"x": SIDES})
    for x in X:
        with torch.no_grad():
            expected = module(torch.tensor(x.reshape(1, *SIDES))).numpy()
        np.testing.assert_allclose(found.evaluate(X[:1, :0], x[None]), expected.reshape(1, -1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("x.add_(b) + x", "it changes x in place, which is used elsewhere too; right would be inplace=False"),
        ("F.relu(x.view(-1, 24), inplace=True).sum(1) + x.sum(1)", "it changes x in place"),
        (
            "x.div(b, rounding_mode='floor')",
            "it is called in a way that cannot be read, with its operands, rounding_mode",
        ),
        ("F.dropout(x)", "it is random, also at inference; right would be training=self.training"),
        ("x.to(torch.int64)", "a cast to torch.int64 rounds"),
        ("x.reshape(-1, 5)", "shape (-1, 5) cannot be made of 24 numbers"),
        ("x.expand(1, 4, 7)", "shape (1, 4, 6) cannot be expanded to (1, 4, 7)"),
        ("x.narrow(1, 2, 3)", "3 entries from 2 on do not lie within 4"),
        ("x.permute(0, 1, 1)", "dims [0, 1, 1] are not an order of the 3 sides"),
        ("x.T", "right would be permute or transpose"),
        ("F.conv1d(x, x)", "its weight is computed; right would be a parameter or a buffer"),
        ("F.adaptive_avg_pool1d(x, 2)", "output_size = 2 cannot be read; right would be 1"),
        ("F.pad(x, (7, 7), mode='reflect')", "is more than values of shape (1, 4, 6) can repeat"),
        ("(x, None)", "output1 of the module is a NoneType; right would be one value each"),
        ("F.avg_pool1d(x[0], 2)", "a value of shape (4, 6); right would be (N, C) and 1 sides"),
        ("F.adaptive_max_pool1d(x[0], 1)", "a value of shape (4, 6); right would be (N, C) and 1 sides"),
        ("F.celu(x, -1.0)", "alpha = -1 must be positive"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(expression: str, message: str) -> None:
    with pytest.raises(CaqlError) as raised:
        network(Written(expression), shapes={"x": SIDES})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_outputs_by_name_and_an_input_with_a_default() -> None:
    class Named(nn.Module):
        def forward(self, x, scale=2.0):
            return {"twice": x * scale, "less": x - 1.0}

    found = network(Named(), shapes={"x": 3})
    assert [port.name for port in found.outputs] == ["twice", "less"]
    np.testing.assert_allclose(found.evaluate(np.zeros((1, 0)), np.ones((1, 3))), [[2, 2, 2, 0, 0, 0]])


def test_a_module_is_read_as_at_inference_and_left_as_it_is() -> None:
    class Dropping(nn.Module):
        def forward(self, x):
            return F.dropout(x, training=self.training)

    module = Dropping().train()
    np.testing.assert_array_equal(
        network(module, shapes={"x": 2}).evaluate(np.zeros((1, 0)), np.ones((1, 2))), [[1, 1]]
    )
    assert module.training
