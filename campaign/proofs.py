"""Part one: what the exact solver claims, held against the oracles.

Checks, for every state: the action is admissible; the value is Q there; upper is no less than Q at any witness;
OPTIMAL means upper - value <= tolerance in the numbers returned; LIMIT only with nodes or time used up, or where
float64 cannot decide.  For some batches: one, two and three threads give the same bits, and so does compiled
code as far as float32 can.  Action sets with rows and whole numbers have checks of their own (`sets`).
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from campaign import sets
from campaign.ledger import Ledger
from campaign.networks import KINDS, Array, Case, Random, case_of_arrays, he
from campaign.oracles import WIDE, big_m, exact_maximum, exact_value, magnitude, values, witnesses

NODES, SECONDS = 20_000, 20.0
PROVABLE = 2.0**-30
"""Of `magnitude`: a gap below this share may be what float64 cannot close."""


class Wrong(NamedTuple):
    """A claim that does not hold: which check, at which state, with which numbers."""

    check: str
    row: int
    detail: str


@dataclass(frozen=True)
class Answer:
    """The solver's, as plain arrays, and the seconds that the batch took."""

    actions: Array
    values: Array
    upper: Array
    status: Array
    work: Array
    seconds: float


def ask(case: Case, threads: int = 1) -> Answer:
    """The exact solver's answer through the public function."""
    from caql.maxq.exact.solver import Exact
    from caql.maxq.maximize import maximize

    solver = Exact(node_limit=NODES, time_limit=SECONDS, threads=threads)
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a limit is looked at below
        found = maximize(case.layers(), case.low, case.high, case.first, solver=solver, tolerance=case.tolerance)
    return Answer(*(np.asarray(part) for part in found), seconds=time.monotonic() - began)


def _exactly_below(case: Case, row: int, upper: float, witness: Array) -> Fraction:
    """By how much an upper bound is below Q at a witness, or in one dimension below the maximum; 0 if it is not."""
    alone = case.row(row)
    best = exact_value(alone, witness)
    if case.low.shape[1] == 1 and _small(case):
        best = max(best, exact_maximum(alone))
    return max(best - Fraction(float(upper)), Fraction(0))


def _small(case: Case) -> bool:
    return case.action.shape[1] + sum(w.shape[1] for w, _ in case.later) <= 24


def claims(
    case: Case, answer: Answer, rng: Random, counts: Counter[str], deep: bool = False, provable: float = PROVABLE
) -> list[Wrong]:
    """Every claim of a batch's answer that does not hold; `deep` asks the slow oracles about one state too.

    provable: a gap below this part of the largest absolute sum may be left open.
    """
    from caql.maxq.problem import Status

    found: list[Wrong] = []
    with np.errstate(over="ignore", invalid="ignore"):
        own, own_error = values(case, answer.actions)
        points = witnesses(case, rng)
        best, best_error = values(case, points, WIDE)
        reach = magnitude(case)
    outside = ((answer.actions < case.low) | (answer.actions > case.high) | ~np.isfinite(answer.actions)).any(axis=1)
    untrue = ~(np.abs(answer.values - own) <= 2 * own_error)
    gap = answer.upper - answer.values
    optimal, limited = answer.status == Status.OPTIMAL, answer.status == Status.LIMIT
    open_gap = optimal & ~(gap <= case.tolerance)
    spent = (answer.work >= NODES) | (answer.seconds >= SECONDS)
    early = limited & ~spent & ~(gap <= case.tolerance + provable * reach)
    other = ~(optimal | limited)
    below_value = ~(answer.upper >= answer.values)
    for check, where in (
        ("the action is outside the box", outside),
        ("the value is not Q at the action", untrue),
        ("OPTIMAL with an open gap", open_gap),
        ("LIMIT with nodes and time left", early),
        ("neither OPTIMAL nor LIMIT", other),
        ("upper is below the value", below_value),
    ):
        found += [Wrong(check, int(k), _numbers(answer, int(k))) for k in np.flatnonzero(where)]
    suspects = np.flatnonzero(answer.upper < best - best_error)
    slow = [int(rng.integers(len(case)))] if deep else []
    for row in {*(int(k) for k in suspects), *slow}:
        witness = points[row]
        if row in slow:
            witness = _better(case, row, witness)
        below = _exactly_below(case, row, float(answer.upper[row]), witness)
        if below:
            detail = f"{_numbers(answer, row)}; the maximum is at least {float(below):.6g} above upper"
            found.append(Wrong("upper is below the maximum", row, detail))
    counts["problems"] += len(case)
    counts["optimal"] += int(optimal.sum())
    counts["limit, budget used"] += int((limited & spent).sum())
    counts["limit, gap near rounding"] += int((limited & ~spent & ~early).sum())
    counts["slow oracles"] += len(slow)
    return found


def _better(case: Case, row: int, witness: Array) -> Array:
    """The witness, or the big-M model's action where that is better."""
    if case.low.shape[1] == 1 or not _small(case):
        return witness
    other = big_m(case.row(row))
    if other is None:
        return witness
    return max((witness, other), key=lambda action: exact_value(case.row(row), action))


def _numbers(answer: Answer, k: int) -> str:
    return (
        f"value {answer.values[k]!r}, upper {answer.upper[k]!r}, status {int(answer.status[k])}, "
        f"nodes {int(answer.work[k])}"
    )


