"""Learning is real: runs of minutes against return thresholds (`make slow-test`)."""

import dataclasses

import pytest

from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.curves import smooth
from caql.maxq.solvers import make_solver
from caql.training import Training

pytestmark = pytest.mark.slow


def best_smoothed_return(config: RunConfig) -> float:
    """The best six-evaluation mean of a run, stopped as soon as nothing more is asked of it."""
    training = Training(config)
    for _ in training.epochs():
        pass
    curve = smooth([row["return"] for row in training.records])
    print(f"{config.task} {config.agent.solver.name} seed {config.seed}: best {curve.max():.1f}, last {curve[-1]:.1f}")
    return float(curve[5:].max())


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("solver", ["ga", "cem", "exact"])
def test_pendulum_is_swung_up(solver, seed):
    config = RunConfig("Pendulum", train_steps=60_000, seed=seed, agent=CAQLConfig(solver=make_solver(solver)))
    if solver == "exact":
        config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, relative_tolerance=1e-4))
    assert best_smoothed_return(config) > -200


def test_hopper_hops():
    assert best_smoothed_return(RunConfig("Hopper", train_steps=60_000)) > 200
