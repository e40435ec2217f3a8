"""Networks that once defeated the exact solver: each is solved, or limited where float64 cannot do better.

gives-up-early: four first-layer neurons whose outgoing weights differ only in sign.   tied: quarters as weights, rows
that are multiples of each other.   cancelling: weights near 1e12 that leave almost nothing of each other.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from campaign.networks import Case, case_of_arrays
from campaign.oracles import big_m, exact_maximum, exact_value
from campaign.proofs import ask, claims, inside_jit, same_for_threads

CASES = Path(__file__).parent / "cases"


def read(name: str, tolerance: float) -> Case:
    with np.load(CASES / f"{name}.npz") as arrays:
        return case_of_arrays(dict(arrays), name, tolerance)


@pytest.mark.parametrize(("name", "tolerance"), [("gives-up-early", 1e-6), ("tied", 1e-8), ("cancelling", 1e-6)])
def test_solved_or_limited_with_a_true_bound(name: str, tolerance: float) -> None:
    case = read(name, tolerance)
    answer = ask(case)
    assert not claims(case, answer, np.random.default_rng(0), Counter(), deep=True)
    assert not same_for_threads(case, answer)


@pytest.mark.parametrize(("name", "tolerance"), [("gives-up-early", 1e-6), ("tied", 1e-8)])
def test_the_bound_is_closed_where_float64_can_close_it(name: str, tolerance: float) -> None:
    case = read(name, tolerance)
    answer, best = ask(case), big_m(case)
    assert best is not None
    assert int(answer.status[0]) == 0
    assert answer.upper[0] - answer.values[0] <= tolerance
    assert answer.values[0] == pytest.approx(float(exact_value(case, best)), abs=1e-6)


def test_the_maximum_of_the_cancelling_network() -> None:
    """In fractions; no bound may be below it."""
    case = read("cancelling", 1e-6)
    best = float(exact_maximum(case))
    assert best == pytest.approx(539187, abs=1)
    assert float(ask(case).upper[0]) >= best


def test_claims_hold_inside_jit() -> None:
    for seed in range(4):
        _, wrong = inside_jit(np.random.default_rng([7, seed]), Counter())
        assert not wrong, wrong[:3]
