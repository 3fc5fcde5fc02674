"""DQN, C51, QRDQN and Rainbow with each switch: one update against NumPy, acting, masks, saving."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from reference import assert_close, copies, finite_differences, stir
from values import NumpyValues, means, update_by_hand

import zoo
from zoo import algorithms
from zoo.algorithms import C51, DQN, QRDQN, Rainbow
from zoo.algorithms.base import saving
from zoo.common.records import Batch
from zoo.common.sampling import Priorities, Sampling
from zoo.common.schedules import Linear

ACTIONS = 3
VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
MASKED = Dict(x=VECTOR, action_mask=MultiBinary(ACTIONS))

SIZES: dict[str, dict[str, Any]] = {
    'DQN': {'kappa': 0.8},
    'C51': {'atoms': 5, 'v_min': -3.0, 'v_max': 2.0},
    'QRDQN': {'quantiles': 4, 'kappa': 0.7},
    'Rainbow': {'atoms': 5, 'v_min': -3.0, 'v_max': 2.0},
}
NAMES = list(SIZES)

OFF = {'double_q': False, 'dueling': False, 'prioritized': False, 'noisy': False, 'n_step': 1}
ALL = {'double_q': True, 'dueling': True, 'prioritized': True, 'noisy': True, 'n_step': 3}
SWITCHES: dict[str, dict[str, Any]] = {'none': OFF, **{name: OFF | {name: on} for name, on in ALL.items()}, 'all': ALL}

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(name: str, space: Any = VECTOR, **params: Any) -> DQN:
    """A small agent whose target differs from its network."""
    params = {'net_list': [{'hidden': [5], 'activation': 'relu', 'seed': 0}]} | SIZES[name] | params
    agent = getattr(algorithms, name)(space, Discrete(ACTIONS, start=10), **params)
    stir(agent.network.variables, seed=1)
    stir(agent.target.variables, seed=2)
    agent.forward.refresh()
    return agent


def batch(size: int = 6, masked: bool = False, n_step: int = 1, seed: int = 0) -> Batch:
    """Transitions ``[size]`` of up to ``n_step`` steps, some terminated, each of another weight."""
    rng = np.random.default_rng(seed)

    def obs() -> Any:
        x = rng.normal(size=(size, 3)).astype(np.float32)
        if not masked:
            return x
        mask = rng.random((size, ACTIONS)) < 0.5
        mask[np.arange(size), rng.integers(ACTIONS, size=size)] = True
        return {'x': x, 'action_mask': mask.astype(np.int8)}

    steps = rng.integers(1, n_step + 1, size=size)
    terminated = np.arange(size) % 3 == 2
    return Batch(
        obs(),
        rng.integers(ACTIONS, size=size).astype(np.int32),
        rng.normal(size=size).astype(np.float32),
        obs(),
        terminated,
        np.arange(size) % 2 == 1,
        np.where(terminated, 0.0, 0.9**steps).astype(np.float32),
        rng.uniform(0.2, 1.0, size=size).astype(np.float32),
    )


def lead(data: Batch) -> Batch:
    """With an axis of one update before."""
    return tf.nest.map_structure(lambda x: np.asarray(x)[None], data)


def by_hand(agent: DQN, data: Batch, noise: list[np.ndarray | None]) -> tuple[Any, ...]:
    """The same in NumPy: the network's double, and what `update_by_hand` gives."""
    networks = [NumpyValues(x, ACTIONS, agent.dueling, agent.noisy) for x in (agent.network, agent.target)]
    return networks[0], *update_by_hand(agent, *networks, data, noise)


