import dataclasses
import json

import numpy as np
import pytest

from caql import CAQL
from caql.errors import CaqlError
from caql.model import load_model
from caql.runs import keeping
from caql.runs.folder import run
from caql.runs.keeping import Keeper
from caql.runs.training import Training
from tests.runs.test_training import TINY


@pytest.fixture
def short(monkeypatch):
    """Stretches of two episodes: TINY learns after twelve, the second to the thirteenth."""
    monkeypatch.setattr(keeping, "STRETCH", 2)


def test_the_best_stretch_is_kept_and_of_equals_the_later():
    keeper, asked = Keeper(), []

    def weights():
        asked.append(len(asked))
        return {"state.w": np.array([len(asked)])}, dict.fromkeys(keeping.COUNTERS, len(asked))

    keeper.add([1.0] * 49, weights)
    assert keeper.weights is None
    assert not asked
    keeper.add([51.0], weights)
    assert keeper.score == 2.0
    assert keeper.returns == []
    keeper.add([1.9] * 50, weights)
    assert len(asked) == 1
    keeper.add([2.0] * 50, weights)
    assert keeper.weights[0]["state.w"] == 2


def test_what_is_kept_are_the_weights_after_the_best_episodes_that_were_learned_from(short):
    training, seen, stretch = Training(TINY), [], []
    for epoch in training.epochs():
        if epoch.epoch and epoch.statistics:
            stretch += epoch.returns
        if len(stretch) == 2:
            seen.append((np.mean(stretch), epoch.train_step, np.array(training.state.action_function.vector)))
            stretch = []
    assert len(seen) == 6
    score, step, vector = max(seen, key=lambda each: each[0])
    arrays, counters = training.keeper.weights
    assert training.keeper.score == pytest.approx(score)
    assert counters["train_step"] == step
    assert step < training.train_step, "the test would not see the last weights being kept instead"
    np.testing.assert_array_equal(arrays["state.action_function.vector"], vector)


def test_learning_is_the_same_whatever_is_kept(monkeypatch):
    def weights(stretch):
        monkeypatch.setattr(keeping, "STRETCH", stretch)
        training = Training(TINY)
        list(training.epochs())
        return np.array(training.state.q.vector), [row["returns"] for row in training.records]

    (one, returns), (other, others) = weights(1), weights(10**9)
    np.testing.assert_array_equal(one, other)
    assert returns == others


@pytest.mark.parametrize("stop_after", [2, 4, 9])
def test_a_restored_run_keeps_what_it_would_have_kept(short, stop_after):
    whole, first, second = Training(TINY), Training(TINY), Training(TINY)
    list(whole.epochs())
    for _, _epoch in zip(range(stop_after), first.epochs(), strict=False):
        pass
    arrays, meta = first.snapshot()
    second.restore({name: array.copy() for name, array in arrays.items()}, json.loads(json.dumps(meta)))
    list(second.epochs())
    assert second.keeper.score == whole.keeper.score
    assert second.keeper.weights[1] == whole.keeper.weights[1]
    for name, array in whole.keeper.weights[0].items():
        np.testing.assert_array_equal(second.keeper.weights[0][name], array)


def test_a_checkpoint_of_before_has_nothing_kept_and_a_damaged_one_is_refused(short):
    training = Training(TINY)
    list(training.epochs())
    arrays, meta = training.snapshot()
    old = {name: array for name, array in arrays.items() if not name.startswith("kept.")}
    other = Training(TINY)
    other.restore(old, {name: value for name, value in meta.items() if name != "kept"})
    assert other.keeper.weights is None
    for wrong in (
        {"kept": []},
        {"kept": meta["kept"] | {"returns": ["1"]}},
        {"kept": meta["kept"] | {"score": None}},
        {"kept": meta["kept"] | {"counters": {}}},
    ):
        with pytest.raises(CaqlError, match="does not fit"):
            Training(TINY).restore(arrays, meta | wrong)
    with pytest.raises(CaqlError, match=r"does not fit: state\.q\.vector"):
        Training(TINY).restore(arrays | {"kept.state.q.vector": np.zeros(3, np.float32)}, meta)


def test_the_folder_has_the_kept_weights_as_a_model_of_their_own(short, tmp_path):
    assert run(TINY, tmp_path / "run")
    training = Training(TINY)
    list(training.epochs())
    arrays, counters = training.keeper.weights
    model = load_model(tmp_path / "run" / "kept.safetensors")
    assert model.train_step == counters["train_step"] < TINY.train_steps
    np.testing.assert_array_equal(np.asarray(model.training.state.q.vector), arrays["state.q.vector"])
    told = json.loads((tmp_path / "run" / "finished.json").read_text())["kept"]
    assert told == {"train_step": counters["train_step"], "training_return": training.keeper.score}


def test_a_run_of_few_episodes_keeps_nothing(tmp_path):
    run(dataclasses.replace(TINY, train_steps=20), tmp_path / "run")
    assert not (tmp_path / "run" / "kept.safetensors").exists()
    assert "kept" not in json.loads((tmp_path / "run" / "finished.json").read_text())


def test_a_model_goes_back_to_what_was_kept(short):
    settings = {"hidden": (8, 4), "action_hidden": (8, 4), "batch_size": 8, "warm_up": 40, "steps_per_epoch": 10}
    model = CAQL("MlpPolicy", "Pendulum", episode_steps=20, seed=0, **settings)
    with pytest.raises(CaqlError, match=r"no weights are kept yet: that takes 50 exploring episodes .* there were 0"):
        model.take_kept()
    model.learn(400)
    arrays, counters = model.training.keeper.weights
    before = model.predict(np.array([1.0, 0.0, 0.0]))[0]
    assert model.take_kept() == counters["train_step"] < model.train_step
    np.testing.assert_array_equal(
        model.get_parameters()["state.action_function.vector"], arrays["state.action_function.vector"]
    )
    assert not np.array_equal(model.predict(np.array([1.0, 0.0, 0.0]))[0], before)
    model.learn(40)
