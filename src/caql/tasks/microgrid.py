"""A microgrid for an hour at a time: two generators, a battery, the sun, a connection to the grid.

Every hour the operator sets four powers in kW, a = (p1, p2, b, g): the generators, the battery (positive when it
discharges) and the import from the grid (negative when it exports).  They must satisfy

    p_i = 0,  or  least_i <= p_i <= most_i                 a generator is off or within its band
    p_i = last_i,  or  |p_i - last_i| >= step_i            its setting is kept, or changed by a minimum amount
    -charging(e) <= b <= discharging(e)                    limits of the battery depend on its charge e
    p1 + p2 + b + g = load - sun                           the balance of power

so the admissible set has whole numbers (on or off, changed up or down), limits that depend on the state, and an
equality.  Load, sun and price follow a daily shape with a random day and a random hour, all made from the reset's seed.

Costs: fuel, an hourly cost while running, starts, imports at the price, exports at a part of it, wear of the battery;
at the end the stored energy is credited at a fixed price.  The reward is minus the cost, in units of 100.

The environment takes powers in units of 100 kW, so that they are about as large as the observations: a network whose
inputs differ a hundredfold learns from the largest alone (docs/notebook.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from caql.actions import ActionSet

Array = NDArray[np.float64]

GENERATORS = 2
POWERS = GENERATORS + 2
"""p1, p2, b, g."""
OBSERVED = 9
"""Length of an observation."""
KW = 100.0
"""Powers and energies in an observation are in units of this many kW or kWh."""


@dataclass(frozen=True)
class Plant:
    """The numbers of the plant; powers in kW, energy in kWh, money in any currency."""

    least: tuple[float, float] = (20.0, 10.0)
    most: tuple[float, float] = (60.0, 40.0)
    step: tuple[float, float] = (8.0, 5.0)
    """A changed setting changes by at least so much."""
    fuel: tuple[float, float] = (0.18, 0.26)
    """Per kWh."""
    running: tuple[float, float] = (2.0, 1.0)
    """Per hour that a generator runs."""
    start: tuple[float, float] = (6.0, 2.5)
    """Per start."""
    capacity: float = 100.0
    battery: float = 30.0
    """Most power into and out of the battery."""
    efficiency: float = 0.95
    """Of charging, and of discharging."""
    wear: float = 0.01
    """Per kWh through the battery."""
    grid: float = 140.0
    """Most import and most export."""
    export: float = 0.4
    """What an exported kWh earns, as a fraction of the price."""
    salvage: float = 0.2
    """Credit for a kWh left in the battery at the end, less the one that was there at the start."""


class Profiles(NamedTuple):
    """Load, sun (kW) and price (per kWh), one number an hour."""

    load: Array
    sun: Array
    price: Array


def daily_shape(hours: Array) -> Profiles:
    """What an average day looks like at each of the hours; also the naive forecast's knowledge."""
    of_day = hours % 24.0
    load = 55.0 + 18.0 * np.exp(-0.5 * ((of_day - 8.0) / 2.0) ** 2) + 30.0 * np.exp(-0.5 * ((of_day - 19.0) / 2.5) ** 2)
    sun = 60.0 * np.clip(np.sin(np.pi * (of_day - 6.0) / 12.0), 0.0, None) ** 1.5
    price = (
        0.20 + 0.06 * np.exp(-0.5 * ((of_day - 8.0) / 2.0) ** 2) + 0.16 * np.exp(-0.5 * ((of_day - 19.0) / 2.0) ** 2)
    )
    return Profiles(load, sun, price)


def draw_profiles(rng: np.random.Generator, hours: int) -> Profiles:
    """An episode's load, sun and price: the average day, times a day's factor, times a slowly changing one."""
    shape = daily_shape(np.arange(hours + 1, dtype=np.float64))
    days = hours // 24 + 1
    of_day = [
        np.repeat(rng.uniform(low, high, days), 24)[: hours + 1] for low, high in ((0.85, 1.15), (0.2, 1.0), (0.8, 1.2))
    ]
    slow = np.zeros((3, hours + 1))
    for hour in range(1, hours + 1):
        slow[:, hour] = 0.7 * slow[:, hour - 1] + rng.normal(0.0, (0.05, 0.15, 0.08))
    load, sun, price = (s * f * np.clip(1.0 + w, 0.3, 1.7) for s, f, w in zip(shape, of_day, slow, strict=True))
    return Profiles(np.minimum(load, 135.0), np.minimum(sun, 60.0), price)


def hourly_cost(plant: Plant, powers: Array, last: Array, price: float) -> float:
    """The cost of an hour with powers (p1, p2, b, g) after generators that were at `last`."""
    p, battery, grid = powers[:GENERATORS], powers[GENERATORS], powers[GENERATORS + 1]
    on, was_on = p > 0.0, last > 0.0
    fuel = float(np.dot(plant.fuel, p) + np.dot(plant.running, on) + np.dot(plant.start, on & ~was_on))
    trade = price * grid if grid >= 0.0 else plant.export * price * grid
    return fuel + trade + plant.wear * abs(battery)


def battery_limits(plant: Plant, charge: Any) -> tuple[Any, Any]:
    """The least (charging, negative) and the most (discharging) battery power at a charge."""
    discharge = np.minimum(plant.battery, plant.efficiency * charge)
    charging = np.minimum(plant.battery, (plant.capacity - charge) / plant.efficiency)
    return -charging, discharge


def charge_after(plant: Plant, charge: float, battery: float) -> float:
    """The charge an hour later."""
    change = battery / plant.efficiency if battery >= 0.0 else battery * plant.efficiency
    return float(np.clip(charge - change, 0.0, plant.capacity))


