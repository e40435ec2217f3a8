"""The contract's own arithmetic: which rows no solver can solve."""

import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import ActionSet
from caql.maxq.problem import Problem, Status, refused_rows
from caql.networks import FoldedNetwork


@pytest.mark.parametrize("xp", [np, jnp], ids=["host", "traced"])
def test_rows_that_no_solver_can_solve(xp):
    good = {
        "first_bias": np.zeros((3, 2)),
        "weights": np.ones((1, 2)),
        "low": np.full((3, 1), -1.0),
        "high": np.full((3, 1), 1.0),
        "start": np.zeros((3, 1)),
        "tolerance": np.zeros(3),
        "relative": np.zeros(3),
    }

    def refused(part=None, value=0.0):
        arrays = {name: array.copy() for name, array in good.items()}
        if part is not None:
            arrays[part].reshape(len(arrays[part]), -1)[-1, 0] = value
        arrays = {name: xp.asarray(array) for name, array in arrays.items()}
        later = ((xp.ones((2, 1)), xp.zeros(1)),)
        network = FoldedNetwork(arrays["first_bias"], arrays["weights"], later)
        box = ActionSet.box(arrays["low"], arrays["high"])
        problem = Problem(network, box, arrays["start"], arrays["tolerance"], arrays["relative"])
        return refused_rows(problem, xp).tolist()

    assert refused() == [0, 0, 0]
    assert refused("high", -1.0) == [0, 0, 0]  # one action is a box
    assert refused("high", -1.5) == [0, 0, Status.INFEASIBLE]
    for part in ("first_bias", "low", "high", "start", "tolerance", "relative"):
        assert refused(part, np.nan) == [0, 0, Status.FAILED], part
    assert refused("weights", np.inf) == [Status.FAILED] * 3
