"""Moments of optimizers are saved for each weight, whatever layout they have in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import zoo
from zoo import algorithms
from zoo.algorithms.base import Algorithm, saving
from zoo.common.maths import optimizers
from zoo.common.records import Batch, Transition
from zoo.common.tools import compilation
from zoo.common.training import checkpoint

VECTOR = Box(-1.0, 1.0, (3,), np.float32)
LAYOUTS = pytest.mark.parametrize('flat', [True, False], ids=['one vector', 'each weight'])
#: An optimizer over one weight, a scalar, is among them: the temperature of SAC.
NAMES = pytest.mark.parametrize('name', ['DQN', 'SAC'])


def make(name: str) -> Algorithm:
    cls = getattr(algorithms, name)
    specs = [{'hidden': [8], 'seed': i} for i in range(len(cls.network_names))]
    return cls(VECTOR, Discrete(3) if name == 'DQN' else Box(-1.0, 1.0, (2,)), net_list=specs)


def train(agent: Algorithm, seed: int = 0) -> None:
    """Two updates on random transitions."""
    rng, shape = np.random.default_rng(seed), (2, 6)
    obs, next_obs, action = (rng.normal(size=(*shape, n)).astype(np.float32) for n in (3, 3, 2))
    ends = np.zeros(shape, bool)
    if isinstance(agent.action_space, Discrete):
        action = rng.integers(3, size=shape)
    reward = rng.normal(size=shape).astype(np.float32)
    agent.update_on(Batch.of(Transition(obs, action, reward, next_obs, ends, ends), 0.99))


def moments(agent: Algorithm) -> dict[str, np.ndarray]:
    return {name: x for name, x in saving.arrays(agent).items() if '_moment/' in name}


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def are_flat(agent: Algorithm) -> set[bool]:
    return {optimizer.flat for optimizer in agent.optimizers.values()}


@pytest.fixture
def layout(monkeypatch: pytest.MonkeyPatch, plain_graphs: None) -> Any:
    """Chooses the layout of the optimizers that are made next; updates are compiled without XLA."""
    return lambda flat: monkeypatch.setattr(optimizers, 'prefers_xla', lambda variables: flat)


@pytest.mark.full(but='each weight-DQN')
@NAMES
@LAYOUTS
def test_a_checkpoint_loads_into_the_other_layout_and_back(layout, tmp_path, name, flat):
    layout(flat)
    agent = make(name)
    train(agent)
    expected = saving.arrays(agent)
    assert all(x.any() for x in moments(agent).values())
    layout(not flat)
    other = zoo.load(agent.save(tmp_path / 'one'))
    assert are_flat(agent) == {flat} and are_flat(other) == {not flat}
    assert_equal(saving.arrays(other), expected)
    layout(flat)
    back = zoo.load(other.save(tmp_path / 'other'))
    assert are_flat(back) == {flat}
    for each in (agent, other, back):
        train(each, seed=1)
    assert_equal(saving.arrays(back), saving.arrays(agent))
    for key, array in saving.arrays(agent).items():
        np.testing.assert_allclose(saving.arrays(other)[key], array, rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.full
def test_another_limit_of_xla_loads(monkeypatch, tmp_path):
    """As the library has it, with nothing put in the place of `prefers_xla`; both updates are compiled."""
    agent = make('DQN')
    train(agent)
    saved = agent.save(tmp_path / 'saved')
    monkeypatch.setattr(compilation, 'XLA_UP_TO', 0)
    loaded = zoo.load(saved)
    assert are_flat(agent) == {True} and are_flat(loaded) == {False}
    assert_equal(saving.arrays(loaded), saving.arrays(agent))
    before = saving.arrays(loaded)
    train(loaded, seed=1)
    train(agent, seed=1)
    for key, array in saving.arrays(agent).items():
        np.testing.assert_allclose(saving.arrays(loaded)[key], array, rtol=1e-3, atol=1e-5, err_msg=key)
    assert any((before[key] != array).any() for key, array in moments(loaded).items())


def test_names_are_those_of_the_weights(plain_graphs):
    agent = make('SAC')
    own = saving.variables(agent)
    for name, array in moments(agent).items():
        *_, kind, weight = name.split('/', 3)
        assert kind in ('first_moment', 'second_moment')
        assert array.shape == own[weight].shape
    assert 'optimizer/critic/second_moment/network/critic_2/0' in moments(agent)
    assert 'optimizer/alpha/first_moment/log_alpha' in moments(agent)


def write(agent: Algorithm, path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """A checkpoint of an agent with other arrays than its own."""
    whole = {'steps': 0, 'updates': 2, 'progress': 0.0, 'rng': agent.rng.bit_generator.state, 'loop_state': None}
    return checkpoint.write(path, saving.config(agent) | whole, arrays)


def numbered(agent: Algorithm, flat: bool) -> dict[str, np.ndarray]:
    """The arrays of an agent as checkpoint format 1 has them."""
    found = {name: x for name, x in saving.arrays(agent).items() if not name.startswith('optimizer/')}
    for label in agent.optimizers:
        prefix = f'optimizer/{label}/'
        held = {key.removeprefix(prefix): x for key, x in saving.arrays(agent).items() if key.startswith(prefix)}
        kinds = [[x for key, x in held.items() if key.startswith(kind)] for kind in ('first_moment', 'second_moment')]
        if flat:
            kinds = [[np.concatenate([x.ravel() for x in each])] for each in kinds]
        every = [held['iterations'], held['learning_rate'], *kinds[0], *kinds[1]]
        found |= {f'{prefix}{i}': x for i, x in enumerate(every)}
    return found


@pytest.mark.full(but='into each weight-each weight-DQN')
@NAMES
@LAYOUTS
@pytest.mark.parametrize('loaded_flat', [True, False], ids=['into one vector', 'into each weight'])
def test_numbers_of_format_1_load_exactly(layout, monkeypatch, tmp_path, name, flat, loaded_flat):
    layout(False)
    agent = make(name)
    train(agent)
    monkeypatch.setattr(checkpoint, 'FORMAT_VERSION', 1)
    path = write(agent, tmp_path / 'saved', numbered(agent, flat))
    monkeypatch.undo()
    layout(loaded_flat)
    loaded = zoo.load(path)
    assert are_flat(loaded) == {loaded_flat}
    assert_equal(saving.arrays(loaded), saving.arrays(agent))


@LAYOUTS
def test_a_moment_of_another_shape_is_refused_by_its_name(layout, tmp_path, flat):
    layout(flat)
    agent = make('DQN')
    name = 'optimizer/q/second_moment/network/q/0'
    path = write(agent, tmp_path / 'saved', saving.arrays(agent) | {name: np.zeros((3, 9), np.float32)})
    wrong = (
        rf"holds an array of shape \(3, 9\) for '{name}' \(hidden0/kernel\), but this agent has shape \(3, 8\) there: "
        r'hand load the same networks and optimizers that were saved\.$'
    )
    with pytest.raises(ValueError, match=wrong):
        zoo.load(path)
    arrays = saving.arrays(agent)
    del arrays[name]
    with pytest.raises(ValueError, match=rf"holds nothing for '{name}' \(hidden0/kernel\), but this agent has shape"):
        zoo.load(write(agent, tmp_path / 'without', arrays))


def test_moments_of_format_1_that_do_not_fit_are_refused(plain_graphs, tmp_path):
    agent = make('DQN')
    arrays = numbered(agent, flat=True)
    arrays['optimizer/q/3'] = arrays['optimizer/q/3'][1:]
    with pytest.raises(ValueError, match="holds .* for 'optimizer/q/.*, but this agent .* networks and optimizers"):
        zoo.load(write(agent, tmp_path / 'saved', arrays))


class TestWithoutTheStateOfTraining:
    """What ``save(…, training_state=False)`` leaves out begins anew; the rest is as it was."""

    @NAMES
    def test_it_acts_as_before_and_learns_from_the_start(self, plain_graphs, tmp_path, name):
        agent = make(name)
        train(agent)
        agent.learned = agent.network_weights()
        agent.save(tmp_path / 'whole')
        agent.save(tmp_path / 'agent', training_state=False)
        held = checkpoint.read(tmp_path / 'agent').arrays
        whole = checkpoint.read(tmp_path / 'whole').arrays
        assert_equal(held, {key: x for key, x in whole.items() if key in held})
        assert {key.partition('/')[0] for key in whole.keys() - held.keys()} == {'optimizer', 'target', 'learned'}

        loaded, fresh = zoo.load(tmp_path / 'agent'), make(name)
        observations = np.random.default_rng(1).uniform(-1, 1, (20, 3)).astype(np.float32)
        np.testing.assert_array_equal(loaded.predict(observations), agent.predict(observations))
        assert loaded.learned is None and loaded.steps == agent.steps
        assert_equal(moments(loaded), {key: np.zeros_like(x) for key, x in moments(fresh).items()})
        state = saving.arrays(loaded)
        targets = [key for key in state if key.startswith('target/')]
        assert targets
        for key in targets:
            np.testing.assert_array_equal(state[key], state[f'network/{key.removeprefix("target/")}'])
        train(loaded, seed=1)
        assert all(np.isfinite(x).all() for x in loaded.network_weights().values())

    def test_new_optimizers_may_be_given(self, plain_graphs, tmp_path):
        agent = make('DQN')
        train(agent)
        agent.save(tmp_path / 'agent', training_state=False)
        loaded = zoo.load(tmp_path / 'agent', optimizers_list=[{'name': 'RMSprop', 'learning_rate': 1e-3}])
        assert loaded.optimizers_list[0]['name'] == 'RMSprop'
        assert_equal(loaded.network_weights(), agent.network_weights())

    def test_a_replay_buffer_is_part_of_it(self, tmp_path):
        with pytest.raises(ValueError, match='buffer=True saves a part of what training_state=False leaves out'):
            make('DQN').save(tmp_path / 'agent', buffer=True, training_state=False)
        assert not (tmp_path / 'agent').exists()


def test_a_saved_agent_says_nothing_of_parameters_that_nothing_reads(tmp_path, caplog):
    env = zoo.build_env('CartPole-v1')
    agent = zoo.algorithms.PPO(env.observation_space, env.action_space, penalty_target=0.7)
    assert 'penalty_target=0.7 changes nothing' in caplog.text
    caplog.clear()
    zoo.load(agent.save(tmp_path / 'agent'))
    assert not caplog.text
