"""The microgrid: its costs and limits by hand, and the plans that a policy is compared with."""

import numpy as np
import pytest

from caql.tasks.microgrid import Microgrid, Plant, charge_after, hourly_cost
from caql.tasks.microgrid_planning import RollingHorizon, best_plan, hindsight


def powers(env: Microgrid, first: float = 0.0, second: float = 0.0, battery: float = 0.0) -> np.ndarray:
    """Generators and battery as given; the grid balances load and sun."""
    residual = env.profiles.load[env.hour] - env.profiles.sun[env.hour]
    return np.array([first, second, battery, residual - first - second - battery])


def test_an_hour_costs_fuel_running_starts_trade_and_wear():
    plant = Plant()
    chosen = np.array([30.0, 0.0, -10.0, 20.0])
    bought = hourly_cost(plant, chosen, np.zeros(2), price=0.5)
    assert bought == pytest.approx(0.18 * 30 + 2.0 + 6.0 + 0.5 * 20 + 0.01 * 10)
    running = hourly_cost(plant, chosen, np.array([50.0, 0.0]), price=0.5)
    assert bought - running == pytest.approx(plant.start[0])
    sold = hourly_cost(plant, np.array([0.0, 0.0, 0.0, -20.0]), np.zeros(2), price=0.5)
    assert sold == pytest.approx(-0.4 * 0.5 * 20)


def test_the_battery_loses_energy_both_ways():
    plant = Plant()
    assert charge_after(plant, 50.0, 19.0) == pytest.approx(30.0)
    assert charge_after(plant, 50.0, -20.0) == pytest.approx(69.0)


def test_an_episode_is_made_from_its_seed_and_ends_after_its_hours():
    first, second = Microgrid(unit=1.0), Microgrid(unit=1.0)
    for env in (first, second):
        env.reset(seed=3)
    np.testing.assert_array_equal(first.profiles.load, second.profiles.load)
    rewards, over = [], False
    while not over:
        _, reward, over, cut, info = first.step(powers(first))
        rewards.append(reward)
        assert not cut
        assert info["breach"] == pytest.approx(0.0, abs=1e-9)
    assert len(rewards) == 48
    assert first.violations == 0
    second.reset(seed=4)
    assert not np.array_equal(first.profiles.load, second.profiles.load)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param([5.0, 0.0, 0.0, -5.0], id="below the band"),
        pytest.param([0.0, 0.0, 0.0, 3.0], id="out of balance"),
        pytest.param([0.0, 0.0, 200.0, -200.0], id="more than the battery gives"),
    ],
)
def test_a_broken_limit_is_counted(change):
    env = Microgrid(unit=1.0)
    env.reset(seed=0)
    _, _, _, _, info = env.step(powers(env) + change)
    assert info["breach"] > 1.0
    assert env.violations == 1


def test_a_setting_is_kept_or_changed_by_the_minimum():
    env = Microgrid(unit=1.0)
    env.reset(seed=0)
    env.step(powers(env, 40.0))
    env.step(powers(env, 40.0))
    assert env.violations == 0
    env.step(powers(env, 43.0))
    assert env.violations == 1
    env.step(powers(env, 52.0))
    assert env.violations == 1


def test_the_set_holds_what_the_environment_allows():
    env = Microgrid(unit=1.0)
    observation, _ = env.reset(seed=1)
    env.step(powers(env, 40.0))
    observation = env._observe()
    action_set = env.action_set(observation)
    rng = np.random.default_rng(0)
    agreed = 0
    for _ in range(300):
        p1 = rng.choice([0.0, 40.0, 44.0, 50.0, 15.0])
        p2 = rng.choice([0.0, 12.0, 3.0, 40.0])
        battery = rng.uniform(-40.0, 40.0)
        action = powers(env, p1, p2, battery)
        allowed = env._breach(action) <= 1e-9
        assert allowed == holds(action_set, action)
        agreed += allowed
    assert 20 < agreed < 280


def holds(action_set, action) -> bool:
    """Whether some whole auxiliary numbers make the action admissible: tried one by one."""
    low, high = action_set.low[0] - 1e-9, action_set.high[0] + 1e-9
    if (action < low).any() or (action > high).any():
        return False
    for code in range(64):
        auxiliary = [(code >> bit) & 1 for bit in range(6)]
        values = action_set.rows[0] @ [*action, *auxiliary]
        if (values >= action_set.row_low[0] - 1e-9).all() and (values <= action_set.row_high[0] + 1e-9).all():
            return True
    return False


def test_hindsight_is_a_bound_that_rolling_horizon_control_comes_near():
    env, control = Microgrid(hours=24, unit=1.0), RollingHorizon(horizon=8)
    env.reset(seed=2)
    bound = hindsight(env).bound
    cost, over = 0.0, False
    while not over:
        _, _, over, _, info = env.step(control.act(env))
        cost += info["cost"]
    assert env.violations == 0
    assert bound <= cost <= 1.2 * bound
    assert control.decisions == 24


def test_a_plan_of_one_hour_is_the_cheapest_action():
    env = Microgrid(unit=1.0)
    env.reset(seed=5)
    profiles = type(env.profiles)(*(profile[:1] for profile in env.profiles))
    plan = best_plan(env.plant, profiles, env.charge, env.last)
    rng = np.random.default_rng(1)
    _, most = 0.0, min(env.plant.battery, env.plant.efficiency * env.charge)
    for _ in range(200):
        p1, p2 = rng.choice([0.0, *rng.uniform(20, 60, 2)]), rng.choice([0.0, *rng.uniform(10, 40, 2)])
        battery = rng.uniform(0.0, most)
        action = powers(env, p1, p2, battery)
        left = charge_after(env.plant, env.charge, battery) - env.charge
        cost = hourly_cost(env.plant, action, env.last, env.profiles.price[0]) - env.plant.salvage * left
        assert plan.cost <= cost + 1e-6
