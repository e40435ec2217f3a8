"""Our baselines beside Stable-Baselines3's and SBX's: the cost of a gradient step, of a whole run, and the returns.

    pip install -e ".[bench]"
    python benchmarks/against_stable_baselines3.py                               # speed, about ten minutes
    python benchmarks/against_stable_baselines3.py --returns 40000 --seeds 5     # and returns: hours, mostly SB3's

Everyone gets the same network (32 x 16), minibatch (64), rates, tau, replay buffer and protocol: one episode of at
most 200 steps, then 20 gradient steps.  Gradient steps are timed twenty at a time and back to back, sampling from
the replay buffer included; whole runs by the environment steps that they make a second.  The contenders take turns, and
what is reported is each one's fastest, which other work on the machine disturbs least.  One thread each.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import gymnasium as gym
import jax
import numpy as np
import sbx
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise

from caql.agents import config_class
from caql.config import RunConfig
from caql.environments import TASKS
from caql.runs.training import Training

HIDDEN, BATCH, STEPS, EPISODE, RATE, TAU = (32, 16), 64, 20, 200, 0.001, 0.001
SIGMA, DECAY, MINIMUM = 1.0, 0.9995, 0.01
ALGORITHMS = ("ddpg", "td3", "sac")


class Ours:
    """A contender: trains for so many episodes, or takes gradient steps alone."""

    def __init__(self, task: str, agent: str, seed: int, tau: float) -> None:
        names = ["q_learning_rate"] if agent in ("naf", "caql") else ["critic_learning_rate", "actor_learning_rate"]
        if agent == "sac":
            names.append("temperature_learning_rate")
        settings = config_class(agent)(hidden=HIDDEN, target_rate=tau, **dict.fromkeys(names, RATE))
        self.training = Training(
            RunConfig(task, train_steps=10**9, evaluate_every=0, steps_per_epoch=STEPS, agent=settings, seed=seed)
        )
        self.epochs = self.training.epochs()
        self.rng, self.key = np.random.default_rng(seed), jax.random.key(seed)

    def train(self, episodes: int) -> int:
        before = self.training.environment_steps
        for _ in range(episodes):
            next(self.epochs)
        return self.training.environment_steps - before

    def learn(self) -> None:
        training = self.training
        batches = training.replay.sample(self.rng, STEPS, BATCH)
        training.state, statistics = training.agent.update(training.state, batches, self.key)
        jax.device_get(statistics)

    @property
    def train_steps(self) -> int:
        return self.training.train_step

    def evaluate(self) -> float:
        return float(np.mean(self.training.evaluate(10, 0)))


class NoiseDecay(BaseCallback):
    """The paper's schedule: the standard deviation falls after every episode."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        noise = self.model.action_noise
        if noise is not None:
            noise._sigma = np.maximum(MINIMUM, noise._sigma * DECAY)


class Theirs:
    """The same for Stable-Baselines3 and SBX, which share their interface."""

    def __init__(self, library: object, task: str, agent: str, seed: int, tau: float) -> None:
        env = gym.make(TASKS[task].id, max_episode_steps=EPISODE, disable_env_checker=True)
        size = env.action_space.shape[0]
        # Both rescale actions to [-1, 1] inside, and the noise with them: ours is scaled to the half range as well.
        settings = {} if agent == "sac" else {"action_noise": NormalActionNoise(np.zeros(size), np.full(size, SIGMA))}
        if library is sbx:
            settings["qf_learning_rate"] = RATE
        else:
            settings["device"] = "cpu"
        self.model = getattr(library, agent.upper())(
            "MlpPolicy",
            env,
            learning_rate=RATE,
            buffer_size=100_000,
            learning_starts=STEPS * BATCH,
            batch_size=BATCH,
            tau=tau,
            gamma=0.99,
            train_freq=(1, "episode"),
            gradient_steps=STEPS,
            policy_kwargs={"net_arch": list(HIDDEN)},
            seed=seed,
            **settings,
        )
        self.decay = NoiseDecay()
        self.train_steps = 0
        train = self.model.train

        def counted(*arguments: object, **named: object) -> None:
            train(*arguments, **named)
            self.train_steps += STEPS

        self.model.train = counted

    def train(self, episodes: int) -> int:
        """`episodes` of the full length: falls end an episode early, so that there may be more of them."""
        before = self.model.num_timesteps
        self.model.learn(episodes * EPISODE, callback=self.decay, reset_num_timesteps=before == 0, log_interval=10**9)
        return int(self.model.num_timesteps - before)

    def learn(self) -> None:
        self.model.train(gradient_steps=STEPS, batch_size=BATCH)

    def evaluate(self) -> float:
        env = gym.make(self.model.env.envs[0].spec.id, max_episode_steps=EPISODE, disable_env_checker=True)
        mean, _ = evaluate_policy(self.model, env, n_eval_episodes=10, warn=False)
        return float(mean)


Contender = Ours | Theirs


