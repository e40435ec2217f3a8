"""The user's classes, one for each algorithm; only CAQL's has more than a name."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from caql.agents.agent import Policy
from caql.exported_encoders import Encoding
from caql.exports import policy_graph, q_graph
from caql.graphs import Network
from caql.maxq.arguments import checked_network, chosen_solver
from caql.maxq.maximize import maximize_over
from caql.maxq.problem import Solver
from caql.maxq.solvers import proving_solver
from caql.model.base import Model
from caql.networks import Layers


class Certificate(NamedTuple):
    """What `certify` proves: no admissible action is worth more than `upper`; `gap` = upper - value.

    Where no action is admissible the status is `Status.INFEASIBLE`, value and upper are -inf and the gap is NaN.

    action (B, d), the others (B,), all float64 but `status`, of `caql.Status`; without the axis B for one observation.
    """

    action: np.ndarray
    value: np.ndarray
    upper: np.ndarray
    gap: np.ndarray
    status: np.ndarray


class CAQL(Model):
    """Q-learning whose maximiser comes from a solver: `CAQL("MlpPolicy", env, solver="ga")`."""

    agent_name = "caql"

    def certify(
        self,
        observation: Any,
        tolerance: float = 1e-4,
        solver: str | Solver | None = None,
        *,
        time_limit: float | None = None,
        node_limit: int | None = None,
    ) -> Certificate:
        """The best action at an observation (n,), or at each of a batch (B, n), with a proof of how good it is.

        Q is the network with exactly the weights learned, and everything is computed in float64: its first layer is
        not rounded to float32 when the state is folded in.  The proof is over the admissible actions of each state; by
        default the solver is `exact` if it takes such sets, and `mip` if not.
        `solver`, `tolerance`, `time_limit` and `node_limit`, warnings, errors and Ctrl-C are as in `caql.maximize`.
        """
        states = np.asarray(observation, np.float64).reshape(self._states(observation).shape)
        action_set = self.task.sets_at(states)
        solver = solver or proving_solver(action_set)
        guess: Any = self.training.agent.max_q(self.training.state, states.astype(np.float32)).warm_start
        solution = maximize_over(
            checked_network(
                [(np.asarray(weights), np.asarray(bias)) for weights, bias in self.q_layers()], self.q_inputs(states)
            ),
            action_set,
            chosen_solver(solver, {"threads": None, "time_limit": time_limit, "node_limit": node_limit}),
            tolerance,
            # A diverged action function must not keep anyone from knowing what Q is worth.
            guess if guess is not None and np.isfinite(guess).all() else None,
        )
        with np.errstate(invalid="ignore"):  # where no action is admissible, both are -inf
            gap = solution.upper - solution.values
        certificate = Certificate(solution.actions, solution.values, solution.upper, gap, solution.status)
        if self._is_batch(observation):
            return certificate
        return Certificate(*(np.asarray(part)[0] for part in certificate))

    def q_layers(self) -> Layers:
        """The Q-network's layers `(W, b)`, for `caql.maximize` and the like: of `q_inputs` and the action."""
        layers: Layers = self.training.agent.q_network.layers(np.asarray(self.training.state.q.vector))
        return layers

    def q_inputs(self, observations: Any) -> np.ndarray:
        """What the Q-network's layers see of (B, n) observations: an encoder's features, or the observations."""
        inputs: np.ndarray = self.training.agent.inputs(self.training.state, observations)
        return inputs

    def _policy_graph(self) -> Network:
        agent, state = self.training.agent, self.training.state
        return policy_graph(self.greedy_policy(), self._encoding(agent.maximised(state)))

    def _q_graph(self) -> Network:
        return q_graph(self.q_layers(), self.task.observation_size, self._encoding(self.training.state.q.vector))

    def _encoding(self, vector: Any) -> Encoding | None:
        """The encoder in front of the networks, if there is one, of Q's parameters in a vector."""
        encoder = self.training.agent.q_network.encoder
        return None if encoder is None else Encoding(encoder, vector[: encoder.size])

    def _solver_policy(self) -> Policy:
        sigma = self.config.agent.exploration.size(self.training.decays, self.task.action_set)
        policy: Policy = self.training.agent.solver_policy(self.training.state, sigma)
        return policy


class NAF(Model):
    """Normalised advantage functions: a Q-function quadratic in the action."""

    agent_name = "naf"


class DDPG(Model):
    """Deep deterministic policy gradient."""

    agent_name = "ddpg"


class TD3(Model):
    """Twin delayed deterministic policy gradient."""

    agent_name = "td3"


class SAC(Model):
    """Soft actor-critic."""

    agent_name = "sac"


MODELS: dict[str, type[Model]] = {cls.agent_name: cls for cls in (CAQL, NAF, DDPG, TD3, SAC)}
