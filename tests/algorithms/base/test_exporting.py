"""Exported agents: every runtime gives the actions of ``predict`` without zoo, and what does not is left nowhere."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple

import zoo
from zoo import algorithms
from zoo.algorithms.base import Algorithm, export_runtimes, exporting
from zoo.algorithms.base.exporting import ExportError, export
from zoo.common import spaces
from zoo.common.acting.behavior import Behavior

ACTIONS = toys.ACTIONS


def make(name: str, observation_space: Space, action_space: Space, nets: Any = None, **params: Any) -> Algorithm:
    """An agent with tiny networks and weights that are nothing like zero: actions differ from observation to
    observation then."""
    cls = getattr(algorithms, name)
    spec = {'hidden': [8], 'features': 8, 'activation': 'tanh', 'initializer': 'glorot_uniform'}
    specs = nets or [spec | {'seed': i} for i in range(len(cls.network_names))]
    agent = cls(observation_space, action_space, net_list=specs, **params)
    rng = np.random.default_rng(0)
    for network in agent.networks.values():
        for variable in network.trainable_variables:
            inputs = np.prod(variable.shape[:-1]) if len(variable.shape) > 1 else 100
            variable.assign(rng.normal(0.0, 1.5 / np.sqrt(inputs), variable.shape))
    for moments in agent.statistics.values():
        mean, deviation = rng.normal(0.0, 50.0, moments.mean.size), rng.uniform(0.1, 20.0, moments.mean.size)
        moments.update(mean + deviation * rng.normal(size=(500, moments.mean.size)))
    return agent


def recurrent(kind: str) -> list[Any]:
    return [{'hidden': [8], 'features': 8, 'seed': 0, 'recurrent': kind, 'recurrent_units': 6}, 'actor']


WIDE = Box(-np.inf, np.inf, (3,), np.float64)

#: By name, what makes each agent: every kind of observation, of action and of memory, and every way to act.
AGENTS: dict[str, Callable[[], Algorithm]] = {
    'vector': lambda: make('SAC', WIDE, ACTIONS['Box'], normalize_obs=True),
    'image': lambda: make('DQN', toys.OBSERVATIONS['image'], ACTIONS['Discrete'], dueling=True),
    'dictionary': lambda: make('PPO', toys.OBSERVATIONS['nested Dict'], ACTIONS['Dict']),
    'masked': lambda: make(
        'PPO',
        toys.observation_space('masked Dict', ACTIONS['MultiDiscrete']),
        ACTIONS['MultiDiscrete'],
        recurrent('lstm'),
    ),
    'remembered images': lambda: make(
        'A2C', toys.OBSERVATIONS['image CHW'], Box(0, 200, (2,), np.uint8), recurrent('gru')
    ),
    'tuples': lambda: make('TD3', toys.OBSERVATIONS['Tuple'], Box(-0.1, 0.7, (2, 2), np.float64)),
}


@pytest.fixture(scope='module')
def agents() -> dict[str, Algorithm]:
    return {name: maker() for name, maker in AGENTS.items()}


def leaves(structure: Any, value: Any) -> dict[str, np.ndarray]:
    """The arrays of a value by the names in a structure of ``agent.json``."""
    if isinstance(structure, str):
        return {structure: value}
    parts = structure.items() if isinstance(structure, dict) else enumerate(structure)
    return {name: x for key, part in parts for name, x in leaves(part, value[key]).items()}


def record(agent: Algorithm, about: dict[str, Any], path: Path) -> None:
    """Write observations and what ``predict`` answers, by the names of inputs and outputs: a batch, one, a batch."""
    arrays = {}
    state = agent.initial_state(7) if agent.behavior.state_size else None
    for call, count in enumerate((7, 1, 7)):
        found = exporting.observations(
            agent.observation_space, agent.statistics, count, np.random.default_rng(call + 5)
        )
        flat = spaces.from_items(agent.observation_space, found)
        obs = spaces.unflatten(agent.observation_space, flat)
        inputs = leaves(about['observation'], obs)
        if state is None:
            outputs = leaves(about['action'], agent.predict(obs))
        else:
            inputs['state'] = state[:count]
            action, after = agent.predict(obs, state=state[:count])
            outputs = leaves(about['action'], action) | {'next_state': after}
            state = np.concatenate([after, state[count:]])
        arrays |= {f'{call}/in/{name}': x for name, x in inputs.items()}
        arrays |= {f'{call}/out/{name}': x for name, x in outputs.items()}
    np.savez(path, **arrays)


#: What a program does that has never heard of zoo: of all folders in the working directory.
READER = """
import json, sys
from pathlib import Path
import numpy as np
{imports}
for folder in sorted(path for path in Path().iterdir() if path.is_dir()):
    about = json.loads((folder / 'agent.json').read_text())
    model = folder / about['model']
    {opened}
    recorded = np.load(f'{{folder}}.npz')
    for call in '012':
        def named(kind):
            start = f'{{call}}/{{kind}}/'
            return {{key[len(start):]: x for key, x in recorded.items() if key.startswith(start)}}
        inputs, expected = named('in'), named('out')
        assert inputs.keys() == {{x['name'] for x in about['inputs']}}, folder
        for x in about['inputs']:
            assert inputs[x['name']].dtype == x['dtype'] and list(inputs[x['name']].shape[1:]) == x['shape'][1:], folder
        found = {called}
        assert found.keys() == expected.keys() == {{x['name'] for x in about['outputs']}}, folder
        for x in about['outputs']:
            one, other = np.asarray(found[x['name']]), expected[x['name']]
            assert one.dtype == other.dtype == x['dtype'] and list(one.shape[1:]) == x['shape'][1:], (folder, one.dtype)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=str(folder))
    print(folder)
