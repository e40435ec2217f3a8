"""What keeps CAQL from learning Dot from its pixels: the same runs with one thing changed at a time.

    python benchmarks/pixels.py --seeds 0 1
    python benchmarks/pixels.py --supervised

A row is an encoder and a number of gradient steps for each episode of 40 steps, 15,000 of them in all.  `coordinates`
are the true places, computed from the light: what a perfect encoder would give.  `small weights` is `cnn` with the
initial weights of all other networks, uniform in +-1/sqrt(fan in).  Printed are the mean return of 30 new episodes, for
the action function, and processor time.  The best policy scores -1.1 in these episodes.

`--supervised` fits the encoders with the same head to the value of the best policy, from states drawn at random and
random actions, and prints the mean square error at the states that were learned from and at others.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from caql import encoders
from caql.agents.caql import CAQLConfig
from caql.agents.policies import Exploration
from caql.config import RunConfig
from caql.encoders import Cnn, Keypoints
from caql.networks import Layers, forward, init_layers
from caql.runs.training import Training
from caql.tasks.dot import STEPS, Dot

GAMMA = 0.9


class Coordinates:
    """The centre of the light in each channel, from -1 to 1."""

    def init(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        del key, shape
        return jnp.zeros(1)

    def apply(self, parameters: Any, observations: jax.Array) -> jax.Array:
        light = observations.astype(jnp.float32)
        side = jnp.linspace(-1.0, 1.0, light.shape[1])
        total = light.sum(axis=(1, 2))
        places = [jnp.einsum(f"bijc,{axis}->bc", light, side) / total for axis in "ij"]
        return jnp.concatenate(places, axis=-1) + 0 * parameters


class SmallWeights(Cnn):
    """`Cnn` from smaller weights, and biases."""

    def fresh(self, key: jax.Array, sizes: tuple[int, ...]) -> Layers:
        return init_layers(key, sizes)


ENCODERS = {"coordinates": Coordinates(), "cnn": Cnn(), "small weights": SmallWeights(), "keypoints": Keypoints()}


def trained(name: str, steps: int, seed: int, train_steps: int) -> Training:
    """A finished run."""
    agent = CAQLConfig(
        encoder=encoders.use(ENCODERS[name]),  # type: ignore[arg-type]
        hidden=(64, 64),
        action_hidden=(64, 64),
        discount=GAMMA,
        target_rate=0.01,
        exploration=Exploration(decay=0.97 if steps == 40 else 0.995, minimum=0.1),
    )
    loop: dict[str, Any] = {"train_steps": train_steps, "steps_per_epoch": steps, "warm_up": 400, "evaluate_every": 0}
    training = Training(RunConfig("Dot", agent=agent, seed=seed, **loop))
    for _ in training.epochs():
        pass
    return training


def mean_return(training: Training, episodes: int = 30) -> float:
    """Of the action function without noise."""
    agent: Any = training.agent
    act = jax.jit(lambda q, pi, x: agent.action_function.guess(pi, agent.q_network.features(q, x)))
    vectors = training.state.q.vector, training.state.action_function.vector
    env, total = Dot(), 0.0
    for episode in range(episodes):
        image, _ = env.reset(seed=1000 + episode)
        for _ in range(STEPS):
            image, reward, *_ = env.step(np.asarray(act(*vectors, np.float32(image).reshape(1, -1)))[0])
            total += reward
    return total / episodes


def states(count: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Images, random actions, and the discounted return of going straight to the target after them."""
    env, images, actions, values = Dot(), [], rng.uniform(-1, 1, (count, 2)), []
    for action in actions:
        env.point, env.target = rng.random((2, 2))
        images.append(env._image())
        _, value, *_ = env.step(action)
        for k in range(1, 30):
            value += GAMMA**k * env.step(env.best_action())[1]
        values.append(value)
    return np.array(images), actions.astype(np.float32), np.array(values, np.float32)


def fitted(
    name: str, data: tuple[Any, Any, Any], other: tuple[Any, Any, Any], steps: int = 6000
) -> tuple[float, float]:
    """Mean square errors, at the states learned from and at others, of a network fitted by Adam."""
    encoder: Any = ENCODERS[name]
    first = encoder.init(jax.random.key(0), data[0].shape[1:])
    features = jax.eval_shape(encoder.apply, first, data[0][:2]).shape[1]
    parameters = first, init_layers(jax.random.key(0), (features + 2, 64, 64, 1))
    adam = optax.adam(1e-3)

    def error(parameters: Any, images: Any, actions: Any, values: Any) -> Any:
        seen = jnp.concatenate([encoder.apply(parameters[0], images), actions], axis=-1)
        return jnp.mean(jnp.square(forward(parameters[1], seen)[:, 0] - values))

    def step(carry: Any, rows: Any) -> Any:
        parameters, state = carry
        gradient = jax.grad(error)(parameters, *(array[rows] for array in arrays))
        change, state = adam.update(gradient, state)
        return (optax.apply_updates(parameters, change), state), None

    arrays = [jnp.asarray(array) for array in data]
    rows = np.random.default_rng(1).integers(0, len(data[0]), (steps, 64))
    (parameters, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, rows))((parameters, adam.init(parameters)))
    return float(error(parameters, *data)), float(error(parameters, *other))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--train-steps", type=int, default=15_000)
    parser.add_argument("--supervised", action="store_true")
    options = parser.parse_args()
    if options.supervised:
        rng = np.random.default_rng(0)
        other = states(2000, rng)
        for count in (2000, 8000):
            data = states(count, rng)
            for name in ENCODERS:
                own, new = fitted(name, data, other)
                print(
                    f"{count} states, {name}: error {own:.4f}, at others {new:.4f} of {other[2].var():.2f}", flush=True
                )
        return
    for name, steps in (("small weights", 40), ("cnn", 40), ("keypoints", 40), ("small weights", 10), ("cnn", 10),
                        ("keypoints", 10), ("coordinates", 10)):  # fmt: skip
        for seed in options.seeds:
            began = time.process_time()
            training = trained(name, steps, seed, options.train_steps)
            seconds = time.process_time() - began
            print(f"{name}, {steps} steps, seed {seed}: {mean_return(training):.2f}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
