"""Perturbed parameters, and the episodes that are played with them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from zoo import algorithms, build_env
from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward
from zoo.common.acting.perturbed import GraphPopulation, NumpyPopulation, direction, episode_seed, population
from zoo.common.rollouts.collector import Collector
from zoo.common.rollouts.perturbed_play import PerturbedPlay, both_ways

VECTOR = Box(-1.0, 1.0, (3,), np.float32)


class Told(gymnasium.Env):
    """Episodes of ``length`` steps that pay the action, in which it is written down what was done."""

    observation_space = VECTOR
    action_space = Box(-9.0, 9.0, (1,), np.float32)

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.seeds: list[int | None] = []
        self.seen: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        return self._observe(), float(action[0]), self.t == self.length, False, {}

    def _observe(self) -> np.ndarray:
        self.seen.append(self.np_random.uniform(-1, 1, 3).astype(np.float32))
        return self.seen[-1]


def agent_for(env: Any, **params: Any) -> algorithms.Algorithm:
    prefix = 'single_' if hasattr(env, 'num_envs') else ''
    spaces = [getattr(env, prefix + kind) for kind in ('observation_space', 'action_space')]
    return algorithms.ES(*spaces, **{'net_list': [{'hidden': [4], 'seed': 0}], 'num_directions': 2} | params)


def test_a_perturbation_is_made_again_from_its_seed():
    seed = 2**61 + 17
    found = direction(seed, 1000)
    np.testing.assert_array_equal(found, direction(seed, 1000))
    np.testing.assert_array_equal(found[:10], direction(seed, 10))
    assert found.dtype == np.float32 and abs(found.mean()) < 0.1 and abs(found.std() - 1) < 0.1
    assert abs(np.corrcoef(found, direction(seed + 1, 1000))[0, 1]) < 0.1


def test_every_episode_has_a_seed_of_its_own():
    found = {episode_seed(seed, sign, i) for seed in (0, 2**61) for sign in (1, -1) for i in range(3)}
    assert len(found) == 12 and all(0 <= x < 2**31 for x in found)
    assert episode_seed(5, 1, 0) == episode_seed(5, 1, 0)


class TestPopulation:
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)

    def test_numpy_and_graphs_give_what_each_vector_gives_alone(self):
        agent = agent_for(Told())
        size = agent.forward.numpy.packed.size
        vectors = np.random.default_rng(1).normal(size=(5, size)).astype(np.float32)
        made = population(agent.forward, 5), GraphPopulation(agent.forward, 5)
        assert type(made[0]) is NumpyPopulation
        np.testing.assert_array_equal(made[0].parameters, made[1].parameters)
        own = agent.forward(self.obs)
        for found in made:
            for i, vector in enumerate(vectors):
                found.set(i, vector)
        outputs = [found(self.obs) for found in made]
        for found in made:
            found.close()
        np.testing.assert_array_equal(agent.forward(self.obs), own)  # it has its parameters again
        for i, vector in enumerate(vectors):
            agent.forward.unpack(vector)
            for output in outputs:
                np.testing.assert_allclose(output[i], agent.forward(self.obs[i : i + 1])[0], atol=1e-6)

    def test_an_actor_needs_no_forward_but_the_one_in_numpy(self):
        light = agent_for(Told()).behavior.light()
        assert isinstance(light.forward, Chain)
        assert isinstance(population(light.forward, 2), NumpyPopulation)

    def test_frozen_weights_are_not_perturbed(self):
        layers = [keras.layers.Dense(5, 'tanh', trainable=False), keras.layers.Dense(4, 'tanh')]
        agent = agent_for(Told(), net_list=[keras.Sequential([keras.Input((3,)), *layers])])
        assert agent.behavior.light().forward is None  # in NumPy the frozen ones would be perturbed, too
        found = population(agent.forward, 1)
        assert isinstance(found, GraphPopulation) and found.parameters.size == 24 + 4 + 1
        before = layers[0].get_weights()
        found.set(0, found.parameters + 1.0)
        found(self.obs[:1])
        np.testing.assert_array_equal(agent.network.head.get_weights()[0][:, 0], found.parameters[24:28] + 1.0)
        found.close()
        for a, b in zip(layers[0].get_weights(), before, strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.parametrize('frozen', [True, False])
    def test_the_parameters_of_an_actor_are_those_it_was_sent(self, frozen: bool):
        """Also where its forward pass is by NumPy, but not the population, because a layer is frozen."""

        def made() -> Any:
            layers = [keras.layers.Dense(5, 'tanh', trainable=not frozen), keras.layers.Dense(4, 'tanh')]
            return agent_for(Told(), net_list=[keras.Sequential([keras.Input((3,)), *layers])])

        learner, actor = made(), made()
        for variable in learner.trainable_variables:
            variable.assign(variable + 1.0)
        learner.forward.refresh()
        sent = learner.forward.weights()
        actor.forward.load({name: np.array(x) for name, x in sent.items()})
        np.testing.assert_array_equal(
            population(actor.forward, 1).parameters, population(learner.forward, 1).parameters
        )
        np.testing.assert_array_equal(actor.forward(self.obs), learner.forward(self.obs))
        actor.forward.refresh()
        np.testing.assert_array_equal(actor.forward(self.obs), learner.forward(self.obs))

    def test_images(self):
        space = Box(0, 255, (8, 8, 1), np.uint8)
        agent = algorithms.ES(space, Discrete(3), net_list=[{'hidden': [], 'features': 4, 'seed': 0}])
        found = population(agent.forward, 2)
        obs = np.random.default_rng(0).integers(0, 255, (2, 8, 8, 1), dtype=np.uint8)
        own = agent.forward(obs)
        np.testing.assert_allclose(found(obs), own, atol=1e-6)
        found.set(1, 2 * found.parameters)
        moved = found(obs)
        np.testing.assert_allclose(moved[0], own[0], atol=1e-6)
        assert np.abs(moved[1] - own[1]).max() > 1e-3
        found.close()
        np.testing.assert_array_equal(agent.forward(obs), own)


def evaluate(agent: Any, env: Any, seeds: Any, episodes: int = 1, std: float = 0.5) -> tuple:
    collector = Collector(env, agent.action_adaptor)
    steps: list[int] = []
    play = PerturbedPlay(collector, agent.behavior, episodes)
    found = play(*both_ways(np.array(seeds)), std, lambda before: steps.append(collector.steps - before))
    return (*found, sum(steps))


class TestPerturbedPlay:
    def test_returns_are_those_of_the_perturbed_parameters(self):
        """Played again by hand: θ ± σ ε for whole episodes, with the episodes' own seeds."""
        env = Told()
        agent = agent_for(env)
        theta = agent.forward.numpy.packed.copy()
        returns, lengths, _, steps = evaluate(agent, env, [11, 12], episodes=2)
        assert steps == 24 and lengths.tolist() == [6] * 4
        for k, (seed, sign) in enumerate([(11, 1), (11, -1), (12, 1), (12, -1)]):
            agent.forward.unpack(theta + np.float32(sign * 0.5) * direction(seed, theta.size))
            total = 0.0
            for episode in range(2):
                obs, _ = env.reset(seed=episode_seed(seed, sign, episode))
                over = False
                while not over:
                    action = agent.action_adaptor.to_single_env(agent.act(obs[None]))
                    obs, reward, over, _, _ = env.step(action)
                    total += reward
            assert returns[k] == pytest.approx(total / 2, abs=1e-5)
        assert len(set(returns.tolist())) == 4

    def test_a_single_environment_is_seeded_for_every_episode(self):
        env = Told()
        evaluate(agent_for(env), env, [11, 12], episodes=2)
        expected = [episode_seed(seed, sign, i) for seed in (11, 12) for sign in (1, -1) for i in (0, 1)]
        assert env.seeds == [*expected, None]  # after the last one it begins anew by itself

    def test_who_plays_which_does_not_matter(self):
        env = Told()
        agent = agent_for(env)
        together = evaluate(agent, env, [11, 12, 13])
        apart = [evaluate(agent, env, [seed]) for seed in (13, 11, 12)]
        np.testing.assert_array_equal(together[0], np.concatenate([apart[i][0] for i in (1, 2, 0)]))

    @pytest.mark.parametrize('mode', ['SAME_STEP', 'NEXT_STEP', 'DISABLED'])
    def test_copies_play_a_perturbation_each(self, mode):
        env = gymnasium.vector.SyncVectorEnv(
            [partial(Told, length) for length in (2, 3, 7)], autoreset_mode=gymnasium.vector.AutoresetMode[mode]
        )
        agent = agent_for(env, normalize_obs=True)
        returns, lengths, observed, _ = evaluate(agent, env, [11, 12], episodes=2)
        assert np.isfinite(returns).all() and len(set(returns.tolist())) == 4
        # The first three evaluations begin in one copy each; the first of them that is done takes the fourth.
        assert lengths.tolist() == [4, 6, 14, 4]
        assert observed[''].shape == (4, 3, 3)

    def test_what_is_observed_is_tallied(self):
        env = Told()
        agent = agent_for(env, normalize_obs=True)
        agent.statistics[''].update(np.random.default_rng(0).normal(size=(9, 3)))
        before = agent.statistics[''].mean.copy()
        _, _, observed, _ = evaluate(agent, env, [11])
        seen = np.array(env.seen[:8], np.float64).reshape(2, 4, 3)[:, :3]  # not the last of each episode
        np.testing.assert_array_equal(observed[''][:, 0], 3.0)
        np.testing.assert_allclose(observed[''][:, 1], seen.mean(1), atol=1e-9)
        np.testing.assert_allclose(observed[''][:, 2], 3 * seen.var(1), atol=1e-9)
        np.testing.assert_array_equal(agent.statistics[''].mean, before)

    def test_rewards_are_those_of_training(self):
        """Shaped, though the environment keeps an account of its own."""
        plain, shaped = (
            build_env(gymnasium.wrappers.RecordEpisodeStatistics(Told()), 'gymnasium', reward_shaping=shaping)
            for shaping in (None, lambda reward: 10 * reward)
        )
        agent = agent_for(plain)
        np.testing.assert_allclose(evaluate(agent, shaped, [11])[0], 10 * evaluate(agent, plain, [11])[0], rtol=1e-5)

    def test_after_a_failure_the_parameters_are_back(self):
        space = Box(0, 255, (8, 8, 1), np.uint8)

        class Fails(gymnasium.Env):
            observation_space, action_space = space, Discrete(2)

            def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
                return np.zeros((8, 8, 1), np.uint8), {}

            def step(self, action: Any) -> tuple:
                raise LookupError

        agent = algorithms.ES(space, Discrete(2), net_list=[{'hidden': [], 'features': 4, 'seed': 0}])
        before = [v.numpy() for v in agent.trainable_variables]
        with pytest.raises(LookupError):
            evaluate(agent, Fails(), [3])
        for a, b in zip(before, agent.trainable_variables, strict=True):
            np.testing.assert_array_equal(a, b)


def test_masks_forbid():
    space = Dict(pose=VECTOR, action_mask=MultiBinary(3))
    agent = algorithms.ES(space, Discrete(3), net_list=[{'hidden': [4], 'seed': 0}])
    obs = {'pose': np.zeros((3, 3), np.float32), 'action_mask': np.eye(3, dtype=np.int8)}
    assert agent.act(obs).tolist() == [0, 1, 2]
    assert isinstance(agent.forward, Forward)