for name in ('zoo', 'gymnasium', {without}):
    assert name not in sys.modules, name
"""

PROGRAMS = {
    'savedmodel': {
        'imports': 'import tensorflow as tf',
        'opened': "model = tf.saved_model.load(model); act = model.signatures['serving_default']",
        'called': 'act(**{name: tf.constant(x) for name, x in inputs.items()})',
        'without': '',
    },
    'litert': {
        'imports': 'from ai_edge_litert.interpreter import Interpreter',
        'opened': "act = Interpreter(str(model)).get_signature_runner('serving_default')",
        'called': 'act(**inputs)',
        'without': "'tensorflow', 'keras'",
    },
    'onnx': {
        'imports': 'import onnxruntime',
        'opened': 'session = onnxruntime.InferenceSession(model); names = [x.name for x in session.get_outputs()]',
        'called': 'dict(zip(names, session.run(None, inputs)))',
        'without': "'tensorflow', 'keras'",
    },
}


def run_alone(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run a program in a folder, from which zoo is not found."""
    environment = {key: value for key, value in os.environ.items() if key != 'PYTHONPATH'}
    command = [sys.executable, '-c', program, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.full(but='onnx')
@pytest.mark.parametrize('to', export_runtimes.RUNTIMES)
def test_a_runtime_without_zoo_gives_the_actions_of_predict(to, agents, tmp_path):
    if to == 'litert':
        pytest.importorskip('ai_edge_litert')
    for name, agent in agents.items():
        folder = export(agent, tmp_path / name, to)
        about = json.loads((folder / 'agent.json').read_text())
        assert about['checked']['observations'] == 32 and about['checked']['largest_difference'] <= 1e-5
        record(agent, about, tmp_path / f'{name}.npz')
        with np.load(tmp_path / f'{name}.npz') as recorded:  # actions that vary, or the comparison would say little
            varied = [x for key, x in recorded.items() if '/out/action' in key and len(x) > 1]
            assert any((x != x[:1]).any() for x in varied), name
    assert not [path for path in tmp_path.iterdir() if path.name.startswith('.')]
    done = run_alone(READER.format(**PROGRAMS[to]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split('\n')[:-1] == sorted(agents)


@pytest.mark.full(but='tuples')
@pytest.mark.parametrize('name', ['dictionary', 'masked', 'tuples'])
def test_the_program_for_any_agent_of_the_page(name, agents, tmp_path):
    page = (Path(__file__).parents[3] / 'docs/howto/export.md').read_text(encoding='utf-8')
    program = page[page.rindex('```python\n') + len('```python\n') : page.rindex("agent = Agent('exported/onnx')")]
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    agent = agents[name]
    acting = namespace['Agent'](export(agent, tmp_path / 'exported', 'onnx'))
    for _ in range(2):
        acting.begin()
        state = agent.initial_state() if agent.behavior.state_size else None
        for _ in range(3):
            obs = agent.observation_space.sample()
            expected = agent.predict(obs, state=state)
            if state is not None:
                expected, state = expected
            found = acting.act(obs)
            assert agent.action_space.contains(found)
            for path, x in spaces.tree_items(spaces.flatten(agent.action_space, expected)):
                np.testing.assert_allclose(
                    dict(spaces.tree_items(spaces.flatten(agent.action_space, found)))[path], x, atol=1e-5
                )


@pytest.mark.full(but='DQN')
@pytest.mark.parametrize('name', toys.marked(algorithms.NAMES))
def test_every_algorithm(name, tmp_path):
    kinds = [kind for kind in ACTIONS if type(ACTIONS[kind]).__name__ in getattr(algorithms, name).acts_in]
    agent = make(name, toys.OBSERVATIONS['vector'], ACTIONS[kinds[-1]])
    about = json.loads((export(agent, tmp_path / 'exported', 'onnx') / 'agent.json').read_text())
    assert about['algorithm'] == name and about['checked']['by'].startswith('onnxruntime')


def test_the_description_by_hand(agents, tmp_path):
    about = json.loads((export(agents['dictionary'], tmp_path / 'a', 'onnx') / 'agent.json').read_text())
    assert about['observation'] == {
        'camera': 'obs_camera',
        'robot': {'mode': 'obs_robot_mode', 'pose': 'obs_robot_pose'},
    }
    assert about['action'] == {
        'arm': {'force': 'action_arm_force', 'switches': 'action_arm_switches'},
        'grip': 'action_grip',
    }
    described = {x['name']: x for x in about['inputs'] + about['outputs']}
    assert described['obs_camera']['shape'] == [None, 8, 9, 3] and described['obs_camera']['dtype'] == 'uint8'
    assert described['obs_camera']['space'] == {
        'type': 'Box',
        'low': 0,
        'high': 255,
        'shape': [8, 9, 3],
        'dtype': 'uint8',
    }
    assert described['action_grip'] == {
        'name': 'action_grip',
        'shape': [None],
        'dtype': 'int64',
        'space': {'type': 'Discrete', 'n': 3, 'start': 0, 'dtype': 'int64'},
    }
    assert (about['model'], about['state'], about['to']) == ('model.onnx', None, 'onnx')
    assert about['libraries']['tensorflow'] == version('tensorflow')
    about = json.loads((export(agents['tuples'], tmp_path / 'b', 'onnx') / 'agent.json').read_text())
    assert about['observation'] == ['obs_0', 'obs_1'] and about['action'] == 'action'
    about = json.loads((export(agents['masked'], tmp_path / 'd', 'onnx') / 'agent.json').read_text())
    assert about['state'] == {'input': 'state', 'output': 'next_state', 'begins': 0.0}
    assert about['inputs'][-1] == {'name': 'state', 'shape': [None, 12], 'dtype': 'float32'}
    about = json.loads((export(agents['vector'], tmp_path / 'c', 'onnx') / 'agent.json').read_text())
    assert about['inputs'][0]['space']['low'] is None and 'Infinity' not in (tmp_path / 'c/agent.json').read_text()


def test_names_are_no_two_alike():
    space = Dict({'a/b': Discrete(2), 'a b': Discrete(2), 'A_B': Discrete(2), 'été': Discrete(2), '1': Tuple((WIDE,))})
    found = exporting.tensor_names('obs', space)
    assert found == {'1/0': 'obs_1_0', 'A_B': 'obs_A_B', 'a b': 'obs_a_b_2', 'a/b': 'obs_a_b_3', 'été': 'obs_t'}


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, np.ndarray]], Any], to: str = 'onnx') -> None:
    """Let a runtime give something else."""
    real = export_runtimes.RUNTIMES[to]

    def load(folder: Path) -> Any:
        run, version = real.load(folder)
        return (lambda inputs: change(dict(run(inputs)))), version

    monkeypatch.setitem(export_runtimes.RUNTIMES, to, dataclasses.replace(real, load=load))