def contenders(task: str, tau: float) -> Iterator[tuple[str, str, Callable[[int], Contender]]]:
    """(library, algorithm, seed -> contender)."""
    for agent in ALGORITHMS:
        yield "ours", agent, lambda seed, agent=agent: Ours(task, agent, seed, tau)
        yield "SB3", agent, lambda seed, agent=agent: Theirs(sb3, task, agent, seed, tau)
        yield "SBX", agent, lambda seed, agent=agent: Theirs(sbx, task, agent, seed, tau)
    yield "ours", "naf", lambda seed: Ours(task, "naf", seed, tau)
    yield "ours", "caql", lambda seed: Ours(task, "caql", seed, tau)


def speed(task: str, tau: float, turns: int, episodes: int) -> None:
    """Print the microseconds of a gradient step, the environment steps per second, and the ratios."""
    entries = {(library, agent): make(0) for library, agent, make in contenders(task, tau)}
    step = dict.fromkeys(entries, float("inf"))
    rate = dict.fromkeys(entries, 0.0)
    for contender in entries.values():
        while contender.train_steps < 5 * STEPS:
            contender.train(1)
    for _ in range(turns):
        for name, contender in entries.items():
            for _ in range(10):
                began = time.perf_counter()
                contender.learn()
                step[name] = min(step[name], (time.perf_counter() - began) / STEPS * 1e6)
            began = time.perf_counter()
            count = contender.train(episodes)
            rate[name] = max(rate[name], count / (time.perf_counter() - began))

    print(f"\n{task}: one gradient step in microseconds, sampling included")
    print(f"{'':6}{'ours':>10}{'SB3':>10}{'SBX':>10}{'SB3/ours':>12}{'SBX/ours':>12}")
    for agent in ALGORITHMS:
        ours, theirs, jax_theirs = (step[library, agent] for library in ("ours", "SB3", "SBX"))
        print(f"{agent:6}{ours:10.0f}{theirs:10.0f}{jax_theirs:10.0f}{theirs / ours:12.1f}{jax_theirs / ours:12.2f}")
    print(f"{'naf':6}{step['ours', 'naf']:10.0f}")
    print(
        f"{'caql':6}{step['ours', 'caql']:10.0f}   gradient ascent, max-Q included: "
        f"{step['ours', 'caql'] / step['SBX', 'td3']:.2f} of an SBX TD3 step"
    )
    if task == "Pendulum":  # Elsewhere episodes end early, and each learner's at its own length.
        print(f"\n{task}: environment steps a second of a whole run, {STEPS} gradient steps an episode of {EPISODE}")
        print(f"{'':6}{'ours':>10}{'SB3':>10}{'SBX':>10}{'ours/SB3':>12}{'ours/SBX':>12}")
        for agent in ALGORITHMS:
            ours, theirs, jax_theirs = (rate[library, agent] for library in ("ours", "SB3", "SBX"))
            print(
                f"{agent:6}{ours:10.0f}{theirs:10.0f}{jax_theirs:10.0f}{ours / theirs:12.1f}{ours / jax_theirs:12.1f}"
            )


def returns(task: str, tau: float, train_steps: int, seeds: int, wanted: set[tuple[str, str]]) -> None:
    """Print the mean over seeds of ten greedy episodes' returns: at the end, and averaged over the last six marks."""
    print(f"\n{task}: returns after {train_steps} training steps, {seeds} seeds, tau {tau}", flush=True)
    for library, agent, make in contenders(task, tau):
        if (library, agent) not in wanted:
            continue
        finals = []
        for seed in range(seeds):
            contender, marks = make(seed), []
            while contender.train_steps < train_steps:
                contender.train(1)
                if contender.train_steps >= train_steps - (6 - len(marks)) * 1000 + 1000:
                    marks.append(contender.evaluate())
            finals.append(float(np.mean(marks)))
        each = " ".join(f"{value:.0f}" for value in finals)
        print(f"{agent:6}{library:6}{np.mean(finals):10.1f} +- {np.std(finals):.1f}   [{each}]", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["Pendulum", "Hopper"], choices=sorted(TASKS))
    parser.add_argument("--turns", type=int, default=15, help="turns of each contender; 0 skips the speeds")
    parser.add_argument("--episodes", type=int, default=5, help="episodes in a turn")
    parser.add_argument("--returns", type=int, default=0, metavar="TRAIN_STEPS", help="compare returns as well")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--libraries", nargs="+", default=["ours", "SB3", "SBX"], help="whose returns")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), help="which returns")
    parser.add_argument("--target-rate", type=float, default=TAU, help="tau of everyone")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    torch.set_num_threads(1)
    print(f"stable-baselines3 {sb3.__version__}, sbx {sbx.__version__}, torch {torch.__version__}, one thread")
    for task in arguments.tasks:
        if arguments.turns:
            speed(task, arguments.target_rate, arguments.turns, arguments.episodes)
        if arguments.returns:
            wanted = set(itertools.product(arguments.libraries, arguments.algorithms))
            returns(task, arguments.target_rate, arguments.returns, arguments.seeds, wanted)


if __name__ == "__main__":
    main()
