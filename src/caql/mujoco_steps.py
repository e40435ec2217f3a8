"""MuJoCo's robots, stepped without the detour: what Gymnasium's own `step` answers, bit for bit, and sooner.

Gymnasium adds a third to a half to the time that MuJoCo itself takes: wrappers, the health of a robot found out twice,
bodies looked up by name, dictionaries that nobody reads.  A function here steps the same model and data, by the same
floating-point operations in the same order, and leaves those out; resets remain Gymnasium's.  It exists for the robots
of the paper and of the constrained benchmark, and only for what `gymnasium.make` returns, untouched and without a
picture, in the version whose formulas were compared.  This is the only file that knows MuJoCo.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from caql.extras import is_there

Array = np.ndarray[Any, np.dtype[Any]]
Answer = tuple[Array, float, bool]
"""Observation, reward, terminated."""
Step = Callable[[Array], Answer]

COMPARED = ("1.4.0",)
"""Gymnasium's versions whose robots were compared with those here (`tests/test_mujoco_steps.py`)."""


@contextlib.contextmanager
def quiet_mujoco() -> Iterator[None]:
    """Without MuJoCo's warnings, which it writes into a file in the working directory."""
    if not is_there("mujoco"):
        yield
        return
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def direct_step(env: Any) -> Callable[[Array], tuple[Array, float, bool, bool, dict[str, Any]]] | None:
    """A function that steps `env` as `env.step` does, with an empty `info`; None where there is none.

    env: an environment that has been reset; ask again after its next reset.
    """
    if gym.__version__ not in COMPARED:
        return None
    limit = env if type(env) is gym.wrappers.TimeLimit else None
    inner = env if limit is None else env.env
    if type(inner) is not gym.wrappers.OrderEnforcing:
        return None
    robot = inner.env
    make = _ROBOTS.get(f"{type(robot).__module__}:{type(robot).__qualname__}")
    changed = any("step" in vars(each) for each in (env, inner, robot))
    if make is None or changed or robot.render_mode is not None:
        return None
    step = make(robot)
    if limit is None:
        return lambda action: (*step(action), False, {})

    def limited(action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        answer = step(action)
        limit._elapsed_steps += 1
        return *answer, limit._elapsed_steps >= limit._max_episode_steps, {}

    return limited


def _physics(env: Any) -> Callable[[Array], None]:
    """`do_simulation` of Gymnasium's environments."""
    import mujoco

    model, data, ctrl = env.model, env.data, env.data.ctrl
    step, forces = mujoco.mj_step, mujoco.mj_rnePostConstraint

    def simulate(action: Array) -> None:
        ctrl[:] = action
        step(model, data, nstep=env.frame_skip)
        forces(model, data)

    return simulate


def _effort(action: Array) -> Any:
    """The sum of squares, in the action's own format as everything that Gymnasium multiplies it with."""
    return np.add.reduce(action * action)


def _between(low: float, values: Array, high: float) -> bool:
    """Whether all values are; not if one is NaN."""
    return bool(low < np.minimum.reduce(values) and np.maximum.reduce(values) < high)


def _cheetah(env: Any) -> Step:
    simulate, positions, velocities = _physics(env), env.data.qpos, env.data.qvel
    first = int(env._exclude_current_positions_from_observation)

    def step(action: Array) -> Answer:
        before = positions.item(0)
        simulate(action)
        forward = env._forward_reward_weight * ((positions.item(0) - before) / env.dt)
        cost = env._ctrl_cost_weight * _effort(action)
        return np.concatenate((positions[first:], velocities)), float(forward) - float(cost), False

    return step


def _legs(env: Any, is_healthy: Callable[[Array], bool], survives: bool) -> Step:
    """Hopper and Walker; `survives`: what falls is paid for the step in which it ends, as in version 4."""
    simulate, positions, velocities = _physics(env), env.data.qpos, env.data.qvel
    size, fastest = len(positions), np.full(len(velocities), 10.0)
    slowest, first = -fastest, int(env._exclude_current_positions_from_observation)

    def step(action: Array) -> Answer:
        before = positions.item(0)
        simulate(action)
        forward = env._forward_reward_weight * ((positions.item(0) - before) / env.dt)
        state = np.concatenate((positions, velocities))
        healthy, ends = is_healthy(state), env._terminate_when_unhealthy
        alive = (healthy or (survives and ends)) * env._healthy_reward
        cost = env._ctrl_cost_weight * _effort(action)
        speeds = state[size:]
        np.minimum(np.maximum(speeds, slowest, out=speeds), fastest, out=speeds)
        return state[first:], float(forward) + float(alive) - float(cost), bool(ends and not healthy)

    return step


def _is_upright(env: Any, state: Array) -> bool:
    low, high = env._healthy_z_range
    least, most = env._healthy_angle_range
    return bool(low < state.item(1) < high and least < state.item(2) < most)


def _hopper(env: Any, survives: bool) -> Step:
    def is_healthy(state: Array) -> bool:
        low, high = env._healthy_state_range
        return _is_upright(env, state) and _between(low, state[2:], high)

    return _legs(env, is_healthy, survives)


def _walker(env: Any, survives: bool) -> Step:
    return _legs(env, lambda state: _is_upright(env, state), survives)


def _reacher(env: Any) -> Step:
    simulate, positions, velocities = _physics(env), env.data.qpos, env.data.qvel
    angles, target, speeds = positions[:2], positions[2:], velocities[:2]
    tip, goal = (env.data.xpos[env.model.body(name).id] for name in ("fingertip", "target"))

    def step(action: Array) -> Answer:
        simulate(action)
        way = tip - goal
        observation = np.concatenate((np.cos(angles), np.sin(angles), target, speeds, way[:2]))
        far = -math.sqrt(way.dot(way)) * env._reward_dist_weight
        effort = -_effort(action) * env._reward_control_weight
        return observation, float(far) + float(effort), False

    return step


def _ant(env: Any) -> Step:
    simulate, positions, velocities, forces = _physics(env), env.data.qpos, env.data.qvel, env.data.cfrc_ext
    torso = env.data.xpos[env.model.body("torso").id]
    first = 2 * int(env._exclude_current_positions_from_observation)

    def step(action: Array) -> Answer:
        before = torso.item(0)
        simulate(action)
        forward = (torso.item(0) - before) / env.dt
        finite = np.isfinite(positions).all() and np.isfinite(velocities).all()
        low, high = env._healthy_z_range
        healthy, ends = finite and low <= positions.item(2) <= high, env._terminate_when_unhealthy
        alive = float(bool(healthy or ends)) * env._healthy_reward
        cost = float(env._ctrl_cost_weight * _effort(action))
        parts = [positions[first:], velocities]
        if env._use_contact_forces:
            least, most = env._contact_force_range
            held = np.minimum(np.maximum(forces, least), most)
            cost += float(env._contact_cost_weight * np.add.reduce(held * held, axis=None))
            parts.append(held.reshape(-1))
        return np.concatenate(parts), forward + float(alive) - cost, bool(ends and not healthy)

    return step


def _humanoid(env: Any) -> Step:
    from gymnasium.envs.mujoco.humanoid_v4 import mass_center

    simulate, model, data = _physics(env), env.model, env.data
    positions, ctrl = data.qpos, data.ctrl
    arrays = (data.qvel, data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)
    first = 2 * int(env._exclude_current_positions_from_observation)
    parts = (positions[first:], *(array.reshape(-1) for array in arrays))

    def step(action: Array) -> Answer:
        before = mass_center(model, data).item(0)
        simulate(action)
        forward = env._forward_reward_weight * ((mass_center(model, data).item(0) - before) / env.dt)
        low, high = env._healthy_z_range
        healthy, ends = low < positions.item(2) < high, env._terminate_when_unhealthy
        alive = float(bool(healthy or ends)) * env._healthy_reward
        cost = env._ctrl_cost_weight * _effort(ctrl)
        return np.concatenate(parts), float(forward) + float(alive) - float(cost), bool(ends and not healthy)

    return step


_ROBOTS: dict[str, Callable[[Any], Step]] = {
    f"gymnasium.envs.mujoco.{name}": make
    for name, make in {
        "hopper_v4:HopperEnv": lambda env: _hopper(env, True),
        "hopper_v5:HopperEnv": lambda env: _hopper(env, False),
        "walker2d_v4:Walker2dEnv": lambda env: _walker(env, True),
        "walker2d_v5:Walker2dEnv": lambda env: _walker(env, False),
        "half_cheetah_v4:HalfCheetahEnv": _cheetah,
        "half_cheetah_v5:HalfCheetahEnv": _cheetah,
        "ant_v4:AntEnv": _ant,
        "humanoid_v4:HumanoidEnv": _humanoid,
        "reacher_v5:ReacherEnv": _reacher,
    }.items()
}