@pytest.mark.full(but='DQN-double_q')
@pytest.mark.parametrize(
    ('name', 'switches'),
    [
        pytest.param(name, switches, marks=[] if name == 'DQN' or switches in ('none', 'all') else pytest.mark.matrix)
        for name in NAMES
        for switches in SWITCHES
    ],
)
def test_one_update_is_one_step_down_the_gradient(name: str, switches: str):
    masked = switches in ('double_q', 'all')
    params = SWITCHES[switches] | {'optimizers_list': [{'name': 'SGD', 'learning_rate': 0.1}]}
    agent = make(name, MASKED if masked else VECTOR, **params)
    data, seed = batch(masked=masked, n_step=agent.n_step), agent.noise_seed + [0, 2]  # as the compiled call draws it
    noise = [None if x is None else np.float64(x[0]) for x in agent.draw_noise(seed)]
    network, loss, priority, _ = by_hand(agent, data, noise)
    expected_loss, gradients = loss(), finite_differences(loss, network.weights)
    before = copies(agent.network.trainable_variables)
    metrics = agent.update_on(lead(data))
    assert metrics['q'] == pytest.approx(expected_loss, rel=1e-4)
    after = [w - 0.1 * g for w, g in zip(before, gradients, strict=True)]
    assert_close(agent.network.trainable_variables, after, 1e-4, 1e-5)
    assert max(np.abs(g).max() for g in gradients) > 0.05
    if agent.prioritized:
        np.testing.assert_allclose(agent.priorities, priority[None], rtol=1e-3, atol=1e-5)
    else:
        assert agent.priorities is None


@pytest.mark.full(but='DQN')
@pytest.mark.parametrize('name', NAMES)
def test_the_switches_matter_on_these_numbers(name: str):
    """What the reference is compared on would not be met by an update that ignored a switch."""
    data = batch(64, masked=True)
    agent = make(name, MASKED, **OFF)
    nothing = [None] * 3
    *_, single = by_hand(agent, data, nothing)
    *_, double = by_hand(make(name, MASKED, **OFF | {'double_q': True}), data, nothing)
    free = data._replace(next_obs=data.next_obs | {'action_mask': np.ones((64, ACTIONS), np.int8)})
    *_, unmasked = by_hand(agent, free, nothing)
    assert (single != double).any() and (single != unmasked).any()
    noisy = make(name, MASKED, **OFF | {'noisy': True})
    noise = [np.float64(x[0]) for x in noisy.draw_noise(tf.constant([1, 2]))]
    losses = [by_hand(noisy, data, [*noise[:i], None, *noise[i + 1 :]])[1]() for i in range(2)]
    assert min(abs(loss - by_hand(noisy, data, noise)[1]()) for loss in losses) > 1e-3


@pytest.mark.full
@pytest.mark.parametrize('name', toys.kinds(NAMES))
def test_noise_is_drawn_anew_for_every_update_and_from_the_agents_seed(name: str):
    agents = [make(name, noisy=True) for _ in range(2)]
    for agent, seed in zip(agents, (0, 1), strict=True):
        agent.reseed(seed, 'x')
    twin = make(name, noisy=True)
    twin.reseed(0, 'x')
    data, seen = lead(batch()), []
    frozen = [v.numpy() for v in agents[0].network.variables]
    for _ in range(2):
        losses = [agent.update_on(data)['q'] for agent in (*agents, twin)]
        assert losses[0] == losses[2] != losses[1]
        seen.append(losses[0])
        for agent in (*agents, twin):
            for variable, value in zip(agent.network.variables, frozen, strict=True):
                variable.assign(value)
    assert seen[0] != seen[1]
    draws = agents[0].draw_noise(tf.constant([0, 1]))
    assert len({x.numpy().tobytes() for x in draws}) == 3


@pytest.mark.full(but='C51-none')
@pytest.mark.parametrize('switches', ['none', 'dueling', 'noisy', 'all'])
@pytest.mark.parametrize('name', NAMES)
def test_acts_by_the_means(name: str, switches: str):
    agent = make(name, MASKED, **SWITCHES[switches])
    obs = batch(500, masked=True).obs
    network = NumpyValues(agent.network, ACTIONS, agent.dueling, agent.noisy)
    q = means(agent, network(obs['x']))
    assert agent.forward.numpy is not None
    found = agent.forward(obs)
    np.testing.assert_allclose(np.where(obs['action_mask'], q, -1e9), found, atol=1e-5)
    best = np.where(obs['action_mask'], q, -np.inf).argmax(-1)
    np.testing.assert_array_equal(agent.act(obs, deterministic=True), best)
    assert (best != q.argmax(-1)).any()
    light = pickle.loads(pickle.dumps(agent.behavior.light()))
    for behavior in (agent.behavior, light):
        for deterministic in (False, True):
            action = behavior(obs, np.random.default_rng(0), 0.5, deterministic)
            assert obs['action_mask'][np.arange(500), action].all()
    if agent.noisy:
        assert 0.02 < (light(obs, np.random.default_rng(0), 0.5) != best).mean() < 0.9


