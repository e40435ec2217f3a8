"""torch modules become networks that compute the same."""

import numpy as np
import pytest

from caql import maximize, network
from caql.errors import CaqlError

torch = pytest.importorskip("torch")
nn = torch.nn
X = np.random.default_rng(0).normal(size=(20, 6))


def same(module, found, x: np.ndarray, shape: tuple[int, ...] | None = None) -> None:
    module = module.double().eval()
    with torch.no_grad():
        expected = module(torch.tensor(x if shape is None else x.reshape(len(x), *shape))).numpy()
    np.testing.assert_allclose(found.evaluate(x[:, :0], x), expected.reshape(len(x), -1), rtol=1e-12, atol=1e-12)


def sequential(activation):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), activation, nn.Flatten(), nn.Linear(8, 5), nn.Dropout(0.5), nn.ReLU(), nn.Linear(5, 1)
    )


ACTIVATIONS = [
    nn.ReLU(), nn.LeakyReLU(0.3), nn.PReLU(), nn.PReLU(8), nn.ReLU6(), nn.Hardtanh(-0.5, 0.7), nn.Hardsigmoid(),
    nn.Tanh(), nn.Sigmoid(), nn.Softplus(), nn.Softplus(beta=2), nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.ELU(0.7),
    nn.SELU(), nn.BatchNorm1d(8), nn.Identity(), nn.Hardswish(), nn.Mish(), nn.Softsign(), nn.CELU(0.6),
    nn.LogSigmoid(),
    nn.Tanhshrink(), nn.Softshrink(0.3), nn.RReLU(), nn.Threshold(0.1, 0.1), nn.AlphaDropout(0.2), nn.LayerNorm(8),
    nn.Softmax(dim=1), nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.Unflatten(1, (2, -1)),
]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_activations(activation) -> None:
    module = sequential(activation).double()
    if isinstance(activation, nn.BatchNorm1d):
        module.train()(torch.tensor(X))
    # Read first: whatever is handed over is taken as at inference.
    same(module, network(module), X)


IMAGES = [
    nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(1, 2, (2, 3), stride=2, padding="valid"),
    nn.Conv2d(1, 2, 3, padding="same"), nn.Conv2d(1, 2, 2, dilation=2), nn.MaxPool2d(2),
    nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(2),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(2, padding=1, count_include_pad=False),
    nn.AdaptiveAvgPool2d(1), nn.AdaptiveMaxPool2d(1), nn.ZeroPad2d((1, 0, 2, -1)), nn.ConstantPad2d(1, 0.7),
    nn.ReflectionPad2d((1, 2, 0, 1)), nn.ReplicationPad2d(2),
    *[nn.Conv2d(1, 2, 3, padding=(2, 1), padding_mode=mode) for mode in ("reflect", "replicate", "circular")],
]  # fmt: skip


@pytest.mark.parametrize("layer", IMAGES, ids=str)
def test_images(layer) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(layer, nn.ReLU(), nn.Flatten())
    same(module, network(module, shapes={"input": (1, 5, 6)}), X.repeat(5, axis=1), (1, 5, 6))


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(10, 1)

    def forward(self, state, action):
        hidden = torch.relu(self.first(torch.cat([state, action], dim=1)))
        hidden = hidden + nn.functional.leaky_relu(self.second(hidden), 0.2)
        value = self.last(torch.cat((hidden, action.clamp(-0.5, 0.5)), -1)) / 2 - 1
        return torch.maximum(value, 0.1 * value.abs()).squeeze(-1)


def test_a_module_of_two_inputs() -> None:
    torch.manual_seed(1)
    module = Critic().double()
    found = network(module, shapes={"state": 4, "action": 2})
    with torch.no_grad():
        expected = module(torch.tensor(X[:, :4]), torch.tensor(X[:, 4:])).numpy()
    np.testing.assert_allclose(found.evaluate(X[:, :4], X[:, 4:])[:, 0], expected, rtol=1e-12)
    solution = maximize(found, -1, 1, states=X[:3, :4])
    assert (solution.status == 0).all()


class Shaped(nn.Module):
    """One vector of 18 numbers, cut, stacked to a picture of two channels, pooled and indexed."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(7, 1)

    def forward(self, x):
        first, second = torch.split(x, [8, 10], dim=1)
        third, fourth = second[:, 2:].chunk(2, dim=1)
        image = torch.stack([first, torch.cat([third, fourth], 1)], dim=1).view(-1, 2, 4, 2)
        image = image.transpose(2, 3).permute(0, 1, 3, 2)
        largest = nn.functional.max_pool2d(image, 2, stride=1)  # (N, 2, 3, 1)
        mean = nn.functional.avg_pool2d(image, (4, 2))
        joined = torch.cat([largest.flatten(1), nn.functional.hardsigmoid(mean[:, 0, 0])], 1)
        return self.last(joined)[..., 0]


def test_a_module_that_cuts_and_rearranges() -> None:
    torch.manual_seed(2)
    module, x = Shaped().double(), np.random.default_rng(0).normal(size=(5, 18))
    with torch.no_grad():
        expected = module(torch.tensor(x)).numpy()
    found = network(module, shapes={"x": 18})
    np.testing.assert_allclose(found.evaluate(x[:, :0], x)[:, 0], expected, rtol=1e-12)


class Reduced(nn.Module):
    """Extremes, sums and means along sides, shapes that are read off, a dropout as a function."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(13, 1)

    def forward(self, x):
        y = nn.functional.dropout(self.first(x), 0.5, self.training).view(x.size(0), 3, 4)
        largest, smallest = torch.max(y, 1)[0], y.min(dim=-1, keepdim=True)[0].flatten(1)
        middle = y.mean((1, 2), keepdim=True).reshape(x.shape[0], 1)
        parts = [largest, smallest, middle, torch.amax(y, 2).sum(1, keepdim=True), torch.max(y, dim=1).values]
        return self.last(torch.cat(parts, 1))