@pytest.mark.full
@pytest.mark.parametrize(
    ('name', 'change', 'said'),
    [
        ('vector', lambda x: {'action': x['action'] + np.float32(1e-3)}, "'action' is .* in place of"),
        ('vector', lambda x: {'action': x['action'] * np.float32(np.nan)}, "'action' is nan in place of"),
        ('vector', lambda x: {'action': x['action'].astype(np.float64)}, 'as float64 .*, but predict as float32'),
        ('vector', lambda x: {'action': x['action'][:, :1]}, r'as float32 \[32, 1\], but predict as float32 \[32, 2\]'),
        ('image', lambda x: {'action': x['action'][::-1]}, "'action' is .* in place of"),
        ('masked', lambda x: x | {'next_state': x['next_state'] * np.float32(1.01)}, "'next_state' is"),
    ],
)
def test_an_export_that_differs_is_refused_and_left_nowhere(name, change, said, agents, tmp_path, monkeypatch):
    there = tmp_path / 'there'  # an earlier export
    there.mkdir()
    (there / 'agent.json').write_text('{"format": "zoo export", "files": ["model.onnx"]}')
    (there / 'model.onnx').write_text('of before')
    changed(monkeypatch, change)
    with pytest.raises(ExportError, match=said):
        export(agents[name], there, 'onnx')
    assert [path.name for path in tmp_path.iterdir()] == ['there']
    assert (there / 'model.onnx').read_text() == 'of before' and len(list(there.iterdir())) == 2