@pytest.mark.parametrize('name', NAMES)
def test_a_forbidden_action_is_nothing_to_a_target(name: str):
    """Whatever the target gives of it, even with weights that are not numbers."""
    agent, data = make(name, MASKED, **OFF | {'double_q': True}), batch(masked=True)
    count = agent.means.count
    data.next_obs['action_mask'][:] = [1, 0, 1]
    tensors = tf.nest.map_structure(tf.convert_to_tensor, data)
    target = agent.backup(tensors, agent.following(tensors, None, None)).numpy()
    for network in (agent.network, agent.target):
        bias = network.variables[-1]
        bias.assign(np.concatenate([bias[:count], np.full(count, 1e4, np.float32), bias[2 * count :]]))
    np.testing.assert_array_equal(agent.backup(tensors, agent.following(tensors, None, None)).numpy(), target)


class TestNoisyExploration:
    def test_epsilon_is_zero_unless_it_is_given(self):
        assert make('DQN').epsilon == Linear(1.0, 0.05, until=0.1)
        assert make('DQN', noisy=True).epsilon == make('Rainbow').epsilon == 0.0
        agent = make('DQN', noisy=True, epsilon=1.0)
        agent.forward.unpack(np.concatenate([agent.forward.numpy.packed[:-ACTIONS], np.float32([9.0, 0.0, 0.0])]))
        assert set(agent.act(np.zeros((200, 3), np.float32))) == {0, 1, 2}

    def test_what_has_no_effect_is_said(self, caplog):
        with caplog.at_level(logging.WARNING, 'zoo'):
            make('DQN', noisy_std=0.1, priority_alpha=0.3, priority_beta=1.0)
            make('Rainbow', priority_alpha=0.3, noisy_std=0.4)
            make('Rainbow', prioritized=False)
        assert caplog.messages == [
            'priority_alpha=0.3 changes nothing without prioritized=True.',
            'priority_beta=1.0 changes nothing without prioritized=True.',
            'noisy_std=0.1 changes nothing without noisy=True.',
        ]

    def test_a_complete_network_is_refused(self):
        complete = keras.Sequential([keras.layers.Dense(ACTIONS)])
        with pytest.raises(ValueError, match=r'^net_list\[0\] \(q\) is a complete network, .* or noisy=False\.$'):
            DQN(VECTOR, Discrete(ACTIONS), net_list=[complete], noisy=True)

    @pytest.mark.full
    def test_resumed_training_goes_on_alike(self, tmp_path: Path):
        def agents() -> tuple[DQN, Any]:
            params = {'explore_steps': 10, 'buffer_size': 60, 'batch_size': 4, 'exact_resume': True}
            agent = Rainbow(toys.Chain.observation_space, toys.Chain.action_space, net_list=[{'hidden': [4]}])
            agent.learn(toys.Chain(), seed=3, run_dir=tmp_path, train_steps=60, checkpoint_every=30, **params)
            resumed = zoo.load(tmp_path / 'checkpoints' / '000000030')
            resumed.learn(toys.Chain(), resume=True, run_dir=False, **params)
            return agent, resumed

        whole, resumed = (saving.arrays(agent) for agent in agents())
        for key, value in whole.items():
            np.testing.assert_allclose(resumed[key], value, atol=1e-6, err_msg=key)


