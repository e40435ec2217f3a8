"""What an engineer would compare a microgrid policy with: the best plan in hindsight, and rolling-horizon control.

Both solve one mixed-integer program over H hours, with the same constraints as the environment.  Per hour t:

    variables   p_i, on_i, start_i, up_i, down_i for each generator;  d, c >= 0 (discharging, charging);
                m, x >= 0 (import, export);  e the charge after the hour
    minimise    sum fuel p + running on + start start + price m - export price x + wear (d + c)  -  salvage (e_H - e_0)

Charging and discharging at once, or importing and exporting at once, only costs, so nothing forbids it: with the true
profiles the optimum is a lower bound on the cost of any policy, and in practice it is the cost of the best plan.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.extras import needed_for
from caql.tasks.microgrid import GENERATORS, Microgrid, Plant, Profiles, daily_shape

Array = NDArray[np.float64]
PER_HOUR = 5 * GENERATORS + 5
"""Variables of an hour: p, on, start, up, down for each generator, then d, c, m, x, e."""
P, ON, START, UP, DOWN = (GENERATORS * k for k in range(5))
D, C, M, X, E = (5 * GENERATORS + k for k in range(5))


class Plan(NamedTuple):
    """A plan's cost, the proved lower bound on it, and the first hour's powers (p1, p2, b, g)."""

    cost: float
    bound: float
    powers: Array


class _Rows:
    """Rows of a program, collected one at a time: sum of value times variable, between two sides."""

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.columns: list[int] = []
        self.values: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, terms: dict[int, float], low: float, high: float) -> None:
        self.columns += terms.keys()
        self.values += terms.values()
        self.starts.append(len(self.columns))
        self.low.append(low)
        self.high.append(high)


def best_plan(plant: Plant, profiles: Profiles, charge: float, last: Array, gap: float = 1e-6) -> Plan:
    """The cheapest plan over the hours of `profiles`, from a charge and the generators' last settings."""
    with needed_for("the optimal plan of a microgrid"):
        import highspy

    hours = len(profiles.load)
    rows = _Rows()
    for hour in range(hours):
        _hour_rows(plant, profiles, charge, last, hour, rows)
    cost, low, high, whole = _columns(plant, profiles)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", gap)
    solver.setOptionValue("threads", 1)
    row_wise, minimise = 2, 1
    solver.passModel(
        len(cost), len(rows.low), len(rows.values), row_wise, minimise, plant.salvage * charge,
        cost, low, high, np.array(rows.low), np.array(rows.high),
        np.array(rows.starts[:-1], np.int32), np.array(rows.columns, np.int32), np.array(rows.values),
        whole.astype(np.int32),
    )  # fmt: skip
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"the plan's program ended with status {solver.getModelStatus()}")
    found = np.array(solver.getSolution().col_value)
    powers = np.array([*found[:GENERATORS], found[D] - found[C], found[M] - found[X]])
    info = solver.getInfo()
    return Plan(info.objective_function_value, info.mip_dual_bound, powers)


def _hour_rows(plant: Plant, profiles: Profiles, charge: float, last: Array, hour: int, rows: _Rows) -> None:
    """The constraints of one hour."""
    at = hour * PER_HOUR
    before = at - PER_HOUR
    infinity = np.inf
    for i in range(GENERATORS):
        p, on, up, down = at + P + i, at + ON + i, at + UP + i, at + DOWN + i
        rows.add({p: 1.0, on: -plant.least[i]}, 0.0, infinity)
        rows.add({p: 1.0, on: -plant.most[i]}, -infinity, 0.0)
        rows.add({up: 1.0, down: 1.0}, -infinity, 1.0)
        # p - p_before between (step up - most down) and (most up - step down), and start >= on - on_before
        previous = {} if hour == 0 else {before + P + i: -1.0}
        given = float(last[i]) if hour == 0 else 0.0
        rows.add({p: 1.0, **previous, up: -plant.step[i], down: plant.most[i]}, given, infinity)
        rows.add({p: 1.0, **previous, up: -plant.most[i], down: plant.step[i]}, -infinity, given)
        was_on = {} if hour == 0 else {before + ON + i: 1.0}
        rows.add({at + START + i: 1.0, on: -1.0, **was_on}, -float(last[i] > 0.0) if hour == 0 else 0.0, infinity)
    balance = {at + P + i: 1.0 for i in range(GENERATORS)} | {at + D: 1.0, at + C: -1.0, at + M: 1.0, at + X: -1.0}
    residual = float(profiles.load[hour] - profiles.sun[hour])
    rows.add(balance, residual, residual)
    held = {at + E: 1.0, at + D: 1.0 / plant.efficiency, at + C: -plant.efficiency}
    if hour == 0:
        rows.add(held, charge, charge)
    else:
        rows.add({**held, before + E: -1.0}, 0.0, 0.0)


def _columns(plant: Plant, profiles: Profiles) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Cost, bounds and integrality of every variable."""
    hours = len(profiles.load)
    cost, high = np.zeros((hours, PER_HOUR)), np.ones((hours, PER_HOUR))
    whole = np.zeros((hours, PER_HOUR), np.bool_)
    cost[:, P : P + GENERATORS], cost[:, ON : ON + GENERATORS] = plant.fuel, plant.running
    cost[:, START : START + GENERATORS] = plant.start
    cost[:, D] = cost[:, C] = plant.wear
    cost[:, M], cost[:, X] = profiles.price, -plant.export * profiles.price
    cost[-1, E] = -plant.salvage
    high[:, P : P + GENERATORS] = plant.most
    high[:, D] = high[:, C] = plant.battery
    high[:, M] = high[:, X] = plant.grid
    high[:, E] = plant.capacity
    for first in (ON, UP, DOWN):
        whole[:, first : first + GENERATORS] = True
    return cost.ravel(), np.zeros(cost.size), high.ravel(), whole.ravel()


def hindsight(env: Microgrid) -> Plan:
    """The best plan of the episode that `env` has just been reset to, knowing all of it: no policy can cost less."""
    known = Profiles(*(profile[: env.hours] for profile in env.profiles))
    return best_plan(env.plant, known, env.charge, env.last)


@dataclass
class RollingHorizon:
    """Model-predictive control with a naive forecast: the average day, scaled to what is seen now.

    At every hour it plans `horizon` hours ahead and carries out the first.
    """

    horizon: int = 24
    seconds: float = 0.0
    decisions: int = 0

    def act(self, env: Microgrid) -> Array:
        """The powers for the present hour."""
        began = time.perf_counter()
        hours = min(self.horizon, env.hours - env.hour)
        shape = daily_shape(env.hour + np.arange(hours, dtype=np.float64))
        forecast = []
        for seen, average in zip(env.profiles, shape, strict=True):
            now = float(seen[env.hour])
            # In the dark nothing can be learned of the day's sun: the average is all there is.
            factor = now / average[0] if average[0] > 1e-3 else 1.0
            forecast.append(np.concatenate([[now], factor * average[1:]]))
        plan = best_plan(env.plant, Profiles(*forecast), env.charge, env.last, gap=1e-4)
        self.seconds += time.perf_counter() - began
        self.decisions += 1
        return plan.powers