def admissible_set(plant: Plant, observations: Array, unit: float = 1.0) -> ActionSet:
    """The powers, in units of so many kW, that are admissible at each of (B, 9) observations: one set a state.

    Auxiliary whole numbers, for each generator: it is on; its setting goes up; its setting goes down.
    """
    count = len(observations)
    charge, last, residual = _known(observations)
    low, high = np.zeros((count, POWERS)), np.zeros((count, POWERS))
    high[:, :GENERATORS] = plant.most
    low[:, GENERATORS], high[:, GENERATORS] = battery_limits(plant, charge)
    low[:, -1], high[:, -1] = -plant.grid, plant.grid
    variables, per = POWERS + 3 * GENERATORS, 5
    rows = np.zeros((count, per * GENERATORS + 1, variables))
    row_low = np.full(rows.shape[:2], -np.inf)
    row_high = np.zeros(rows.shape[:2])
    for i in range(GENERATORS):
        on, up, down = POWERS + 3 * i, POWERS + 3 * i + 1, POWERS + 3 * i + 2
        first = per * i
        rows[:, first, [i, on]] = -1.0, plant.least[i]
        rows[:, first + 1, [i, on]] = 1.0, -plant.most[i]
        # step up - most down <= p - last <= most up - step down
        rows[:, first + 2, [i, up, down]] = -1.0, plant.step[i], -plant.most[i]
        row_high[:, first + 2] = -last[:, i]
        rows[:, first + 3, [i, up, down]] = 1.0, -plant.most[i], plant.step[i]
        row_high[:, first + 3] = last[:, i]
        rows[:, first + 4, [up, down]] = 1.0
        row_high[:, first + 4] = 1.0
    rows[:, -1, :POWERS] = 1.0
    row_low[:, -1] = row_high[:, -1] = residual
    zeros = np.zeros((count, 3 * GENERATORS))
    rows[..., POWERS:] /= unit
    return ActionSet(
        low / unit,
        high / unit,
        rows,
        row_low / unit,
        row_high / unit,
        zeros,
        zeros + 1.0,
        tuple(range(POWERS, variables)),
    )


def _known(observations: Array) -> tuple[Array, Array, Array]:
    """Charge, the generators' last settings, load less sun: what the set depends on, from (B, 9) observations."""
    powers = KW * np.asarray(observations, np.float64)
    return powers[:, 0], powers[:, 1 : 1 + GENERATORS], powers[:, 3] - powers[:, 4]


class Microgrid(gym.Env[Array, Array]):  # type: ignore[misc]
    """The microgrid as an environment; an episode is `hours` long and ends then (it does not bootstrap).

    unit: kW that an action of 1 stands for.

    Observation, float64: charge, last p1, last p2, load, sun (in units of 100 kW or kWh), price, sine and cosine of
    the hour, the share of the episode that is left.
    """

    def __init__(self, hours: int = 48, plant: Plant | None = None, unit: float = KW) -> None:
        self.plant, self.hours, self.unit = plant or Plant(), hours, unit
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (OBSERVED,), np.float64)
        most = np.array([*self.plant.most, self.plant.battery, self.plant.grid])
        least = np.array([0.0, 0.0, -self.plant.battery, -self.plant.grid])
        self.action_space = gym.spaces.Box(least / unit, most / unit, dtype=np.float64)
        self.violations = 0
        """Actions of this environment's life that broke a limit by more than a millionth of a kW."""

    def action_set(self, observation: Array) -> ActionSet:
        """The admissible actions at an observation, or at each of several."""
        return admissible_set(self.plant, np.atleast_2d(observation), self.unit)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.profiles = draw_profiles(self.np_random, self.hours)
        self.charge = self.first_charge = float(self.np_random.uniform(0.2, 0.8)) * self.plant.capacity
        self.last = np.zeros(GENERATORS)
        self.hour = 0
        return self._observe(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        powers = self.unit * np.array(action, np.float64)
        breach = self._breach(powers)
        self.violations += breach > 1e-6
        powers[:GENERATORS][powers[:GENERATORS] < 1e-6] = 0.0
        price = float(self.profiles.price[self.hour])
        cost = hourly_cost(self.plant, powers, self.last, price)
        self.charge = charge_after(self.plant, self.charge, powers[GENERATORS])
        self.last = powers[:GENERATORS].copy()
        self.hour += 1
        over = self.hour == self.hours
        if over:
            cost -= self.plant.salvage * (self.charge - self.first_charge)
        return self._observe(), -cost / 100.0, over, False, {"cost": cost, "breach": breach}

    def _observe(self) -> Array:
        load, sun, price = (profile[self.hour] for profile in self.profiles)
        angle = 2.0 * np.pi * self.hour / 24.0
        left = 1.0 - self.hour / self.hours
        powers = np.array([self.charge, *self.last, load, sun]) / KW
        return np.array([*powers, price, np.sin(angle), np.cos(angle), left])

    def _breach(self, powers: Array) -> float:
        """By how many kW the powers break their limits; 0 when they do not."""
        plant, found = self.plant, 0.0
        for i in range(GENERATORS):
            change = abs(powers[i] - self.last[i])
            found = max(found, min(abs(powers[i]), max(plant.least[i] - powers[i], powers[i] - plant.most[i], 0.0)))
            found = max(found, min(change, max(plant.step[i] - change, 0.0)))
        least, most = battery_limits(plant, self.charge)
        found = max(found, least - powers[GENERATORS], powers[GENERATORS] - most, abs(powers[-1]) - plant.grid)
        balance = powers.sum() - (self.profiles.load[self.hour] - self.profiles.sun[self.hour])
        return float(max(found, abs(balance)))
