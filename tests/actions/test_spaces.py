"""Gymnasium spaces to sets of vectors and back: every action of the space, and nothing else."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from caql.actions.spaces import FlatSpace
from caql.errors import CaqlError

LEAVES = {
    "box": Box(-1.0, np.array([0.1, 0.7], np.float32)),
    "box of two axes": Box(-2.0, 3.0, (2, 3), np.float64),
    "box of whole numbers": Box(-3, 4, (2,), np.int64),
    "box of bytes": Box(0, 255, (1,), np.uint8),
    "discrete": Discrete(4),
    "discrete from -2": Discrete(3, start=-2),
    "a single choice": Discrete(1),
    "multi-discrete": MultiDiscrete([3, 1, 4]),
    "multi-discrete from 5": MultiDiscrete([2, 3], start=[5, -1]),
    "multi-discrete of two axes": MultiDiscrete([[2, 3], [4, 2]]),
    "multi-binary": MultiBinary(3),
    "multi-binary of two axes": MultiBinary((2, 2)),
}
SPACES = LEAVES | {
    "tuple": Tuple((Discrete(3), Box(-1.0, 1.0, (2,)))),
    "dict": Dict({"move": Box(0.0, 1.0, (3,)), "mode": Discrete(2), "flags": MultiBinary(2)}),
    "nested": Tuple((Dict({"b": Discrete(2), "a": Tuple((Box(-1.0, 1.0, (1,)), MultiDiscrete([2, 2])))}), Discrete(3))),
}
leaves = st.sampled_from(sorted(LEAVES)).map(LEAVES.get)
any_space = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Tuple(parts))
        | st.dictionaries(st.sampled_from("xyz"), inner, min_size=1, max_size=3).map(Dict)
    ),
    max_leaves=5,
)


def same(space, one, other):
    if isinstance(space, Tuple):
        return len(one) == len(other) and all(map(same, space.spaces, one, other))
    if isinstance(space, Dict):
        return list(one) == list(other) and all(same(part, one[k], other[k]) for k, part in space.spaces.items())
    return type(one) is type(other) and np.asarray(one).dtype == np.asarray(other).dtype and np.array_equal(one, other)


def round_trip(space, seed):
    flat = FlatSpace(space)
    space.seed(seed)
    for _ in range(3):
        action = space.sample()
        vector = flat.encode(action)
        assert vector.shape == (flat.size,)
        assert flat.action_set.contains(vector)
        back = flat.decode(vector)
        assert same(space, back, action), (back, action)


@pytest.mark.parametrize("name", SPACES)
def test_an_action_comes_back_as_it_was(name):
    round_trip(SPACES[name], 0)


@settings(max_examples=60, deadline=None)
@given(space=any_space, seed=st.integers(0, 10**6))
def test_an_action_of_any_space_comes_back_as_it_was(space, seed):
    round_trip(space, seed)


@pytest.mark.parametrize("name", SPACES)
def test_any_vector_leads_to_an_action_of_the_space(name):
    space = SPACES[name]
    flat, rng = FlatSpace(space), np.random.default_rng(0)
    for target in 3 * rng.normal(size=(20, flat.size)):
        vector = flat.action_set.admissible(target, flat.dtype)
        action = flat.decode(vector)
        assert space.contains(action), action
        np.testing.assert_allclose(flat.encode(action), vector, atol=1e-12)


def test_a_choice_is_one_hot_and_the_largest_entry_counts():
    flat = FlatSpace(Discrete(3, start=10))
    np.testing.assert_array_equal(flat.encode(11), [0, 1, 0])
    assert flat.decode([0.1, 0.2, 0.7]) == 12
    np.testing.assert_array_equal(flat.action_set.project([0.4, 0.9, 0.3]), [0, 1, 0])
    assert flat.action_set.integer == (0, 1, 2)


def test_every_choice_of_a_small_space_is_a_vector_and_no_other_whole_vector_is():
    import itertools

    flat = FlatSpace(Tuple((Discrete(2), MultiDiscrete([2, 2]), MultiBinary(1))))
    admitted = [v for v in itertools.product([0.0, 1.0], repeat=flat.size) if flat.action_set.contains(np.array(v))]
    assert len(admitted) == 2 * 2 * 2 * 2
    assert len({str(flat.decode(v)) for v in admitted}) == len(admitted)


def test_numbers_are_rounded_to_the_coarsest_dtype():
    assert FlatSpace(Tuple((Box(0, 1, (1,), np.float64), Box(0, 1, (1,), np.float32)))).dtype == np.float32
    assert FlatSpace(Box(0, 1, (1,), np.float64)).dtype == np.float64
    assert FlatSpace(Discrete(3)).dtype == np.float32


def test_an_unbounded_box_stays_unbounded():
    flat = FlatSpace(Box(-np.inf, np.inf, (2,)))
    assert np.isinf(flat.action_set.low).all()
    assert flat.action_set.is_box


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FlatSpace(Text(3)), "holds Text"),
        (lambda: FlatSpace(Tuple((Discrete(2), gym.spaces.Sequence(Discrete(2))))), "holds Sequence"),
        (lambda: FlatSpace(Box(0, 1, (0,))), "no actions"),
        (lambda: FlatSpace(Discrete(2)).encode(5), "action = 5 is not an action of Discrete"),
        (lambda: FlatSpace(Discrete(2)).decode([1.0]), r"vector has shape \(1,\)"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(make, words):
    with pytest.raises(CaqlError, match=words):
        make()