def same_for_threads(case: Case, answer: Answer) -> list[Wrong]:
    """Whether two and three threads give the very same numbers."""
    for threads in (2, 3):
        other = ask(case, threads)
        for name in ("actions", "values", "upper", "status", "work"):
            mine, its = getattr(answer, name), getattr(other, name)
            if not np.array_equal(mine, its, equal_nan=True):
                rows = np.flatnonzero((mine != its).reshape(len(mine), -1).any(axis=1))
                return [Wrong(f"{threads} threads give another answer", int(rows[0]), name)]
    return []


JIT_SHAPES = ((1, (8, 4), 64), (2, (6, 4), 16))


def inside_jit(rng: Random, counts: Counter[str]) -> tuple[Case, list[Wrong]]:
    """A float32 network solved in compiled code: the same claims, in float32 numbers."""
    import jax

    from caql.actions import ActionSet
    from caql.maxq.exact.solver import Exact
    from caql.maxq.problem import Problem
    from caql.networks import FoldedNetwork

    d, hidden, rows = JIT_SHAPES[int(rng.integers(len(JIT_SHAPES)))]
    made = he(rng, "inside jit", hidden, d, rows)

    def single(x: Array) -> Array:
        return np.float32(x)

    case = replace(
        made,
        first=np.float64(single(made.first)),
        action=np.float64(single(made.action)),
        later=tuple((np.float64(single(w)), np.float64(single(b))) for w, b in made.later),
        tolerance=float(np.float32(1e-4)),
    )
    later: Any = tuple((single(w), single(b)) for w, b in case.later)
    problem = Problem(
        FoldedNetwork(single(case.first), single(case.action), later),
        ActionSet.box(single(case.low), single(case.high)),
        tolerance=single(case.tolerance),
    )
    solve = Exact(node_limit=NODES, time_limit=SECONDS).inside_jit()
    assert solve is not None
    began = time.monotonic()
    found = jax.device_get(_compiled(solve)(problem))
    seconds = time.monotonic() - began
    answer = Answer(*(np.asarray(part) for part in found), seconds=seconds)
    wide = Answer(*(np.float64(part) for part in found), seconds=seconds)
    # A float32 value is Q's to a float32 rounding, not to a float64 one.
    own, _ = values(case, wide.actions)
    eps = 4 * float(np.finfo(np.float32).eps)
    wrong = [w for w in claims(case, wide, rng, counts, provable=eps) if w.check != "the value is not Q at the action"]
    single_rounding = eps * (1 + np.abs(own))
    host = ask(case)
    for check, where in (
        ("the value is not Q at the action", ~(np.abs(wide.values - own) <= single_rounding)),
        (
            "compiled code gives another value",
            ~(np.abs(wide.values - host.values) <= 2 * case.tolerance + single_rounding),
        ),
    ):
        wrong += [Wrong(check, int(k), _numbers(answer, int(k))) for k in np.flatnonzero(where)]
    return case, wrong


_JITTED: dict[str, Any] = {}


def _compiled(solve: Any) -> Any:
    """One compiled function for all problems; JAX tells their shapes apart."""
    import jax

    if "solve" not in _JITTED:
        _JITTED["solve"] = jax.jit(lambda problem: solve(problem, None))
    return _JITTED["solve"]


def batch(rng: Random, kind: str, counts: Counter[str], number: int) -> tuple[Case | sets.Constrained, list[Wrong]]:
    """One case of a kind, asked and checked; every few batches also by the slow oracles and with more threads."""
    if kind == "inside jit":
        return inside_jit(rng, counts)
    if kind == sets.KIND:
        constrained = sets.make(rng)
        return constrained, [Wrong(*each) for each in sets.claims(constrained, rng, counts)]
    case = KINDS[kind](rng)
    answer = ask(case)
    wrong = claims(case, answer, rng, counts, deep=number % 4 == 0)
    if number % 8 == 0:
        wrong += same_for_threads(case, answer)
    return case, wrong


def work(seed: list[int], number: int, ledger: Ledger) -> None:
    """One batch of the next kind in turn."""
    names = [*KINDS, "inside jit", sets.KIND]
    kind = names[number % len(names)]
    rng = np.random.default_rng([*seed, number])
    counts: Counter[str] = Counter()
    case, wrong = batch(rng, kind, counts, number // len(names))
    seen: set[str] = set()
    for each in wrong:
        counts[f"WRONG: {each.check}"] += 1
        if each.check not in seen:
            seen.add(each.check)
            keep(case, each, ledger, [*seed, number])
    ledger.count("proofs", kind, counts)


def keep(case: Case | sets.Constrained, wrong: Wrong, ledger: Ledger, seed: list[int]) -> None:
    """Write the state and what is wrong with it, so that `caql solve` and `--again` show it."""
    alone = case.row(wrong.row)
    story = {
        "part": "proofs",
        "kind": case.kind,
        "check": wrong.check,
        "detail": wrong.detail,
        "tolerance": case.tolerance,
        "row": wrong.row,
        "seed": seed,
    }
    ledger.found(story, {".npz": lambda path: np.savez(path, **alone.arrays())})


def again(story: dict[str, Any], path: Any) -> list[str]:
    """Check a kept state once more, alone; the claims that still do not hold."""
    rng = np.random.default_rng(0)
    with np.load(path) as stored:
        arrays = dict(stored)
    if story["kind"] == sets.KIND:
        found = sets.claims(sets.constrained_of_arrays(arrays), rng, Counter())
        return [f"{check}: {detail}" for check, _, detail in found]
    case = case_of_arrays(arrays, story["kind"], story["tolerance"])
    answer = ask(case)
    return [
        f"{w.check}: {w.detail}"
        for w in claims(case, answer, rng, Counter(), deep=True) + same_for_threads(case, answer)
    ]