def test_a_choice_between_equals_may_fall_either_way(tmp_path, monkeypatch):
    agent = make('DQN', toys.OBSERVATIONS['vector'], Discrete(3), nets=[{'hidden': [], 'seed': 0}])
    network = agent.networks['q']
    kernel, bias = network.trainable_variables
    kernel.assign(tf.zeros_like(kernel))
    bias.assign([1.0, 1.0 + 1e-7, 0.0])  # the second by a hair
    changed(monkeypatch, lambda x: {'action': np.zeros_like(x['action'])})
    export(agent, tmp_path / 'a', 'onnx')
    bias.assign([1.0, 1.0 + 1e-3, 0.0])
    with pytest.raises(ExportError, match="'action' is 0 in place of 1"):
        export(agent, tmp_path / 'b', 'onnx')
    bias.assign([1.0, 1.0 + 1e-7, 0.0])
    changed(monkeypatch, lambda x: {'action': np.full_like(x['action'], 2)})  # no equal of the others
    with pytest.raises(ExportError, match="'action' is 2 in place of 1"):
        export(agent, tmp_path / 'b', 'onnx')


def test_a_failure_while_writing_leaves_nothing(agents, tmp_path, monkeypatch):
    real = export_runtimes.RUNTIMES['onnx']

    def full(function: Any, specs: Any, folder: Path) -> None:
        real.write(function, specs, folder)
        raise OSError(28, 'No space left on device')

    monkeypatch.setitem(export_runtimes.RUNTIMES, 'onnx', dataclasses.replace(real, write=full))
    with pytest.raises(ExportError, match='could not be written, and nothing was changed: .*No space left'):
        export(agents['tuples'], tmp_path / 'parent/new', 'onnx')
    assert list((tmp_path / 'parent').iterdir()) == []


def test_what_is_not_an_export_is_never_replaced(agents, tmp_path):
    agent = agents['tuples']
    (tmp_path / 'file').write_text('mine')
    with pytest.raises(ExportError, match="file' is a file: it is left as it is"):
        export(agent, tmp_path / 'file', 'onnx')
    (tmp_path / 'empty').mkdir()
    folder = export(agent, tmp_path / 'empty', 'onnx')
    assert export(agent, folder, 'savedmodel') == folder  # another one takes its place
    assert not (folder / 'model.onnx').exists() and (folder / 'saved_model.pb').exists()
    (folder / 'notes.txt').write_text('mine')
    with pytest.raises(ExportError, match="holds 'notes.txt', which is not part of an export"):
        export(agent, folder, 'onnx')
    assert (folder / 'notes.txt').read_text() == 'mine' and (folder / 'saved_model.pb').exists()


def test_what_cannot_be_meant_is_said(agents, tmp_path):
    agent = agents['tuples']
    with pytest.raises(ValueError, match="unknown value of to 'onxx': did you mean 'onnx'"):
        export(agent, tmp_path / 'a', 'onxx')
    with pytest.raises(ValueError, match=r"export takes an agent, such as zoo.load\('runs/a'\) gives, not a str"):
        export('runs/a', tmp_path / 'a')
    with pytest.raises(
        ExportError, match="an export is a folder, so .*agent.onnx' would mislead: leave out the ending"
    ):
        export(agent, tmp_path / 'agent.onnx', 'onnx')
    assert list(tmp_path.iterdir()) == []
    assert zoo.export is export