@pytest.mark.full
@pytest.mark.parametrize('name', ['C51', 'QRDQN'])
def test_networks_of_the_users_own(name: str):
    count = ACTIONS * (5 if name == 'C51' else 4)
    complete = keras.Sequential([keras.layers.Dense(5, 'relu'), keras.layers.Dense(count)])
    agent = make(name, net_list=[complete])
    assert agent.network.head is None
    data = batch()
    network, _, priority, _ = by_hand(agent, data, [None] * 3)
    seen = agent.update(tf.nest.map_structure(tf.convert_to_tensor, data), tf.constant([0, 0]))['priority']
    np.testing.assert_allclose(seen, priority, rtol=1e-3, atol=1e-5)
    torso = make(name, net_list=[keras.Sequential([keras.layers.Dense(7, 'relu')])], dueling=True, noisy=True)
    assert torso.network.head is not None and torso.forward.numpy is not None
    torso.update_on(lead(batch()))
    three = keras.Sequential([keras.layers.Dense(count), keras.layers.Reshape((ACTIONS, -1))])
    what = 'atoms' if name == 'C51' else 'quantiles'
    with pytest.raises(ValueError, match=rf'but \d {what} of each of 3 actions \({count}\) are needed: '):
        make(name, net_list=[three])


def test_sampling_is_that_of_the_parameters():
    assert make('DQN', gamma=0.9).sampling == Sampling(0.9)
    agent = make('DQN', gamma=0.9, n_step=3, prioritized=True, priority_alpha=0.7, priority_beta=0.5)
    assert agent.sampling == Sampling(0.9, 3, Priorities(0.7, 0.5))
    assert Rainbow(VECTOR, Discrete(2)).sampling == Sampling(0.99, 3, Priorities(0.5, Linear(0.4, 1.0)))


def test_rainbows_defaults_are_the_papers():
    """Hessel et al. 2018, table 1."""
    params = Rainbow.params()
    known = {'atoms': 51, 'v_min': -10.0, 'v_max': 10.0, 'noisy_std': 0.5, 'n_step': 3, 'priority_alpha': 0.5}
    known |= {'priority_beta': Linear(0.4, 1.0), 'target_update_every': 2000, 'gamma': 0.99}
    known |= {'double_q': True, 'dueling': True, 'prioritized': True, 'noisy': True}
    assert {name: params[name] for name in known} == known
    optimizer = Rainbow(VECTOR, Discrete(2)).optimizers_list[0]
    assert (optimizer['learning_rate'], optimizer['epsilon']) == (6.25e-5, 1.5e-4)
    assert (QRDQN.params()['quantiles'], QRDQN.params()['kappa']) == (200, 1.0)
    assert not C51.params()['double_q'] and not C51.params()['noisy']


def test_parameters_that_are_handed_on():
    assert set(DQN.params()) - {'kappa'} < set(C51.params()) == set(Rainbow.params())
    assert set(DQN.params()) < set(QRDQN.params())
    with pytest.raises(ValueError, match=r"^unknown parameter of C51 'kappa'"):
        make('C51', kappa=2.0)  # there is no error whose size could count
    with pytest.raises(ValueError, match=r"^unknown parameter of Rainbow 'atom': did you mean 'atoms'\?"):
        make('Rainbow', atom=3)
    with pytest.raises(ValueError, match='atoms is 1: give a whole number of at least 2'):
        make('Rainbow', atoms=1)
    with pytest.raises(ValueError, match=r'^v_min is 2, but v_max is 2: give a smaller v_min or a larger v_max\.$'):
        make('C51', v_min=2.0, v_max=2.0)
    with pytest.raises(ValueError, match='C51 needs observation_space'):
        C51()
    with pytest.raises(AttributeError, match='atoms is fixed when the agent is made'):
        make('C51').atoms = 3


@pytest.mark.full
def test_everything_survives_saving(tmp_path: Path):
    agent = make('Rainbow', MASKED, n_step=2, priority_beta=Linear(0.3, 0.9, until=0.5), noisy_std=0.2, epsilon=0.1)
    agent.update_on(lead(batch(masked=True)))
    twin = zoo.load(agent.save(tmp_path / 'saved'))
    assert twin.config() == agent.config()
    for (key, value), other in zip(saving.arrays(agent).items(), saving.arrays(twin).values(), strict=True):
        np.testing.assert_array_equal(value, other, err_msg=key)
    obs = batch(50, masked=True).obs
    np.testing.assert_array_equal(twin.act(obs), agent.act(obs))
    assert agent.update_on(lead(batch(masked=True))) == twin.update_on(lead(batch(masked=True)))
