"""Pictures of networks: what is drawn is what was assembled, and nothing lies on anything else."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space

import zoo
from zoo import algorithms
from zoo.common.plots import diagrams, network_diagram
from zoo.common.plots.diagrams import boxes_of

#: Keras would have a model's inputs named as the keys of the outermost dict.
pytestmark = pytest.mark.filterwarnings('ignore:When providing')

VECTOR = Box(-1.0, 1.0, (3,), np.float32)
IMAGE = Box(0, 255, (10, 12, 3), np.uint8)
NESTED = Dict(camera=IMAGE, robot=Dict(mode=Discrete(3), pose=VECTOR))


def agent(name: str, observation: Space, action: Space, *nets: Any) -> Any:
    return getattr(algorithms, name)(observation, action, net_list=list(nets))


SPEC = {'hidden': [8, 4], 'features': 16, 'activation': 'tanh'}

AGENTS = {
    'chains': lambda: agent('TD3', VECTOR, Box(-1, 1, (2,)), SPEC, SPEC, SPEC),
    'shared torso': lambda: agent('PPO', IMAGE, Discrete(4), SPEC, 'actor'),
    'nested': lambda: agent('SAC', NESTED, Box(-1, 1, (2,)), SPEC, SPEC, SPEC),
    'memory': lambda: agent('PPO', NESTED, MultiBinary(3), {**SPEC, 'recurrent': 'lstm'}, 'actor'),
    'one-hot': lambda: agent('DQN', MultiDiscrete([3, 2]), Discrete(2), SPEC),
    'large': lambda: agent('Rainbow', Discrete(1000), Discrete(2), SPEC),
    "user's": lambda: agent(
        'A2C',
        VECTOR,
        Discrete(4),
        keras.Sequential([keras.layers.Dense(6, 'relu'), keras.layers.GRU(5)]),
        'actor',
    ),
    'branches': lambda: agent('A2C', NESTED, Discrete(4), branches(), SPEC),
}


def branches() -> keras.Model:
    camera, mode, pose = (
        keras.Input(shape, name=name) for name, shape in (('c', (10, 12, 3)), ('m', (3,)), ('p', (3,)))
    )
    x = keras.layers.Dense(7)(keras.layers.Flatten()(camera))
    x = keras.layers.Concatenate()([x, mode, pose])
    return keras.Model({'camera': camera, 'robot': {'mode': mode, 'pose': pose}}, keras.layers.Dense(5)(x))


@pytest.fixture(scope='module')
def drawn() -> dict[str, list[diagrams.Box]]:
    return {name: boxes_of(maker()) for name, maker in AGENTS.items()}


def read(boxes: list[diagrams.Box]) -> list[str]:
    return [f'{box.title}: {box.shape}' if box.shape else box.title for box in boxes]


@pytest.mark.full
def test_a_chain_by_hand(drawn):
    boxes = drawn['chains']
    assert read(boxes) == [
        'observation: 3',
        'action: 2',
        *('Dense, tanh: 8', 'Dense, tanh: 4', 'Dense, tanh: 2'),
        'actor: an action of 2 entries in [-1, 1], target too',
        *('join: 5', 'Dense, tanh: 8', 'Dense, tanh: 4', 'Dense: 1', 'critic_1: value, target too'),
        *('join: 5', 'Dense, tanh: 8', 'Dense, tanh: 4', 'Dense: 1', 'critic_2: value, target too'),
    ]
    observation, action, first = boxes[:3]
    assert first.parents == [observation] and boxes[6].parents == [observation, action]
    assert [box.column for box in boxes[6:11]] == [1, 2, 3, 4, 5]


def test_a_shared_torso_is_drawn_once_under_two_heads(drawn):
    boxes = drawn['shared torso']
    assert read(boxes) == [
        'observation: 10 × 12 × 3',
        *('Conv 3×3, stride 2, relu: 5 × 6 × 32', 'Dense, relu: 16', 'Dense, tanh: 8', 'Dense, tanh: 4'),
        *('Dense: 4', 'actor: logits for categorical action', 'Dense: 1', 'critic: value'),
    ]
    torso, actor, critic = boxes[4], boxes[5], boxes[7]
    assert actor.parents == critic.parents == [torso]
    assert actor.column == critic.column and (actor.lane + critic.lane) / 2 == torso.lane


def test_every_part_of_a_nested_observation_has_its_own_way(drawn):
    boxes = drawn['nested']
    assert read(boxes)[:4] == [
        'camera: 10 × 12 × 3',
        'robot/mode: one of 3',
        'robot/pose: 3',
        'Conv 3×3, stride 2, relu: 5 × 6 × 32',
    ]
    joins = [box for box in boxes if box.title == 'join']
    assert [join.shape for join in joins] == ['22', '24', '24']
    assert [parent.title for parent in joins[0].parents] == ['Dense, relu', 'robot/mode', 'robot/pose']
    assert [parent.title for parent in joins[1].parents] == ['Dense, relu', 'robot/mode', 'robot/pose', 'action']


def test_what_else_there_is(drawn):
    assert [box.kind for box in drawn['memory'] if box.title == 'LSTM'] == ['recurrent']
    assert read(drawn['one-hot'])[:3] == ['observation: one each of 3, 2', 'one-hot: 5', 'Dense, tanh: 8']
    assert read(drawn['large'])[:2] == ['observation: one of 1,000', 'Embedding: 48']
    assert 'Dueling, noisy: 102' in read(drawn['large'])
    assert read(drawn["user's"])[:3] == ['observation: 3', 'Dense, relu: 6', 'GRU: 5']
    camera, first, join = (next(x for x in drawn['branches'] if x.title == t) for t in ('camera', 'Dense', 'join'))
    assert (read([first, join]), first.parents) == (['Dense: 7', 'join: 13'], [camera])
    assert [parent.title for parent in join.parents] == ['Dense', 'robot/mode', 'robot/pose']


def test_layers_of_tensorlayer_are_one_box():
    pytest.importorskip('tensorlayer')
    boxes = boxes_of(agent('A2C', VECTOR, Discrete(4), {**SPEC, 'layers': 'tensorlayer'}, SPEC))
    assert 'Model: 4' in read(boxes)


@pytest.mark.parametrize('name', AGENTS)
def test_no_box_lies_on_another_one_or_on_a_line(name, drawn):
    boxes = drawn[name]
    for i, box in enumerate(boxes):
        assert box.lane >= 0
        for other in boxes[:i]:
            assert box.column != other.column or abs(box.lane - other.lane) > 0.999, read([box, other])
        for parent in box.parents:
            assert parent.column < box.column and any(parent is other for other in boxes)
            between = [x for x in boxes if parent.column < x.column < box.column and abs(x.lane - parent.lane) < 0.4]
            assert not between, read([parent, *between, box])


@pytest.mark.full(but='memory')
@pytest.mark.parametrize('name', ['chains', 'nested', 'memory'])
def test_texts_are_inside_their_boxes_and_the_picture(name, tmp_path):
    made = AGENTS[name]()
    figure = network_diagram(made, tmp_path / 'new' / 'net.png')
    assert (tmp_path / 'new/net.png').read_bytes().startswith(b'\x89PNG')
    axes = figure.axes[0]
    title, *texts = [text for text in axes.texts if text.get_text()]
    weights = sum(int(np.prod(v.shape)) for v in made.trainable_variables)
    assert title.get_text() == f'{type(made).__name__}: {weights:,} weights'
    patches = [patch.get_window_extent() for patch in axes.patches if type(patch).__name__ == 'FancyBboxPatch']
    assert len(patches) == len(boxes_of(made))
    for text in texts:
        box = text.get_window_extent()
        assert any(p.x0 - 1 <= box.x0 and box.x1 <= p.x1 + 1 and p.y0 <= box.y0 and box.y1 <= p.y1 for p in patches), (
            text
        )
    assert all(0 <= p.x0 and p.x1 <= figure.bbox.x1 and 0 <= p.y0 and p.y1 <= figure.bbox.y1 for p in patches)


def test_it_is_a_public_name_and_a_notebook_shows_it():
    figure = zoo.plots.network_diagram(AGENTS['one-hot'](), title='Mine')
    assert figure._repr_png_().startswith(b'\x89PNG') and figure.axes[0].texts[0].get_text() == 'Mine'
