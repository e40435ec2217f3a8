"""Short seeded runs end in recorded weights: a change that is meant to change nothing changes no bit.

`digests.json` holds, for each run, a digest of every weight and a few of the weights themselves.  Which bits a
compiler makes depends on the processor and on the libraries' versions, so digests are compared where those are the
recorded ones; anywhere else the recorded weights must come out to a few digits.

To record again, on purpose:  python -m tests.test_digests
"""

import hashlib
import json
import platform
from dataclasses import replace
from pathlib import Path

import jax
import numba
import numpy as np
import pytest

from caql.agents import agent_config
from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.maxq.solvers import make_solver
from caql.runs.training import Training

RECORDED = Path(__file__).parent / "digests.json"
SAMPLED = 16


def configurations() -> dict[str, RunConfig]:
    small = {
        "train_steps": 20,
        "steps_per_epoch": 5,
        "episode_steps": 20,
        "warm_up": 40,
        "batch_size": 16,
        "evaluate_every": 0,
        "action_range": 1.0,
        "seed": 7,
    }
    shape = {"hidden": (8, 6), "action_hidden": (8, 4)}
    exact = make_solver("exact", threads=1)
    agents = {name: agent_config(name) for name in ("naf", "ddpg", "td3", "sac", "qt-opt", "actor-expert")}
    caql = {
        "ga": {},
        "ga-fixed-step": {"solver": make_solver("ga", line_search=False, normalise=False, restarts=1)},
        "cem": {"solver": make_solver("cem")},
        "exact": {"solver": exact},
        "mip": {"solver": make_solver("mip", backend="highs", threads=1)},
        "hinge": {"loss": "hinge", "hinge_penalty_learning_rate": 0.01},
        "speedups": {"dual_filter": True, "cluster_radius": 0.25, "dynamic_tolerance": 1.0, "cluster_decay": 0.9},
        "speedups-exact": {"solver": exact, "dual_filter": True, "cluster_radius": 0.25, "clipped_double_q": True},
        "dual": {"dual_only": True},
        "dual-labels": {"action_labels": "dual", "squash": "straight_through"},
    }
    agents |= {f"caql-{name}": CAQLConfig(**shape, **settings) for name, settings in caql.items()}
    # The penalty is part of the state in every CAQL run, and was 1 by default when the digests were recorded.
    agents |= {name: replace(agent, hinge_penalty=1.0) for name, agent in agents.items() if agent.name == "caql"}
    return {name: RunConfig("Pendulum", agent=agent, **small) for name, agent in agents.items()}


def machine() -> str:
    """What the bits depend on: the libraries and the processor."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        wanted = ("vendor_id", "cpu family", "model", "flags")
        lines = dict.fromkeys(line for line in info.read_text().splitlines() if line.split("\t")[0] in wanted)
        processor = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return f"jax {jax.__version__}, numba {numba.__version__}, numpy {np.__version__}, processor {processor}"


def weights(config: RunConfig) -> np.ndarray:
    """Everything that the run has learned, end to end."""
    training = Training(config)
    for _ in training.epochs():
        pass
    leaves = jax.tree.leaves(jax.device_get(training.state))
    return np.concatenate([np.ravel(np.asarray(leaf, np.float32)) for leaf in leaves])


def describe(vector: np.ndarray) -> dict[str, object]:
    sample = vector[np.linspace(0, len(vector) - 1, SAMPLED).astype(int)]
    return {"digest": hashlib.sha256(vector.tobytes()).hexdigest(), "weights": [float(w) for w in sample]}


@pytest.mark.parametrize("name", configurations())
def test_a_short_run_ends_in_the_recorded_weights(name):
    recorded = json.loads(RECORDED.read_text())
    found = describe(weights(configurations()[name]))
    if recorded["machine"] == machine():
        assert found["digest"] == recorded["runs"][name]["digest"]
    np.testing.assert_allclose(found["weights"], recorded["runs"][name]["weights"], rtol=1e-2, atol=1e-4)


if __name__ == "__main__":
    runs = {name: describe(weights(config)) for name, config in configurations().items()}
    RECORDED.write_text(json.dumps({"machine": machine(), "runs": runs}, indent=1) + "\n")
