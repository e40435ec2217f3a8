"""Random torch modules compute here, and written as ONNX in onnxruntime, what torch computes; their maxima are proved.

A module applies random expressions to values that it has already; what torch itself refuses is left out.
"""

import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from caql import maximize, network
from caql.network_files.export import write_onnx

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional

STEPS = """
    F.relu(x) | F.leaky_relu(x, 0.3) | torch.tanh(x) | F.hardswish(x) | F.gelu(x) | F.softplus(x, 2.0) | x.abs()
    F.mish(x) | x.clamp(-0.5, 0.7) | x.clamp(max=0.4) | F.hardtanh(x) | F.elu(x, 0.6) | F.celu(x, 0.8)
    F.softsign(x) | torch.sin(x) | x + y | x - y | torch.add(x, y, alpha=-0.5) | torch.maximum(x, y)
    torch.min(x, y) | 2.0 - x | x / 3 | x * 0.5 - 1 | x.reshape(1, -1) | x.flatten(1) | x.unsqueeze(1) | x.squeeze()
    x.transpose(-1, -2) | x.flip(-1) | x.mT | x[..., ::2] | x[:, 1:] | x[..., -1:] | torch.cat([x, y], -1)
    torch.stack([x, y], 1) | x.chunk(2, -1)[0] | x.split(2, 1)[-1] | x.mean(-1, keepdim=True) | x.sum(1)
    x.amax(-1) | x.min(1).values | torch.max(x, -1, keepdim=True)[0] | F.pad(x, (1, 1))
    F.pad(x, (1, 0), mode='replicate') | F.max_pool1d(x.reshape(1, 1, -1), 2, 1)
    F.avg_pool1d(x.reshape(1, 1, -1), 2, 2, 1) | x.repeat(1, 2)
    x @ w[: x.shape[-1]] | F.linear(x, w.T[:, : x.shape[-1]]) | w[:3, :1] * x.sum(-1, True) | F.prelu(x, w[0, :1])
    F.conv1d(x.reshape(1, 1, -1), w[:2, :2].reshape(2, 1, 2), padding=1)
"""
EACH = [each.strip() for line in STEPS.strip().splitlines() for each in line.split(" | ")]


class Drawn(nn.Module):
    """Expressions of earlier values, each with the numbers of two of them, x and y."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.w = nn.Parameter(torch.tensor(rng.normal(size=(24, 3)) / 2), requires_grad=False)
        self.steps: list[tuple[str, int, int]] = []
        self.shape = [(5,), (3, 4), (2, 6)][int(rng.integers(3))]
        values = [torch.tensor(rng.normal(size=(1, *self.shape)))]
        for _ in range(int(rng.integers(2, 8))):
            first, second = (max(0, len(values) - 1 - int(k)) for k in rng.integers(0, 3, 2))
            step = str(rng.choice(EACH)), first, second
            try:
                made = self.made(step, values)
            except (RuntimeError, IndexError, ValueError):
                continue
            if 0 < made.numel() < 100:
                self.steps.append(step)
                values.append(made)

    def made(self, step, values):
        names = {"x": values[step[1]], "y": values[step[2]], "w": self.w}
        return eval(step[0], {"torch": torch, "F": F}, names)

    def forward(self, x):
        values = [x]
        for step in self.steps:
            values.append(self.made(step, values))
        return tuple(values[-2:])


@pytest.mark.parametrize("seed", range(60))
def test_a_random_module(tmp_path: Path, seed: int) -> None:
    module, rng = Drawn(seed), np.random.default_rng(seed)
    found = network(module, shapes={"x": module.shape})
    x = rng.normal(size=(2, *module.shape))
    flat = x.reshape(2, -1)
    expected = [np.concatenate([each.numpy().ravel() for each in module(torch.tensor(one[None]))]) for one in x]
    np.testing.assert_allclose(found.evaluate(flat[:, :0], flat), expected, rtol=1e-10, atol=1e-10)
    write_onnx(found, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    again = session.run(None, {"x": x.astype(np.float32)})
    together = np.concatenate([each.reshape(2, -1) for each in again], axis=1)
    np.testing.assert_allclose(together, expected, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(expected).max()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a limit is no failure here
        solution = maximize(found, -1.5, 1.5, flat[:1, :-2], output=0, tolerance=1e-3, node_limit=30)
    sampled = found.evaluate(flat[:1, :-2].repeat(200, axis=0), rng.uniform(-1.5, 1.5, (200, 2)))[:, 0]
    assert max(sampled.max(), solution.values[0]) <= solution.upper[0] + 1e-9 * max(1.0, np.abs(sampled).max())
