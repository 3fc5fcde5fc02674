"""What a new user types who knows Stable-Baselines3 and its zoo: each mistake is answered by one near sentence."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import zoo
from zoo import algorithms
from zoo.cli import main
from zoo.common.tools import habits

#: What a program writes; a user of the shell is not told of it.
PYTHON = re.compile(r'zoo\.\w+\(|agent\.\w|build_env\(|call_default_params|run_dir=|optimizers_list|resume=True')

TRAIN = 'train --algo ppo --env CartPole-v1'


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


@pytest.mark.parametrize(
    ('line', 'told'),
    [
        # commands
        ('evaluate last', "unknown command 'evaluate': zoo test RUN plays whole episodes"),
        ('benchmark', "unknown command 'benchmark': zoo compare"),
        ('optimize', "unknown command 'optimize': zoo tune"),
        ('record_video', "unknown command 'record_video': zoo film RUN films"),
        ('ppo CartPole-v1', "unknown command 'ppo': zoo train PPO CartPole-v1 trains"),
        ('envs', "unknown command 'envs': zoo list"),
        ('tst last', "unknown command 'tst': did you mean 'test'?"),
        # missing words
        ('enjoy', 'RUN is missing: zoo enjoy last takes the newest'),
        ('plot', 'RUN is missing: zoo plot last'),
        ('list', 'KIND is missing: zoo list runs'),
        ('list envs', "unknown kind 'envs'. There are algorithms, environments, runs"),
        ('completion', 'SHELL is missing: zoo completion bash'),
        ('completion tcsh', "unknown shell 'tcsh'. There are bash, zsh, fish"),
        ('export last --to torch', "unknown format 'torch'. There are savedmodel, litert, onnx"),
        # options of other command lines
        (f'{TRAIN} -n 50000', 'there is no option -n: write --steps N'),
        (f'{TRAIN} --n-timesteps 50000', 'there is no option --n-timesteps: write --steps N'),
        (f'{TRAIN} --total-timesteps=5', 'there is no option --total-timesteps: write --steps N'),
        (f'{TRAIN} --eval-freq 1000', 'write --evaluate STEPS'),
        (f'{TRAIN} --eval-episodes 10', 'write evaluate: {episodes: N} in a file for --config'),
        (f'{TRAIN} --n-eval-envs 2', 'tests play in one copy'),
        (f'{TRAIN} -f logs', 'there is no option -f: write --run-dir FOLDER'),
        (f'{TRAIN} --tensorboard-log x', 'writes for TensorBoard into its own folder'),
        (f'{TRAIN} --save-freq 100', 'write --set checkpoint_every=N'),
        (f'{TRAIN} -i model.zip', '--from RUN begins another one with its weights'),
        (f'{TRAIN} --hyperparams gamma:0.9', 'write --set NAME=VALUE'),
        (f'{TRAIN} -params gamma:0.9', 'there is no option -params: write --set NAME=VALUE'),
        (f'{TRAIN} --conf-file x.yml', '--config'),
        (f'{TRAIN} --env-kwargs x:1', 'write --env-set NAME=VALUE'),
        (f'{TRAIN} --n-envs 8', '--nenv'),
        (f'{TRAIN} --vec-env subproc', 'write --set vectorized=async'),
        (f'{TRAIN} --device cuda', 'TensorFlow takes a GPU where it finds one'),
        (f'{TRAIN} --verbose 1', '--verbose takes no number: leave 1 out'),
        (f'{TRAIN} --verbose=1', "--verbose/-v takes no value: leave '1' out"),
        (f'{TRAIN} -P', 'a progress bar is there without an option'),
        (f'{TRAIN} --wandb-project-name x', 'write --track wandb:PROJECT'),
        (f'{TRAIN} --optimize', 'zoo tune searches parameters'),
        (f'{TRAIN} --learning-rate 0.1', 'write --set learning_rate=1e-4'),
        (f'{TRAIN} --gamma 0.9', 'there is no option --gamma: a parameter is given as --set gamma=VALUE'),
        (f'{TRAIN} --n-steps 128', 'write --set horizon=VALUE or --set n_step=VALUE'),
        (f'{TRAIN} --ent-coef 0.1', 'write --set alpha=VALUE or --set entropy_coef=VALUE'),
        (f'{TRAIN} --policy MlpPolicy', 'networks follow from the spaces, and --net 64,64 changes them'),
        (f'{TRAIN} --stepz 5', 'did you mean --steps?'),
        ('enjoy --algo ppo --env CartPole-v1', 'there is no option --algo: a RUN says its algorithm'),
        ('enjoy last --load-best', 'write --best'),
        ('enjoy last --deterministic', 'zoo test plays without exploration in any case'),
        ('test last --exp-id 1', 'a RUN is named by its folder'),
        ('compare ppo a2c --env CartPole-v1 --n-seeds 3', '--seeds'),
        ('tune ppo CartPole-v1 --n-trials 5', '--trials'),
        # values
        (f'{TRAIN} --steps', '--steps needs a value: --steps N'),
        (f'{TRAIN} --quiet=1', "--quiet/-q takes no value: leave '1' out"),
        (f'{TRAIN} --stop-at x --evaluate 5', "--stop-at: 'x' is not a number"),
        (f'{TRAIN} --set gamma:0.9', 'give a name and a value, such as --set gamma=0.98'),
        (f'{TRAIN} --env-set nenv=3', 'nenv is an argument of its own: give --nenv'),
        (f'{TRAIN} --track tensorboard', 'give wandb, wandb:PROJECT, mlflow or mlflow:EXPERIMENT'),
        (f'{TRAIN} --config nope.yml', "the configuration 'nope.yml' cannot be read"),
        # parameters of others
        (f'{TRAIN} --set ent_coef=0.1', "parameter of PPO 'ent_coef': it is called 'entropy_coef' here"),
        ('train sac Pendulum-v1 --set ent_coef=0.1', "parameter of SAC 'ent_coef': it is called 'alpha' here"),
        ('train sac Pendulum-v1 --set learning_starts=10', "it is called 'explore_steps' here"),
        ('train sac Pendulum-v1 --set train_freq=1', "it is called 'update_every' here"),
        ('train sac Pendulum-v1 --set gradient_steps=1', "it is called 'updates' here"),
        ('train sac Pendulum-v1 --set target_update_interval=1', 'targets move a little at every update'),
        ('train dqn CartPole-v1 --set target_update_interval=1', "it is called 'target_update_every' here"),
        ('train dqn CartPole-v1 --set exploration_fraction=0.1', 'it is a part of epsilon=Linear(1.0, 0.05, 0.1)'),
        ('train dqn CartPole-v1 --set policy_kwargs=dict(net_arch=[64])', '--net 64,64 changes them'),
        (f'{TRAIN} --set n_steps=128', "it is called 'horizon' here"),
        (f'{TRAIN} --set n_epochs=3', "it is called 'epochs' here"),
        (f'{TRAIN} --set vf_coef=0.5', "it is called 'value_coef' here"),
        (f'{TRAIN} --set n_envs=8', 'write --nenv N'),
        (f'{TRAIN} --set n_timesteps=3', 'write --steps N'),
        (f'{TRAIN} --set lr=3', 'write --set learning_rate='),
        (f'{TRAIN} --set resume=True', '--resume RUN goes on with a run'),
        (f'{TRAIN} --set start_from=x', 'it is an option of its own, --from'),
        # names
        ('train recurrentppo CartPole-v1', "it is PPO with recurrent='lstm' here"),
        ('train MaskablePPO CartPole-v1', 'it is PPO here, which follows action masks'),
        ('train ddqn CartPole-v1', 'it is DQN with double_q=True here'),
        ('train ppo2 CartPole-v1', "unknown algorithm 'ppo2': did you mean 'PPO'?"),
        ('train ppo cartpole', "unknown environment 'cartpole': did you mean 'CartPole-v1'?"),
        ('train ppo CartPole-v5', "did you mean 'CartPole-v1'?"),
        ('train ppo Corridor-v0', "unknown environment 'Corridor-v0'. An environment of another package is"),
        ('train ppo nomodule:Env', "there is no module 'nomodule'"),
        ('train ppo json:Decoder', "the module 'json' has no environment 'Decoder'"),
        ('train ppo gymnasium.envs.classic_control:CartPoleEnvv', "did you mean 'CartPoleEnv'?"),
        ('compare ppo PPO --env CartPole-v1', 'an algorithm is named twice'),
        # runs
        ('enjoy logs/ppo', "there is no run 'logs/ppo', nor any other in 'runs': zoo train makes one"),
        ('test last', "there is no run in 'runs' yet: zoo train makes one"),
        ('train --resume last --from last', 'leave out --from'),
        (f'{TRAIN} --from nope', "there is no run 'nope'"),
    ],
)
def test_a_mistake_is_answered(line: str, told: str, capsys):
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert told in last and captured.out == '' and 'Traceback' not in captured.err
    assert not PYTHON.search(last), last
    assert not Path('runs').exists()


@pytest.mark.parametrize(
    'line',
    [
        'compare DQN PPO --env CartPole-v1 --steps 9 --out {}',
        'tune DQN CartPole-v1 --steps 9 --out {}',
        'train DQN CartPole-v1 --steps 9 --net 4 --run-dir {}',
    ],
)
@pytest.mark.parametrize('place', ['file', 'file/below', 'no\0name'])
def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(line: str, place: str, tmp_path, capsys):
    (tmp_path / 'file').touch()
    assert main([word.replace('{}', place) for word in line.split()]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert 'cannot be' in last and 'Error' not in last and not PYTHON.search(last)


def test_runs_in_a_folder_that_is_a_file(tmp_path, monkeypatch, capsys):
    (tmp_path / 'file').touch()
    monkeypatch.setenv('ZOO_RUNS', 'file')
    assert main('train DQN CartPole-v1 --steps 9 --net 4 --set explore_steps=99'.split()) == 2
    assert "'file' cannot be the folder that ZOO_RUNS names: it is a file" in capsys.readouterr().err


def test_an_environment_is_a_class_in_a_module_in_every_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'path', list(sys.path))
    (tmp_path / 'corridors.py').write_text(
        'import gymnasium\n'
        'class Corridor(gymnasium.Env):\n'
        '    observation_space = gymnasium.spaces.Box(0, 9, (1,))\n'
        '    action_space = gymnasium.spaces.Discrete(2)\n'
        '    def __init__(self, length=9):\n'
        '        self.length = length\n'
        '    def reset(self, *, seed=None, options=None):\n'
        '        super().reset(seed=seed)\n'
        '        self.at = 0\n'
        '        return self.seen(), {}\n'
        '    def seen(self):\n'
        '        return gymnasium.spaces.Box(0, 9, (1,)).low + self.at\n'
        '    def step(self, action):\n'
        '        self.at += 1\n'
        '        return self.seen(), 1.0, self.at >= self.length, False, {}\n'
    )
    line = 'train dqn corridors:Corridor --steps 60 --net 4 --set explore_steps=99 --env-set length=7 --quiet'
    assert main(line.split()) == 0
    capsys.readouterr()
    assert main(['test', 'last', '--episodes', '1']) == 0  # the run knows how to build it again
    assert capsys.readouterr().out.startswith('return 7, 7 steps')
    assert zoo.open_run('last').environment == 'corridors:Corridor'
    assert main(['check', 'corridors:Corridor']) == 0
    assert main(['train', 'dqn', 'corridors:Corridorr']) == 2
    assert "did you mean 'Corridor'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ('name', 'package', 'extra'),
    [
        ('ALE/Pong-v5', 'ale_py', 'atari'),
        ('PongNoFrameskip-v4', 'ale_py', 'atari'),
        ('FetchReach-v4', 'gymnasium_robotics', 'robotics'),
        ('AntMaze_UMaze-v5', 'gymnasium_robotics', 'robotics'),
    ],
)
def test_an_environment_of_an_extra_that_is_missing_has_its_install_line(name, package, extra, monkeypatch, capsys):
    from gymnasium.envs.registration import registry

    monkeypatch.setitem(sys.modules, package, None)
    for known in [key for key in registry if key == name]:
        monkeypatch.delitem(registry, known)
    monkeypatch.setattr('importlib.util.find_spec', lambda *_: None)
    assert main(['train', 'ppo', name]) == 1  # a missing package
    assert f"pip install 'zoo-rl[{extra}]'" in capsys.readouterr().err


def test_a_task_of_dm_control_that_is_missing_has_its_install_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'dm_control', None)
    assert main(['train', 'sac', 'cheetah-run']) == 1
    assert "pip install 'zoo-rl[dm_control]'" in capsys.readouterr().err


def test_a_tracker_that_is_missing_is_refused_before_the_training(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'wandb', None)
    assert main(f'{TRAIN} --track wandb:mine'.split()) == 1
    assert 'pip install wandb' in capsys.readouterr().err and not Path('runs').exists()


def test_trackers_get_their_project(monkeypatch, tmp_path):
    seen = []

    class Run:
        def log(self, metrics, step):
            seen.append(step)

        def finish(self, exit_code):
            seen.append(exit_code)

    class Wandb:
        @staticmethod
        def init(**options):
            seen.append(options['project'])
            return Run()

    monkeypatch.setitem(sys.modules, 'wandb', Wandb)
    line = 'train dqn CartPole-v1 --steps 60 --net 4 --set explore_steps=99 --quiet --track wandb:mine'
    assert main(line.split()) == 0
    assert seen[0] == 'mine' and seen[-1] == 0 and 60 in seen


def test_what_names_stand_for_is_there():
    known = set()
    for name in algorithms.NAMES:
        cls = getattr(algorithms, name)
        known |= cls.declared().keys() | cls.declared_for_learn().keys() | {'run_dir'}
    for habit in habits.HABITS.values():
        names = (habit,) if isinstance(habit, str) else habit
        assert {name for name in names if ' ' not in name} <= known
    for name, told in habits.PLACES.items():
        assert name not in zoo.__all__ and told
        for other in re.findall(r'zoo\.(?:callbacks\.)?\w+', told):
            place = zoo.callbacks if 'callbacks' in other else zoo
            assert hasattr(place, other.rpartition('.')[2]) or other.endswith('callbacks')


@pytest.mark.parametrize(
    ('name', 'told'),
    [
        ('EvalCallback', 'KeepBest'),
        ('evaluate_policy', "agent.learn(env, 'test', test_episodes=10)"),
        ('make_vec_env', 'nenv=8'),
        ('VecNormalize', 'normalize_obs=True'),
        ('PPO', 'zoo.algorithms.PPO'),
        ('buildenv', "did you mean 'build_env'"),
    ],
)
def test_names_of_other_packages_say_what_to_write(name: str, told: str):
    with pytest.raises(AttributeError, match=re.escape(told)):
        getattr(zoo, name)


def test_an_algorithm_is_named_in_any_case():
    assert zoo.describe('Ppo').name == 'PPO'
    env = zoo.build_env('CartPole-v1')
    assert zoo.call_default_params(env, 'classic_control', 'ppo')[1].keys() >= {'horizon'}
    env.close()
