"""What ``pytest`` alone promises to touch: every algorithm, environment type, engine, command and notebook.

Types of environments and commands are touched here, the rest by tests that :func:`test_pytest_alone_touches_everything`
names. None of them may be marked ``full``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launchers import ENGINES

import zoo
from zoo import algorithms, build_env
from zoo.cli import entry, main
from zoo.common.env_wrappers import TYPES

ROOT = Path(__file__).parents[1]

#: A quick environment of each type, and the package that it needs. RLBench has a stand-in, in a test of its own.
ENVIRONMENTS = {
    'classic_control': ('CartPole-v1', 'gymnasium'),
    'box2d': ('LunarLander-v3', 'Box2D'),
    'mujoco': ('Hopper-v5', 'mujoco'),
    'atari': ('PongNoFrameskip-v4', 'ale_py'),
    'robotics': ('FetchReach-v4', 'gymnasium_robotics'),
    'dm_control': ('cartpole-balance', 'dm_control'),
    'envpool': ('CheetahRun-v1', 'envpool'),
    'compiled': ('CartPole-v1', 'tensorflow'),
    'gymnax': ('CartPole-v1', 'gymnax'),
    'brax': ('fast', 'brax'),
    'jumanji': ('Game2048-v1', 'jumanji'),
    'mjx': ('PendulumSwingup', 'mujoco_playground'),
    'gymnasium': ('FrozenLake-v1', 'gymnasium'),
}

#: A call of each command. ``last`` is the run that ``zoo train`` has made.
SHORT = '--env CartPole-v1 --steps 40 --net 4 --episodes 1 --jobs 2'
COMMANDS = {
    'train': 'train DQN CartPole-v1 --steps 60 --net 4 --set explore_steps=20 --set batch_size=8 --quiet',
    'test': 'test last --episodes 1',
    'enjoy': 'enjoy last --episodes 1',
    'film': 'film last --max-steps 3',
    'record': 'record last --episodes 1',
    'list': 'list algorithms',
    'describe': 'describe PPO',
    'show': 'show last --networks',
    'plot': 'plot last',
    'check': 'check CartPole-v1 --steps 20',
    'compare': f'compare ES ARS {SHORT} --seeds 1',
    'tune': f'tune ES {SHORT} --trials 1',
    'export': 'export last --to savedmodel',
    'estimate': 'estimate last episodes.npz --updates 20',
    'completion': 'completion bash',
}

#: The one serves until Ctrl-C, the other needs a hub: tests of their own touch them.
ELSEWHERE = ('dashboard', 'push')

#: What some commands need to be installed.
NEEDED = {'tune': 'optuna', 'completion': 'argcomplete'}


@pytest.mark.parametrize('env_type', ENVIRONMENTS)
def test_a_type_is_built_and_played(env_type: str):
    env_id, package = ENVIRONMENTS[env_type]
    pytest.importorskip(package)
    env = build_env(env_id, env_type, seed=0)
    assert env.reset(seed=0)[0] in env.observation_space
    observation, reward, *_ = env.step(env.action_space.sample())
    assert observation in env.observation_space and isinstance(float(reward), float)
    env.close()


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short run in ``runs``."""
    folder = tmp_path_factory.mktemp('trained')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv('ZOO_RUNS', raising=False)
        assert main(COMMANDS['train'].split()) == 0
        zoo.record_episodes(lambda obs: 0, build_env('CartPole-v1'), 'episodes.npz', 3, seed=0)
    return folder


@pytest.mark.parametrize('command', [name for name in entry.build_parser()[1] if name not in ELSEWHERE])
def test_a_command_works(command: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    pytest.importorskip(NEEDED.get(command, 'zoo'))
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')
    code = main(COMMANDS[command].split())
    said = capsys.readouterr()
    assert (code, 'Traceback' in said.err) == (0, False), said.err
    assert said.out or command == 'check'


def test_pytest_alone_touches_everything():
    files = {
        'tests/interface/test_interface_kept.py': [
            f'test_a_training_ends_with_the_recorded_weights[{name}]' for name in algorithms.NAMES
        ],
        'tests/test_smoke.py': [
            *(f'test_a_type_is_built_and_played[{name}]' for name in TYPES if name != 'rlbench'),
            *(f'test_a_command_works[{name}]' for name in COMMANDS),
        ],
        'tests/common/envs/kinds/test_rlbench.py': ['test_state'],
        'tests/dashboard/test_server.py': ['test_it_serves_only_who_has_the_address_until_ctrl_c'],
        'tests/experiments/test_push.py': ['test_from_the_shell'],
        'tests/distributed/test_engines.py': [f'test_conformance[{name}]' for name in ENGINES],
        'tests/test_notebooks.py': [f'test_a_notebook_runs[{path.stem}]' for path in ROOT.glob('notebooks/*.ipynb')],
    }
    command = [sys.executable, '-m', 'pytest', '-n', '0', '-p', 'no:cacheprovider', '--collect-only', '-q', *files]
    environment = {name: value for name, value in os.environ.items() if not name.startswith('PYTEST_')}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = {f'{file}::{test}' for file, tests in files.items() for test in tests}
    assert expected - set(done.stdout.splitlines()) == set()
