"""Stable-Baselines3's names for settings, and what the settings are where none is given."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from caql import CAQL, DDPG, NAF, SAC, TD3, CaqlError
from caql.agents import config_class
from caql.agents.policies import Exploration
from caql.config import RunConfig
from caql.maxq.solvers import make_solver
from caql.model.names import STEPPING, STEPPING_AGENT, Defaults, choose, loop_fields


def chosen(agent="caql", paper=False, policy_kwargs=None, **settings):
    return choose((agent, agent.upper()), settings, policy_kwargs, Defaults(paper))


def test_their_names_reach_our_settings():
    agent, loop = chosen(
        learning_rate=3e-4, gamma=0.9, tau=0.02, buffer_size=900, learning_starts=50, batch_size=8, gradient_steps=3
    )
    assert (agent.q_learning_rate, agent.action_learning_rate) == (3e-4, 3e-4)
    assert agent.hinge_penalty_learning_rate == 0
    assert (agent.discount, agent.target_rate) == (0.9, 0.02)
    assert (loop["replay_size"], loop["warm_up"], loop["batch_size"], loop["steps_per_epoch"]) == (900, 50, 8, 3)
    assert chosen(learning_starts=0).loop["warm_up"] == 1


@pytest.mark.parametrize("agent", ["caql", "naf", "ddpg", "td3", "sac"])
def test_one_learning_rate_is_every_learning_rate(agent):
    config = chosen(agent, learning_rate=2e-4).agent
    rates = {f.name for f in dataclasses.fields(config) if f.name.endswith("learning_rate")}
    assert all(getattr(config, name) == 2e-4 for name in rates - {"hinge_penalty_learning_rate"})


def test_a_rate_of_its_own_wins():
    config = chosen(learning_rate=1e-3, q_learning_rate=5e-4).agent
    assert (config.q_learning_rate, config.action_learning_rate) == (5e-4, 1e-3)


def test_a_preset_lies_under_what_is_given_by_either_name():
    agent, loop = chosen(preset="recommended", paper=True)
    assert (agent.critics, agent.hidden, loop["replay_size"]) == (2, (64, 64), 1_000_000)
    assert chosen(preset="recommended", buffer_size=900).loop["replay_size"] == 900
    agent, loop = chosen(preset="recommended", replay_size=800, policy_kwargs={"net_arch": [8]}, critics=3)
    assert (agent.critics, agent.hidden, loop["replay_size"]) == (3, (8,), 800)


def test_a_preset_is_one_that_is_known_and_caqls():
    with pytest.raises(CaqlError, match="preset = 'recomended' is not known"):
        chosen(preset="recomended")
    with pytest.raises(CaqlError, match="preset = 'paper' is a set of CAQL's settings; td3 has none"):
        chosen("td3", preset="paper")


@pytest.mark.parametrize("paper", [True, False])
def test_python_begins_with_the_recommended_preset(paper):
    found = chosen(paper=paper)
    assert found == chosen(paper=paper, preset="recommended")
    assert (found.agent.critics, found.agent.hidden, found.loop["replay_keeps"]) == (2, (64, 64), "sample")
    assert chosen(paper=paper, preset="paper").agent.hidden == (32, 16)
    assert chosen("td3", paper=paper).loop.get("replay_keeps") is None


@pytest.mark.parametrize(
    ("settings", "recommended"),
    [
        ({"solver": "cem"}, True),
        ({"solver": make_solver("ga", iterations=5)}, True),
        ({"solver": "exact"}, False),
        ({"solver": "highs"}, False),
        ({"solver": make_solver("exact")}, False),
        ({"encoder": "cnn"}, False),
        ({"solver": "exact", "preset": "recommended"}, True),
    ],
)
def test_solvers_that_prove_and_encoders_begin_as_the_paper_does_unless_a_preset_is_named(settings, recommended):
    agent, loop = chosen(**settings)
    assert (agent.critics, agent.hidden) == ((2, (64, 64)) if recommended else (1, (32, 16)))
    assert ("replay_keeps" in loop) == recommended


def test_noise_goes_with_the_loop_whatever_the_preset():
    """It decays by the epoch, and an epoch is another one where gradient steps follow environment steps."""
    for preset in ("paper", "recommended"):
        assert chosen(preset=preset).agent.exploration == STEPPING_AGENT["exploration"]
        assert chosen(preset=preset, paper=True).agent.exploration == Exploration(decay=0.9999)
        own = Exploration(sigma=0.2)
        assert chosen(preset=preset, exploration=own).agent.exploration == own


def test_noise_of_ones_own_wins_over_the_presets():
    model = CAQL("MlpPolicy", "Pendulum", preset="recommended", action_noise=0.3, seed=0)
    assert model.config.agent.exploration == Exploration(sigma=0.3, decay=1.0, minimum=0.3)


@pytest.mark.parametrize(
    ("given", "frequency", "steps"),
    [
        ({}, (20, "step"), -1),
        ({"train_freq": 1}, (1, "step"), 1),
        ({"train_freq": np.int64(4), "gradient_steps": -1}, (4, "step"), -1),
        ({"train_freq": (2, "episode")}, (2, "episode"), 1),
        ({"train_freq": [3, "step"], "gradient_steps": 7}, (3, "step"), 7),
        ({"gradient_steps": 2}, (1, "step"), 2),
        ({"steps_per_epoch": 5}, (1, "episode"), 5),
    ],
)
def test_the_one_of_the_two_that_is_not_given_is_theirs(given, frequency, steps):
    loop = chosen(**given).loop
    assert (loop["train_freq"], loop["steps_per_epoch"]) == (frequency, steps)


@pytest.mark.parametrize("env", ["Pendulum", "pendulum", "R+O03"])
def test_a_task_by_name_has_the_papers_loop_and_by_request_all_of_the_command_lines_settings(env):
    paper = CAQL("MlpPolicy", env, defaults="paper").config
    assert dataclasses.replace(paper, evaluate_every=1000) == RunConfig(env)
    config = CAQL("MlpPolicy", env).config
    assert (config.train_freq, config.steps_per_epoch, config.warm_up) == ((1, "episode"), 20, 1280)
    assert CAQL("MlpPolicy", env, gradient_steps=7).config.train_freq == (1, "episode")


@pytest.mark.parametrize("env", ["Pendulum-v1", lambda: gym.make("Pendulum-v1")])
def test_any_other_environment_begins_with_a_gradient_step_for_each_step(env):
    config = CAQL("MlpPolicy", env() if callable(env) else env).config
    assert (config.train_freq, config.steps_per_epoch, config.warm_up) == tuple(STEPPING.values())
    assert config.agent.target_rate == 0.005
    assert config.agent.exploration.minimum == 0.1
    paper = CAQL("MlpPolicy", "Pendulum-v1", defaults="paper").config
    assert (paper.train_freq, paper.steps_per_epoch, paper.warm_up) == ((1, "episode"), 20, 1280)
    assert paper.agent == config_class("caql")()
    named = CAQL("MlpPolicy", "Pendulum", defaults="stable-baselines3").config
    assert named.train_freq == (20, "step")


def test_a_small_buffer_needs_no_smaller_warm_up():
    assert CAQL("MlpPolicy", "Pendulum-v1", buffer_size=30, batch_size=4).config.warm_up == 30


@pytest.mark.parametrize(
    ("cls", "hidden"), [(CAQL, (8, 4)), (NAF, (8, 4)), (DDPG, (8, 4)), (TD3, (8, 4)), (SAC, (8, 4))]
)
def test_net_arch(cls, hidden):
    class ReLU:  # as torch.nn has it
        pass

    kwargs = {"net_arch": [8, 4], "activation_fn": ReLU}
    assert cls("MlpPolicy", "Pendulum-v1", policy_kwargs=kwargs).config.agent.hidden == hidden


def test_the_networks_of_q_and_of_the_action_function_may_differ():
    agent = chosen(policy_kwargs={"net_arch": {"qf": [9], "pi": [3, 2]}}).agent
    assert (agent.hidden, agent.action_hidden) == ((9,), (3, 2))
    same = {"net_arch": {"qf": [9], "pi": [9]}}
    assert chosen("td3", policy_kwargs=same).agent.hidden == (9,)


def test_the_temperature_of_sac():
    assert chosen("sac", ent_coef="auto", target_entropy="auto").agent == chosen("sac").agent
    assert chosen("sac", ent_coef="auto_0.1").agent.initial_temperature == 0.1
    fixed = chosen("sac", ent_coef=0.2).agent
    assert (fixed.initial_temperature, fixed.temperature_decay, fixed.temperature) == (0.2, 1.0, "decayed")


def test_smoothing_of_td3():
    agent = chosen("td3", target_policy_noise=0.1, target_noise_clip=0.3, policy_delay=3).agent
    assert (agent.smoothing_sigma, agent.smoothing_clip, agent.policy_delay) == (0.1, 0.3, 3)


def test_no_seed_is_another_one_each_time_and_is_told():
    one, other = (CAQL("MlpPolicy", "Pendulum-v1", seed=None) for _ in range(2))
    assert one.seed == one.config.seed != other.seed


class NormalActionNoise:
    """The parts of Stable-Baselines3's that are looked at."""

    def __init__(self, mean, sigma):
        self._mu, self._sigma = np.asarray(mean), np.asarray(sigma)

    def __call__(self):
        return self._mu