def test_a_module_that_reduces() -> None:
    torch.manual_seed(3)
    module = Reduced().double()
    same(module.eval(), network(module, shapes={"x": 6}), X)


class Largest(nn.Module):
    def __init__(self, dim, part):
        super().__init__()
        self.dim, self.part = dim, part

    def forward(self, x):
        return torch.max(x, self.dim)[self.part]


class Total(nn.Module):
    def forward(self, x):
        return x.sum()


class Listed(nn.Module):
    def forward(self, x):
        return x[[0]]


class Shape(nn.Module):
    def forward(self, x):
        return x.shape


class Computed(nn.Module):
    def forward(self, x):
        return x[x]


class Indices(nn.Module):
    def forward(self, x):
        return nn.functional.max_pool1d(x, 2, return_indices=True)[0]


class Parts(nn.Module):
    def forward(self, x):
        return x.split(2, dim=1)


class Uneven(nn.Module):
    def forward(self, x):
        return x.split([2, 2], dim=1)[0]


def test_a_state_dict() -> None:
    module = nn.Sequential(*[layer for k in range(11) for layer in (nn.Linear(6, 6), nn.ReLU())], nn.Linear(6, 1))
    same(module, network(module.double().state_dict()), X)
    tanh = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    same(tanh, network(tanh.state_dict(), activation="tanh"), X)


class Product(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 1)


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def hooked():
    layer = nn.Linear(6, 1)
    layer.register_forward_hook(lambda module, given, found: 2 * found)
    return layer


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (
            nn.Sequential(nn.Linear(6, 3), nn.GLU()),
            {"shapes": {"input": 6}},
            "torch's GLU cannot be read; known are Linear",
        ),
        (Product(), {"shapes": {"x": 6}}, "torch's cumsum cannot be read; known are relu"),
        (Branching(), {"shapes": {"x": 6}}, "cannot be traced"),
        (Computed(), {"shapes": {"x": 6}}, "right would be numbers and slices"),
        (Indices(), {"shapes": {"x": 6}}, "torch's max_pool1d_with_indices cannot be read"),
        (Largest(1, 1), {"shapes": {"x": 6}}, "part 1 is asked for; its values, not their indices, can be read"),
        (Largest(0, 0), {"shapes": {"x": 6}}, "it goes over the batch (dim 0); right would be dim = 1 or later"),
        (Largest(2, 0), {"shapes": {"x": 6}}, "dim = 2 is not a side of a value with 2 sides"),
        (Total(), {"shapes": {"x": 6}}, "it goes over all sides, the batch's too; right would be dim = 1 or later"),
        (Listed(), {"shapes": {"x": 6}}, "right would be numbers and slices"),
        (Shape(), {"shapes": {"x": 6}}, "it is given a shape, (1, 6), where a value is meant"),
        (Parts(), {"shapes": {"x": 6}}, "the 3 parts of split; one is meant"),
        (Uneven(), {"shapes": {"x": 6}}, "lengths [2, 2] do not add up to 6"),
        (Critic(), {}, "the length of the input 'state' does not follow from the module; give shapes="),
        (nn.Linear(6, 1), {"colour": 1}, "colour = 1 has no meaning for this network; it takes shapes, action"),
        (torch.zeros(3), {}, "a torch Tensor is not a network"),
        (nn.BatchNorm1d(6, track_running_stats=False), {"shapes": {"input": 6}}, "keeps no statistics"),
        (nn.Softplus(threshold=1), {"shapes": {"input": 6}}, "at its threshold of 1 it jumps; right would be 20"),
        (nn.Threshold(0.1, 0.5), {"shapes": {"input": 6}}, "it jumps from 0.5 to 0.1"),
        (nn.PReLU(3), {"shapes": {"input": 6}}, "3 slopes do not fit the channels of shape (1, 6)"),
        (
            nn.Linear(6, 1),
            {"shapes": {"state": 6}},
            "shapes names 'state', which is not an input; its inputs are input",
        ),
        (nn.Linear(6, 1), {"shapes": {"input": -6}}, "shapes['input'] = -6 must be the size of one sample"),
        (hooked(), {}, "(Linear) has hooks, which may change what it computes"),
        ({"0.weight": np.zeros((2, 2, 2))}, {}, "dense layers only"),
        ({"0.weight": np.full((2, 2), np.nan)}, {}, "not finite"),
        ({"a": {"scale": 1}}, {}, "right would be kernel and bias"),
        ({}, {}, "it holds nothing"),
        (object(), {}, "is not a network that can be read"),
        ([], {}, "is not a network that can be read"),
    ],
)
def test_what_cannot_be_read_is_named(module, options: dict[str, object], message: str) -> None:
    with pytest.raises(CaqlError) as raised:
        network(module, **options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
