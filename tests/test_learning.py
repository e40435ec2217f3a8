"""Learning is real: runs of minutes against return thresholds (`make slow-test`)."""

import dataclasses

import pytest

from caql.agents.caql import CAQLConfig
from caql.agents.policies import Exploration
from caql.config import RunConfig
from caql.maxq.solvers import make_solver
from caql.runs.curves import smooth
from caql.runs.training import Training

pytestmark = pytest.mark.slow


def steps_to_reach(config: RunConfig, enough: float) -> int | None:
    """Training steps after which the mean of six evaluations passes `enough`, or None if it never does."""
    training = Training(config)
    for epoch in training.epochs():
        if epoch.evaluation is not None and len(training.records) >= 6:
            mean = smooth([row["return"] for row in training.records])[-1]
            if mean > enough:
                print(f"{config.task} {config.agent.solver.name} seed {config.seed}: {mean:.1f} at {epoch.train_step}")
                return epoch.train_step
    return None


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("solver", ["ga", "cem", "exact"])
def test_pendulum_is_swung_up(solver, seed):
    config = RunConfig("Pendulum", train_steps=60_000, seed=seed, agent=CAQLConfig(solver=make_solver(solver)))
    if solver == "exact":
        config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, relative_tolerance=1e-4))
    assert steps_to_reach(config, -200) is not None


def test_hopper_hops():
    assert steps_to_reach(RunConfig("Hopper", train_steps=60_000), 200) is not None


@pytest.mark.parametrize("seed", [0, 1])
def test_cartpole_is_balanced_with_a_proved_choice(seed):
    agent = CAQLConfig(solver=make_solver("exact"), target_rate=0.01, exploration=Exploration(decay=0.98, minimum=0.02))
    loop = {"train_steps": 15_000, "steps_per_epoch": 50, "warm_up": 500, "evaluate_every": 500}
    assert steps_to_reach(RunConfig("CartPole-v1", agent=agent, seed=seed, **loop), 195) is not None


def test_platform_is_crossed_most_of_the_way():
    """The goal is a return of 1; untrained it is 0.08, and 1 in the end after 30,000 steps."""
    exploration = Exploration(decay=0.999, minimum=0.05)
    agent = CAQLConfig(
        solver=make_solver("exact"),
        relative_tolerance=1e-4,
        discount=0.95,
        target_rate=0.01,
        exploration=exploration,
    )
    loop = {"train_steps": 15_000, "steps_per_epoch": 10, "warm_up": 500}
    assert steps_to_reach(RunConfig("Platform", agent=agent, **loop), 0.75) is not None


@pytest.mark.parametrize(("encoder", "enough", "seed"), [*(("keypoints", -3.0, k) for k in range(3)), ("cnn", -5.0, 0)])
def test_a_dot_is_steered_from_its_pixels(encoder, enough, seed):
    """The best policy scores -1.3 an episode; an untrained one between -18 and -32."""
    agent = CAQLConfig(
        encoder=encoder,
        hidden=(64, 64),
        action_hidden=(64, 64),
        discount=0.9,
        target_rate=0.01,
        exploration=Exploration(decay=0.995, minimum=0.1),
    )
    loop = {"train_steps": 16_000, "steps_per_epoch": 10, "warm_up": 400, "evaluate_every": 1000}
    assert steps_to_reach(RunConfig("Dot", agent=agent, seed=seed, **loop), enough) is not None
