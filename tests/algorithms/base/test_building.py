"""What a spec in ``net_list`` leaves out is the algorithm's own default, also in checkpoints of other defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import zoo
from zoo import algorithms
from zoo.algorithms.base import saving

VECTOR = Box(-1.0, 1.0, (3,), np.float32)
OBS = np.random.default_rng(0).uniform(-1.0, 1.0, (20, 3)).astype(np.float32)
NETWORKS_PAGE = Path(__file__).parents[3] / 'docs' / 'howto' / 'networks.md'


def make(name: str, net_list: list[Any] | None) -> Any:
    cls = getattr(algorithms, name)
    return cls(VECTOR, Box(-1.0, 1.0, (2,)) if 'Box' in cls.acts_in else Discrete(3), net_list=net_list)


def assert_same_function(one: Any, other: Any) -> None:
    found, expected = saving.arrays(one), saving.arrays(other)
    assert found.keys() == expected.keys()
    for key in (key for key in expected if key != 'noise_seed'):
        np.testing.assert_array_equal(found[key], expected[key], err_msg=key)
    np.testing.assert_array_equal(one.predict(OBS), other.predict(OBS))


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_the_default_itself_is_what_a_spec_leaves_out(name: str):
    cls = getattr(algorithms, name)
    assert cls.default_network.keys() >= {'hidden', 'activation'}
    default = make(name, None)
    networks = list(enumerate(cls.network_names))
    assert default.net_list == [cls.network_default(network) | {'dtype': 'float32'} for _, network in networks]
    # What was said only by `hidden` before: the same networks as the default, from the same seed.
    short = make(name, [{'hidden': cls.network_default(network)['hidden'], 'seed': i} for i, network in networks])
    whole = make(name, [cls.network_default(network) | {'seed': i} for i, network in networks])
    assert short.net_list == whole.net_list
    assert_same_function(short, whole)


def test_hidden_alone_gives_td3_its_relus():
    """By hand: three entries ``hidden=[256, 256]`` are the networks that the default has."""
    agent = make('TD3', [{'hidden': [256, 256]}] * 3)
    w1, b1, w2, b2, w3, b3 = (variable.numpy() for variable in agent.actor.variables)
    x = np.maximum(np.maximum(OBS @ w1 + b1, 0.0) @ w2 + b2, 0.0)
    np.testing.assert_allclose(agent.actor(OBS), np.tanh(x @ w3 + b3), rtol=1e-4, atol=1e-5)


def test_a_spec_that_says_more_is_taken_at_its_word():
    agent = make('CrossQ', [{'hidden': [8], 'normalize': None, 'activation': 'tanh'}, {'hidden': [8]}, {}])
    actor, *critics = agent.net_list
    assert (actor['normalize'], actor['activation']) == (None, 'tanh')
    assert [(spec['normalize'], spec['hidden']) for spec in critics] == [
        ('batch_renorm', [8]),
        ('batch_renorm', [2048, 2048]),
    ]


def test_tensorlayer_layers_have_the_same_default_and_no_normalization():
    pytest.importorskip('tensorlayer')
    keras, tensorlayer = (
        make('TD3', [{'hidden': [8], 'layers': layers, 'seed': i} for i in range(3)])
        for layers in ('keras', 'tensorlayer')
    )
    np.testing.assert_allclose(tensorlayer.predict(OBS), keras.predict(OBS), atol=1e-5)
    assert 'normalize' not in make('CrossQ', [{'hidden': [8], 'layers': 'tensorlayer'}] * 3).net_list[0]


def saved_without(path: Path, *keys: str) -> tuple[Any, Any]:
    """Return a saved agent as checkpoints were written when a spec without ``activation`` meant tanh."""
    found, saved = saving.read(path, None)
    for entry in saved.config['net_list']:
        for key in keys:
            del entry[key]
    return saved, found


def test_old_specs_without_activation_load_to_the_same_function(tmp_path: Path):
    agent = make('SAC', [{'hidden': [8], 'activation': 'tanh'}] * 3)
    path = agent.save(tmp_path / 'saved')
    for net_list in (None, [{'hidden': [8]}] * 3):  # what the user leaves out is what was saved
        saved, found = saved_without(path, 'activation', 'dtype')
        loaded = saving.load(algorithms.SAC, saved, found, net_list, None)
        assert_same_function(loaded, agent)
        assert [entry['activation'] for entry in loaded.net_list] == ['tanh'] * 3
        assert_same_function(zoo.load(loaded.save(tmp_path / 'again')), agent)


def test_old_specs_of_r2d2_without_a_memory_load_without_one(tmp_path: Path):
    agent = make('R2D2', [{'hidden': [8], 'recurrent': None}])
    saved, found = saved_without(agent.save(tmp_path / 'saved'), 'recurrent')
    assert_same_function(saving.load(algorithms.R2D2, saved, found, None, None), agent)


class Own(algorithms.DQN):
    """Gives its networks itself."""

    unused = ('net_list',)
    net_list = ({'hidden': [8]},)


def test_a_class_whose_own_spec_means_something_else_now_is_refused(tmp_path: Path):
    agent = Own(VECTOR, Discrete(3))
    assert agent.net_list[0]['activation'] == 'relu'
    path = agent.save(tmp_path / 'saved')
    assert_same_function(Own.load(path), agent)
    saved, found = saved_without(path, 'activation')
    with pytest.raises(ValueError, match=r'^net_list\[0\] \(q\) computes something else from the saved weights'):
        saving.load(Own, saved, found, None, None)


def test_the_documentation_has_the_defaults():
    rows = re.findall(r'^\| ([\w, ]+) \| `dict\((.*)\)`', NETWORKS_PAGE.read_text(encoding='utf-8'), re.MULTILINE)
    told = {name: eval(f'dict({spec})') for names, spec in rows for name in names.split(', ')}
    assert told == {name: getattr(algorithms, name).default_network for name in algorithms.NAMES}
