"""What ``agent.summary()`` says of an agent."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from zoo import algorithms
from zoo.algorithms.base.summary import Summary

VECTOR, TWO = Box(-1.0, 1.0, (3,)), Discrete(2)


def row(summary: Summary, title: str, name: str) -> tuple[str, ...]:
    """The row of a table that begins with a name."""
    (table,) = [table for table in summary.tables if table.title.startswith(title)]
    (found,) = [row for row in table.rows if row[0] == name]
    return found


def ppo(**params: Any) -> Any:
    return algorithms.PPO(VECTOR, TWO, net_list=[{'hidden': [4], 'activation': 'relu'}] * 2, **params)


def test_layers_with_shapes_and_numbers_worked_by_hand():
    summary = ppo().summary()
    assert row(summary, 'Network actor', 'hidden0') == ('hidden0', 'Dense, relu', '4', '16')  # 3 · 4 + 4
    assert row(summary, 'Network actor', 'head') == ('head', 'Dense', '2', '10')  # 4 · 2 + 2
    assert row(summary, 'Network critic', 'head') == ('head', 'Dense', '1', '5')
    assert summary.weights == 16 + 10 + 16 + 5
    assert row(summary, 'Optimizers', 'all')[1:] == ('Adam', 'clip_norm=0.5, learning_rate=0.0003', '47')
    assert summary.title == 'PPO: 47 weights that are trained, 0 steps of experience'


def test_only_what_differs_from_the_defaults():
    assert 'all as PPO has them' in repr(ppo().summary())
    found = row(ppo(gamma=0.5).summary(), 'Parameters', 'gamma')
    assert found == ('gamma', '0.5', '0.99', 'discount of what follows a step')


def test_every_part_of_nested_spaces():
    obs = Dict(camera=Box(0, 255, (3, 16, 12), np.uint8), kind=Discrete(1000), switch=MultiBinary(2), pose=VECTOR)
    action = Tuple((Discrete(3), Box(-1.0, 1.0, (2,))))
    agent = algorithms.PPO(obs, action, net_list=[{'hidden': [4], 'features': 8}, 'actor'], normalize_obs=True)
    summary = agent.summary()
    assert row(summary, 'Observation', 'camera')[2:] == (
        'image scaled to [0, 1], channels put last, convolutions',
        '16 × 12 × 3',
    )
    assert row(summary, 'Observation', 'kind')[2] == 'embedding of 1,000 values'
    assert row(summary, 'Observation', 'pose')[2] == 'vector, normalized by its running mean and deviation'
    assert row(summary, 'Action', '0')[2] == 'categorical distribution over 3 actions'
    assert row(summary, 'Action', '1')[2] == 'normal distribution, its deviation a variable'
    assert row(summary, 'Network critic', 'torso of actor')[3] == '0'
    assert summary.weights == sum(int(np.prod(v.shape)) for v in agent.trainable_variables)


def test_the_mask_is_named():
    obs = Dict(obs=VECTOR, action_mask=MultiBinary(2))
    summary = algorithms.DQN(obs, TWO, net_list=[{'hidden': [4]}]).summary()
    assert row(summary, 'Observation', 'action_mask')[2] == 'the mask of the actions, which no network sees'
    assert row(summary, 'Action', 'action')[2] == 'the highest of 2 values'


@pytest.mark.full(but='Rainbow-space2-the highest of 2 values')
@pytest.mark.parametrize(
    ('name', 'space', 'chosen'),
    [
        ('SAC', VECTOR, 'normal distribution squashed by tanh, its deviation by the network'),
        ('TD3', VECTOR, 'a number in [-1, 1] for each entry'),
        ('Rainbow', TWO, 'the highest of 2 values'),
    ],
)
def test_how_actions_are_chosen(name: str, space: Any, chosen: str):
    cls = getattr(algorithms, name)
    agent = cls(VECTOR, space, net_list=[{'hidden': [4]}] * len(cls.network_names))
    summary = agent.summary()
    assert row(summary, 'Action', 'action')[2] == chosen
    targets = [table.below for table in summary.tables if table.title.startswith('Network')]
    assert any('and a target of the same shape' in below for below in targets)


def test_networks_of_the_users_own():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(7, 'relu', name='mine')])
    agent = algorithms.A2C(VECTOR, TWO, net_list=[model, {'hidden': [4], 'recurrent': None}])
    summary = agent.summary()
    assert row(summary, 'Network actor (Sequential)', 'mine') == ('mine', 'Dense, relu', '7', '28')
    recurrent = algorithms.PPO(VECTOR, TWO, net_list=[{'hidden': [4], 'recurrent': 'gru'}, 'actor']).summary()
    # Each of three gates: a kernel 4 × 4, a recurrent kernel 4 × 4 and two biases of 4.
    assert row(recurrent, 'Network actor', 'recurrent')[1:] == ('GRU', '4', str(4 * 12 + 4 * 12 + 2 * 12))


def test_text_and_page_hold_the_same():
    summary = ppo(gamma=0.5).summary()
    text, page = repr(summary), summary._repr_html_()
    for table in summary.tables:
        assert table.title in text and table.title.replace("'", '&#x27;') in page
        for cell in [cell for found in table.rows for cell in found]:
            assert cell in text and cell.replace("'", '&#x27;') in page
    assert page.count('<table>') == page.count('</table>') == len(summary.tables)
    assert max(map(len, re.findall(r'^  .*weights$', text, re.M))) < 100