@pytest.mark.parametrize("noise", [0.2, NormalActionNoise([0.0], [0.2]), NormalActionNoise([0.0], 0.2)])
def test_plain_noise_becomes_the_agents_own(noise):
    model = TD3("MlpPolicy", "Pendulum-v1", action_noise=noise)
    assert model.config.agent.exploration == Exploration(0.2, 1.0, 0.2)
    assert model.action_noise is None


@pytest.mark.parametrize("cls", [TD3, SAC])
def test_any_other_noise_is_called_for_every_step(cls):
    calls = []

    def noise():
        calls.append(1)
        return np.array([100.0])

    model = cls("MlpPolicy", "Pendulum-v1", action_noise=noise, learning_starts=50).learn(40)
    assert len(calls) == 40
    # Far out of the range: every action ends at its edge, in the buffer as in the environment.
    assert (np.clip(model.replay_buffer.data.actions[:40], -2, 2) == 2.0).all()


def test_noise_that_wanders_starts_anew_with_each_episode():
    class Wandering:
        resets = 0

        def __call__(self):
            return np.zeros(1)

        def reset(self):
            self.resets += 1

    noise = Wandering()
    TD3("MlpPolicy", "Pendulum-v1", action_noise=noise, learning_starts=99, episode_steps=15).learn(40)
    assert noise.resets == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 1e-3}, "did you mean learning_rate"),
        ({"tauu": 0.1}, "did you mean 'tau'"),
        ({"bufer_size": 3}, "did you mean 'buffer_size'"),
        ({"net_arch": [3]}, "policy_kwargs=dict"),
        ({"ent_coef": "auto"}, "CAQL has no setting 'ent_coef'; it is SAC's"),
        ({"gamma": 0.9, "discount": 0.9}, "two names of one setting"),
        ({"use_sde": True}, "use_sde = True is not supported"),
        ({"optimize_memory_usage": True}, "is not supported"),
        ({"learning_rate": lambda left: left}, "a schedule is not supported"),
        ({"train_freq": "often"}, "train_freq = 'often' must be a number of steps, or a pair"),
        ({"train_freq": (1, "hour")}, "train_freq"),
        ({"train_freq": 0}, r"train_freq = \(0, 'step'\) must be at least 1"),
        ({"gradient_steps": 0}, "steps_per_epoch = 0 must be at least 1, or -1"),
        ({"policy_kwargs": {"net_arch": 3}}, "net_arch = 3 must be a list of whole numbers"),
        ({"policy_kwargs": {"net_arch": {"q": [3]}}}, "net_arch"),
        ({"policy_kwargs": {"activation_fn": "tanh"}}, "ReLU networks"),
        ({"device": "cuda"}, "JAX computes on cpu"),
        ({"device": "abacus"}, "device = 'abacus' is not known"),
        ({"action_noise": "much"}, "action_noise = 'much' must be a number, or an object"),
        ({"action_noise": -1.0}, "action_noise = -1.0 must be a finite number"),
        ({"defaults": "papers"}, "did you mean 'paper'"),
        ({"backend": "scip"}, "backend goes with a solver's name"),
    ],
)
def test_bad_settings_are_one_sentence(settings, words):
    with pytest.raises(CaqlError, match=words) as raised:
        CAQL("MlpPolicy", "Pendulum-v1", **settings)
    assert "\n" not in str(raised.value)


def test_net_arch_of_two_networks_needs_two_networks():
    with pytest.raises(CaqlError, match="only CAQL's may differ"):
        TD3("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": {"qf": [9], "pi": [8]}})


@pytest.mark.parametrize("name", ["tau", "gamma", "learning_rate", "buffer_size", "learning_starts", "gradient_steps"])
def test_nothing_else_is_suggested_for_their_names(name):
    assert name not in loop_fields()
    chosen(**{name: 0.5 if name in ("tau", "gamma", "learning_rate") else 64})


@pytest.mark.parametrize("solver", ["gurobi", "highs", "scip", "cplex", "exact", "ga", "cem"])
def test_one_name_for_each_solver(solver):
    from caql.cli.train import parse
    from caql.maxq.arguments import chosen_solver

    model = chosen(solver=solver).agent.solver
    assert model == parse(["Pendulum", "--solver", solver]).config.agent.solver
    assert model == chosen_solver(solver, {"threads": None})
