"""Stable-Baselines3 models: critics and actor, from the object and from its file, and the audit of one by the other."""

from pathlib import Path

import numpy as np
import pytest

from caql import cli, maximize, network
from caql.errors import CaqlError
from caql.importers.stable_baselines import actions_of, imported

torch = pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")
SMALL = {"net_arch": [12, 8]}


def made(name: str, **policy: object):
    return getattr(sb3, name)("MlpPolicy", "Pendulum-v1", policy_kwargs={**SMALL, **policy}, seed=0, buffer_size=100)


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG"])
def test_critics_and_actor_compute_what_the_model_computes(tmp_path: Path, name: str) -> None:
    model = made(name, activation_fn=torch.nn.ELU if name == "TD3" else torch.nn.ReLU)
    model.save(tmp_path / "model.zip")
    states = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    for source in (model, tmp_path / "model.zip"):
        found = imported(source)
        actions = actions_of(found, states)
        low, high = model.action_space.low, model.action_space.high
        expected, _ = model.predict(states, deterministic=True)
        np.testing.assert_allclose(low + 0.5 * (actions + 1) * (high - low), expected, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            each = model.critic(torch.tensor(states), torch.tensor(actions, dtype=torch.float32))
        each = np.concatenate([one.numpy() for one in each], axis=1)
        np.testing.assert_allclose(
            found.critic.evaluate(states, actions), np.c_[each.min(axis=1), each], rtol=1e-4, atol=1e-5
        )
    solution = maximize(network(tmp_path / "model.zip"), -1, 1, states=states[:2], tolerance=1e-2)
    assert (solution.status == 0).all()


@pytest.mark.parametrize("clip", [2.0, 0.5, 0.0])
def test_the_mean_of_state_dependent_exploration_is_clipped(tmp_path: Path, clip: float) -> None:
    model = made("SAC", use_sde=True, clip_mean=clip, activation_fn=torch.nn.Hardswish)
    with torch.no_grad():
        for parameter in model.actor.mu.parameters():
            parameter.mul_(40.0)
    model.save(tmp_path / "model.zip")
    states = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    expected, _ = model.predict(states, deterministic=True)
    for source in (model, tmp_path / "model.zip"):
        np.testing.assert_allclose(2.0 * actions_of(imported(source), states), expected, rtol=1e-4, atol=1e-5)


def test_an_audit_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from caql.cli.audit import main

    made("SAC").save(tmp_path / "model.zip")
    picture = tmp_path / "audit.svg"
    main([str(tmp_path / "model.zip"), "--env", "Pendulum-v1", "--states", "6", "--out", str(picture)])
    said = capsys.readouterr().out
    assert "6 states that its actor visits" in said
    assert "6 of 6 maxima proved" in said
    assert "shortfall, at most (proved)" in said
    assert picture.read_text().startswith("<?xml")
    assert "audit" in cli.COMMANDS


def test_what_cannot_be_audited_is_named(tmp_path: Path) -> None:
    from caql.cli.audit import main

    made("SAC").save(tmp_path / "model.zip")
    (tmp_path / "text.zip").write_bytes(b"no archive")
    for arguments, message in (
        (["model.zip", "--env", "Acrobot-v1"], "right would be two boxes"),
        (["model.zip", "--env", "MountainCarContinuous-v0"], "the model takes 3 and 1"),
        (["model.zip", "--env", "Nowhere-v0"], "cannot be made"),
        (["text.zip", "--env", "Pendulum-v1"], "is not a model that Stable-Baselines3 saved"),
        (["model.zip", "--env", "Pendulum-v1", "--states", "0"], "states = 0 must be at least 1"),
    ):
        with pytest.raises(CaqlError) as raised:
            main([str(tmp_path / arguments[0]), *arguments[1:]])
        assert message in str(raised.value)
    with pytest.raises(CaqlError, match="has no critic of actions"):
        network(sb3.PPO("MlpPolicy", "Pendulum-v1", policy_kwargs=SMALL))