def test_digits_that_a_runtime_lacks_are_refused(tmp_path):
    agent = make('PPO', WIDE, ACTIONS['Box'], normalize_obs=True)
    agent.statistics[''].update(1e8 + np.random.default_rng(0).normal(size=(100_000, 3)))
    agent.statistics[''].mean[:], agent.statistics[''].scale[:] = 1e8, 1.0  # a clock
    agent.statistics['']._refresh = lambda: None
    with pytest.raises(ExportError, match="the LiteRT model gives other actions than the agent's predict"):
        export(agent, tmp_path / 'a', 'litert')
    assert list(tmp_path.iterdir()) == []


class Python(keras.layers.Layer):
    """A layer that no converter can follow."""

    def call(self, x: Any) -> Any:
        y = tf.numpy_function(lambda value: value + 1, [x], tf.float32)
        return tf.ensure_shape(y, x.shape)


def test_a_network_that_cannot_be_converted_is_named(tmp_path):
    nets = [keras.Sequential([Python(), keras.layers.Dense(5)]), {'hidden': [4]}]
    agent = algorithms.PPO(toys.OBSERVATIONS['vector'], Discrete(2), net_list=nets)
    for to in ('litert', 'onnx'):
        with pytest.raises(ExportError, match='PyFunc'):
            export(agent, tmp_path / 'a', to)
    assert list(tmp_path.iterdir()) == []


def test_a_behavior_of_an_authors_own_that_says_nothing_of_it(agents, tmp_path, monkeypatch):
    agent = agents['tuples']
    monkeypatch.setattr(type(agent.behavior), 'chosen', lambda self, output, obs: Behavior.chosen(self, output, obs))
    with pytest.raises(ExportError, match='TD3 acts by GaussianNoise, which lacks the method chosen'):
        export(agent, tmp_path / 'a', 'onnx')


def test_bfloat16(tmp_path):
    nets = [{'hidden': [160, 160], 'seed': 0, 'features': 160, 'dtype': 'mixed_bfloat16'}, {'hidden': [4]}]
    flat = algorithms.PPO(toys.OBSERVATIONS['vector'], ACTIONS['Box'], net_list=nets)
    export(flat, tmp_path / 'flat', 'onnx')  # it acts in float32
    assert flat.networks['actor'].torso.layers[1].dtype_policy.name == 'mixed_bfloat16'
    image = algorithms.PPO(toys.OBSERVATIONS['image'], ACTIONS['Box'], net_list=nets)
    with pytest.raises(ExportError, match='computes in bfloat16, which ONNX does not do as TensorFlow does'):
        export(image, tmp_path / 'image', 'onnx')


def test_what_is_not_installed(agents, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    with caplog.at_level(logging.WARNING, 'zoo'):
        folder = export(agents['tuples'], tmp_path / 'a', 'onnx')
    assert 'nothing is installed that runs ONNX, so the export was not compared' in caplog.text
    assert json.loads((folder / 'agent.json').read_text())['checked'] is None
    monkeypatch.setitem(sys.modules, 'tf2onnx', None)
    with pytest.raises(ImportError, match=r"pip install 'zoo-rl\[export\]'"):
        export(agents['tuples'], tmp_path / 'b', 'onnx')
    assert not (tmp_path / 'b').exists()
    monkeypatch.setitem(sys.modules, 'ai_edge_litert.interpreter', None)
    folder = export(agents['tuples'], tmp_path / 'c', 'litert')
    assert json.loads((folder / 'agent.json').read_text())['checked']['by'].startswith('tensorflow')


@pytest.mark.full
@pytest.mark.usefixtures('plain_graphs')
def test_an_agent_is_as_it_was_before(tmp_path):
    agent = make('DQN', toys.OBSERVATIONS['nested Dict'], Discrete(3), normalize_obs=True)
    state, rng = agent.state(), agent.rng.bit_generator.state
    space = agent.observation_space.np_random.bit_generator.state
    export(agent, tmp_path / 'a', 'litert')
    assert agent.rng.bit_generator.state == rng
    assert agent.forward.graphs.keys() <= {1}  # the graph of another number of copies has its place still
    assert agent.observation_space.np_random.bit_generator.state == space
    for name, x in agent.state().items():
        np.testing.assert_array_equal(x, state[name])
    params = {'train_steps': 12, 'explore_steps': 6, 'batch_size': 4, 'buffer_size': 40, 'run_dir': False}
    assert agent.learn(toys.AnySpaces(agent.observation_space, agent.action_space), **params).steps == 12
