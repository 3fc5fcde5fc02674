"""Self-play: one policy against copies of itself, in a game of PettingZoo.

    pip install 'zoo-rl[pettingzoo]'
    python examples/self_play.py [steps] [seed]

An agent needs an environment with one player, so the example makes one. The agent sits in one of the two seats. A
copy of the agent from an earlier round sits in the other. Nobody shows them how to play. In about a minute the agent
learns tic-tac-toe from its own games. It then wins nine of ten games against a random player, which it never met in
training.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from pettingzoo.classic import tictactoe_v3

import zoo

Player = Callable[[Any], Any]


class Seat(gymnasium.Env):
    """A game of two players, seen from one seat. The seat is drawn for every game. A win gives 1, a loss -1.

    Args:
        players: functions from an observation to an action; for every game one is drawn for the other seat.
    """

    def __init__(self, players: list[Player]) -> None:
        self.players = players
        self.game = tictactoe_v3.env()
        board = Box(0.0, 1.0, (18,), np.float32)  # nine squares for each player's marks, the own marks first
        self.observation_space = Dict({'board': board, 'action_mask': MultiBinary(9)})
        self.action_space = Discrete(9)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.game.reset(seed=seed)
        self.own = self.game.possible_agents[self.np_random.integers(2)]
        self.other = self.players[self.np_random.integers(len(self.players))]
        self._wait()
        return self._see(self.own), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.game.step(int(action))
        self._wait()
        return self._see(self.own), float(self.game.rewards[self.own]), self._over, False, {}

    @property
    def _over(self) -> bool:
        return any(self.game.terminations.values())

    def _wait(self) -> None:
        """Let the other player play until it is the own turn."""
        while not self._over and self.game.agent_selection != self.own:
            self.game.step(int(self.other(self._see(self.game.agent_selection))))

    def _see(self, player: str) -> dict[str, np.ndarray]:
        seen = self.game.observe(player)
        return {'board': seen['observation'].ravel().astype(np.float32), 'action_mask': seen['action_mask']}


steps, seed = (int(x) for x in [*sys.argv[1:], *['60000', '0'][len(sys.argv) - 1 :]])
rng = np.random.default_rng(seed)


def at_random(obs: dict[str, np.ndarray]) -> int:
    return rng.choice(np.flatnonzero(obs['action_mask']))


def against_random() -> str:
    """Return the shares of wins, draws and losses in 500 games."""
    games = agent.rollout(Seat([at_random]), episodes=500, deterministic=True, seed=seed + 1).finished
    won, drawn, lost = (sum(game.episode_return == result for game in games) / len(games) for result in (1, 0, -1))
    return f'{won:.0%} won, {drawn:.0%} drawn, {lost:.0%} lost'


alg_params, learn_params = zoo.call_default_params(Seat([at_random]), 'gymnasium', 'PPO', seed=seed)
agent = zoo.algorithms.PPO(**alg_params | {'entropy_coef': 0.01})
print(f'Against a random player, before: {against_random()}')

players: list[Player] = []
rounds = 10
for _ in range(rounds):
    twin = copy.deepcopy(agent)  # plays as the agent does now
    players.append(lambda obs, twin=twin: twin.predict(obs, deterministic=False))
    # All copies of the environment share the list of players, so they step in this process.
    env = zoo.build_env(lambda: Seat(players), 'gymnasium', nenv=8, vectorized='sync', seed=seed)
    agent.learn(env, 'train', run_dir=False, **learn_params | {'train_steps': steps // rounds, 'horizon': 128})
print(f'Against a random player, after {rounds} rounds against itself: {against_random()}')
