"""The command ``zoo``, in process where that is possible."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import zoo
from zoo import algorithms
from zoo.cli import main, values
from zoo.cli.commands import completion, train
from zoo.cli.printing import mean_return

#: A training that only explores, so that nothing is compiled.
DQN = ['train', 'DQN', 'CartPole-v1', '--steps', '200', '--net', '8', '--set', 'explore_steps=10_000', '--quiet']


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> Path:
    """A folder with a run in ``runs``; a test takes a copy of it."""
    folder = tmp_path_factory.mktemp('trained')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv('ZOO_RUNS', raising=False)
        assert main([*DQN, '--evaluate', '100', '--env-set', 'max_episode_steps=50', '--seed', '3']) == 0
    return folder


@pytest.fixture
def a_run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained / 'runs', tmp_path / 'runs')
    (run,) = (tmp_path / 'runs').iterdir()
    return run


def said(capsys: Any, *argv: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    code = main(list(argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_train(a_run: Path):
    run = zoo.open_run('last')
    assert (run.algorithm, run.environment, run.seed, run.steps) == ('DQN', 'CartPole-v1', 3, 200)
    assert run.config['net_list'][0]['hidden'] == [8] and run.config['learn_params']['explore_steps'] == 10_000
    assert run.config['made_with']['max_episode_steps'] == 50 and run.best is not None


def test_what_train_prints(capsys):
    code, out, err = said(capsys, *DQN, '--run-dir', 'here')
    assert code == 0
    assert err.splitlines()[:2] == ['DQN on CartPole-v1, seed 0', 'Writing to here']
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert [line[0] for line in lines] == ['steps', 'episodes', 'return', 'run'] and lines[-1][1] == 'here'
    count = int(lines[1][1])
    assert lines[0][1].startswith('200 in ') and lines[2][1].endswith(f', the mean of all {count} episodes')
    assert len({line.index(words[1]) for line, words in zip(out.splitlines(), lines, strict=True)}) == 1  # aligned


def test_quiet_and_verbose(capsys):
    loud = [word for word in DQN if word != '--quiet']
    shown = {name: said(capsys, *loud, *words)[2] for name, words in {'1': [], '2': ['-v'], '0': ['-q']}.items()}
    assert 'DQN CartPole-v1: 100% 200/200, ' in shown['1'] and '\n  episode/count' not in shown['1']
    assert '\n  episode/count ' in shown['2'] and '\n  speed/steps_per_second ' in shown['2']
    assert 'CartPole-v1:' not in shown['0']
    for words in (['-v', '-q'], ['-v', '--set', 'verbose=1']):
        code, _, err = said(capsys, *loud, *words)
        assert code == 2 and ('contradict each other' in err or '--set verbose says the same' in err)
    Path('old.yaml').write_text('alg: DQN\nenv_id: CartPole-v1\ntrain_steps: 20\nnet: [8]\nprogress_bar: false\n')
    with pytest.warns(DeprecationWarning, match='progress_bar=False is verbose=0 now'):
        assert 'CartPole-v1:' not in said(capsys, 'train', '--config', 'old.yaml')[2]
    assert 'episode/count' in said(capsys, 'train', '--config', 'old.yaml', '-v')[2]


def test_play(a_run: Path, capsys):
    code, out, _ = said(capsys, 'test', 'last', '--episodes', '2', '--best')
    assert code == 0 and out.count('return ') == 2 and 'of 2 episodes after' in out
    again = said(capsys, 'test', a_run.name, '--episodes', '2', '--best')[1]
    assert again == out
    code, out, _ = said(capsys, 'test', str(a_run), '--episodes', '1', '--env-set', 'max_episode_steps=3')
    assert out.startswith('return 3, 3 steps')
    assert said(capsys, 'film', 'last', '--max-steps', '5') == (0, 'runs/' + a_run.name + '/film.gif\n', '')
    with Image.open(a_run / 'film.gif') as film:
        assert film.n_frames > 1


def test_show_and_list_and_plot(a_run: Path, capsys):
    out = said(capsys, 'show', 'last')[1]
    assert ['steps', '200', 'of', '200'] in [line.split() for line in out.splitlines()]
    changes = [line.split() for line in out.partition('Settings that differ from the defaults:')[2].splitlines()[1:]]
    assert changes == [
        ['train_steps', '200', '(default:', '50000)'],
        ['explore_steps', '10000', '(default:', '1000)'],
        ['net_list.hidden', '[8]', '(default:', '[128,', '128])'],
        ['max_episode_steps', '50', '(no', 'default)'],
    ]
    (tests,) = (line for line in out.splitlines() if line.startswith('tests '))
    assert re.match(r'tests +2, highest mean [\d.]+ at step [12]00, last [\d.]+ at step 200', tests)
    assert 'Network q: observation to the values of 2 actions' in said(capsys, 'show', 'last', '--networks')[1]
    header, line = said(capsys, 'list', 'runs')[1].splitlines()
    assert header.split() == ['run', 'algorithm', 'environment', 'steps', 'return', 'begun']
    assert line.split()[:6] == [a_run.name, 'DQN', 'CartPole-v1', '200', 'of', '200']
    assert said(capsys, 'plot', 'last', a_run.name, '--out', 'a/b.png') == (0, 'a/b.png\n', '')
    with Image.open('a/b.png') as picture:
        assert picture.size == (840, 504)


def test_show_of_a_run_without_defaults_has_all_settings(a_run: Path, capsys):
    config = json.loads((a_run / 'config.json').read_text())
    (a_run / 'config.json').write_text(json.dumps(config | {'algorithm': 'Mine'}))
    out = said(capsys, 'show', 'last')[1]
    assert 'zoo has no defaults for Mine, an algorithm of your own. Its settings:' in out
    assert re.search(r'\n  gamma +0\.99\n', out) and re.search(r'\n  epsilon +Linear\(1, 0\.05, 0\.1\)\n', out)


@pytest.mark.parametrize(
    ('episodes', 'told'),
    [(1, '2.5, of one episode'), (7, 'all 7'), (100, 'all 100'), (101, 'the last 100')],
)
def test_a_mean_says_of_how_many_episodes(episodes: int, told: str):
    assert told in mean_return(2.5, episodes, 100)


def test_lists(capsys):
    out = said(capsys, 'list', 'algorithms')[1]
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(algorithms.NAMES) and '``' not in out
    out = said(capsys, 'list', 'environments', '--type', 'classic_control')[1]
    assert 'CartPole-v1' in out.splitlines()
    lines = said(capsys, 'list', 'environments')[1].splitlines()
    assert 'classic_control\tCartPole-v1' in lines and 'gymnasium\tCartPole-v1' not in lines
    assert said(capsys, 'list', 'runs')[1:] == ('', 'There is no run here yet: zoo train makes one.\n')
    assert 'gamma = 0.99' in said(capsys, 'describe', 'PPO')[1]
    there = said(capsys, 'describe', 'PPO', 'CartPole-v1')[1].partition('Defaults of PPO in CartPole-v1')[2]
    assert re.search(r'gamma +0.98, elsewhere 0.99', there) and 'value_coef' not in there


def test_a_class_in_the_working_directory_is_found(tmp_path: Path, capsys, monkeypatch):
    bases = 'from gymnasium.envs.classic_control import CartPoleEnv as Base'
    (tmp_path / 'carts_of_mine.py').write_text(f'{bases}\nclass Cart(Base):\n    pass\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [path for path in sys.path if path not in ('', str(tmp_path))])
    assert 'Defaults of PPO in carts_of_mine:Cart' in said(capsys, 'describe', 'PPO', 'carts_of_mine:Cart')[1]
    assert 'A program trains an algorithm of your own' in said(capsys, 'describe', 'carts_of_mine:Cart')[2]


def test_check(tmp_path: Path, capsys, monkeypatch):
    assert said(capsys, 'check', 'CartPole-v1', '--steps', '50') == (0, 'no problem found\n', '')
    bad = 'import gymnasium\nclass Bad(gymnasium.Env):\n    observation_space = None\n    action_space = None\n'
    (tmp_path / 'bad_environments.py').write_text(bad)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    code, out, _ = said(capsys, 'check', 'bad_environments:Bad')
    assert code == 1 and 'observation_space' in out
    assert said(capsys, 'check', 'no_such_module:Bad')[0] == 2
    code, _, err = said(capsys, 'check', 'CartPole-v1', '--type', 'atari')
    assert code == 2 and "'CartPole-v1' is an environment of type 'classic_control'" in err


def test_check_of_a_name_that_needs_its_type(capsys):
    pytest.importorskip('envpool')
    given = ('CheetahRun-v1', '--steps', '20')
    assert said(capsys, 'check', *given, '--type', 'envpool') == (0, 'no problem found\n', '')
    code, _, err = said(capsys, 'check', *given)
    assert code == 2 and err.endswith('EnvPool has it: --type envpool.\n')


def test_check_with_arguments_of_the_environment(capsys):
    given = ('--env-set', 'max_episode_steps=20', '--env-set', 'hide_velocity=True')
    assert said(capsys, 'check', 'CartPole-v1', '--steps', '50', *given) == (0, 'no problem found\n', '')
    code, _, err = said(capsys, 'check', 'CartPole-v1', '--env-set', 'lenght=3')
    assert code == 2 and "'CartPole-v1' does not take the argument 'lenght'" in err
    code, _, err = said(capsys, 'check', 'CartPole-v1', '--env-set', 'seed=3')
    assert code == 2 and '--env-set seed: that is no argument of the environment' in err


def test_sentences_of_refusals_name_what_to_write(a_run: Path, capsys, monkeypatch):
    code, _, err = said(capsys, 'train', 'CartPole-v1', 'PPO')
    assert code == 2 and 'the algorithm comes first' in err
    code, _, err = said(capsys, 'list', 'environments', 'classic_control')
    assert code == 2 and "'classic_control' is one word too many: give it as --type classic_control." in err
    for name in ('DISPLAY', 'WAYLAND_DISPLAY', 'SDL_VIDEODRIVER'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr('platform.system', lambda: 'Linux')
    code, _, err = said(capsys, 'enjoy', 'last')
    assert code == 2 and err.endswith('write zoo film last.\n')
    shown = said(capsys, 'show', 'last')[1]
    ended = len([step for step in zoo.open_run('last').episodes['step'] if step <= 200])
    assert 0 < ended < 100 and f'the mean of all {ended} episodes' in shown


def test_a_run_goes_on_from_its_checkpoint(a_run: Path, capsys):
    (newest,) = (a_run / 'checkpoints').iterdir()
    newest.rename(newest.with_name('000000150'))
    assert 'from step 150 of 200' in said(capsys, 'train', '--resume', 'last')[2]


def test_a_killed_run_says_how_far_it_came_and_from_where_it_goes_on(a_run: Path, capsys):
    (newest,) = (a_run / 'checkpoints').iterdir()
    newest.rename(newest.with_name('000000150'))
    run = zoo.open_run('last')
    assert (run.steps, run.checkpoint_steps) == (200, 150)
    shown = said(capsys, 'show', 'last')[1]
    assert '200 of 200' in shown and '150 steps: --resume goes on from there' in shown
    assert '200 of 200, 150 saved' in said(capsys, 'list', 'runs')[1]
    assert 'It had reached step 200: the steps after its newest' in said(capsys, 'train', '--resume', 'last')[2]
    shutil.rmtree(a_run / 'checkpoints')
    run = zoo.open_run('last')
    assert (run.steps, run.checkpoint_steps) == (200, 0) and 'nothing yet' in said(capsys, 'show', 'last')[1]


@pytest.mark.parametrize(
    ('said_by_file', 'options', 'expected'),
    [
        ('5000', ['--stop-at', '450'], {'every': 5000, 'stop_at': 450.0, 'share': None}),
        (
            '{every: 5000, episodes: 40, seed: 7}',
            ['--stop-at', '450'],
            {'every': 5000, 'episodes': 40, 'stop_at': 450.0},
        ),
        ('{every: 5000, episodes: 40, seed: 7}', ['--evaluate', '2000'], {'every': 2000, 'episodes': 40, 'seed': 7}),
        ('false', ['--evaluate', '2000'], {'every': 2000, 'share': None}),
        ('{every: 5000}', [], {'every': 5000, 'share': 0.1}),
    ],
)
def test_a_configuration_and_the_command_line_share_the_tests(monkeypatch, said_by_file, options, expected):
    given: dict[str, Any] = {}
    monkeypatch.setattr(zoo, 'train', lambda **params: given.update(params) or sys.exit(0))
    Path('run.yaml').write_text(f'alg: DQN\nenv_id: CartPole-v1\nevaluate: {said_by_file}\n')
    with pytest.raises(SystemExit):
        main(['train', '--config', 'run.yaml', *options])
    arguments = given['evaluate'].arguments
    assert {name: arguments[name] for name in expected} == expected


@pytest.mark.parametrize('said_by_file', ['false', 'true'])
def test_a_return_to_stop_at_needs_tests(capsys, said_by_file):
    Path('run.yaml').write_text(f'alg: DQN\nenv_id: CartPole-v1\nevaluate: {said_by_file}\n')
    code, _, err = said(capsys, 'train', '--config', 'run.yaml', '--stop-at', '450')
    assert code == 2 and '--stop-at goes with --evaluate' in err


def test_ctrl_c_saves_and_says_how_to_go_on(capsys, monkeypatch):
    class Interrupted(train.Where):
        def __call__(self, training: Any) -> None:
            if training.steps >= 100:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train, 'Where', Interrupted)
        code, out, err = said(capsys, *DQN, '--evaluate', '1000', '--stop-at', '475')
    (run,) = Path('runs').iterdir()
    assert (code, out) == (130, '') and err.splitlines()[-1] == f'Go on with: zoo train --resume {run} --quiet'
    kept = json.loads((run / 'best.json').read_text())['arguments']
    assert (kept['every'], kept['stop_at'], kept['share']) == (1000, 475.0, None)  # the run goes on with them
    code, out, err = said(capsys, 'train', '--resume', str(run), '--quiet')
    assert code == 0 and out.startswith('steps           100 in ') and 'from step 100 of 200' in err
    assert '\nbest, the last  step 200, mean ' in out and 'Test at' not in err
    shown = said(capsys, 'show', str(run))[1]
    assert 'of 20 new episodes' in shown and str(run / 'best') in shown
    code, _, err = said(capsys, 'train', '--resume', str(run))
    assert code == 2 and 'was not interrupted' in err


def test_export(a_run: Path, capsys, monkeypatch):
    asked: list[Any] = []

    def export(agent: Any, path: Path, to: str) -> Path:
        asked.append((agent.steps, path, to))
        return path

    monkeypatch.setattr(zoo, 'export', export, raising=False)
    monkeypatch.setattr(zoo, '__all__', [*zoo.__all__, 'export'])
    path = Path('runs') / a_run.name / 'exported_onnx'
    assert said(capsys, 'export', 'last', '--to', 'onnx') == (0, f'{path}\n', '')
    assert asked == [(200, path, 'onnx')]
    code, _, err = said(capsys, 'export', 'last', '--to', 'onx')
    assert code == 2 and "unknown format 'onx': did you mean 'onnx'?" in err


@pytest.mark.parametrize(
    ('words', 'code', 'message'),
    [
        ('trian', 2, "zoo: unknown command 'trian': did you mean 'train'?"),
        ('train PP0 CartPole-v1', 2, "zoo train: unknown algorithm 'PP0': did you mean 'PPO'?"),
        ('train PPO', 2, 'zoo train: the environment is missing'),
        ('train', 2, 'zoo train: the algorithm and the environment are missing: zoo train PPO CartPole-v1'),
        ('train --algo PPO', 2, 'zoo train: the environment is missing'),
        ('train --algo PP0 --env CartPole-v1', 2, "zoo train: unknown algorithm 'PP0': did you mean 'PPO'?"),
        ('train PPO CartPole-v1 --algo A2C', 2, 'the algorithm is given twice, as PPO and as --algo A2C: leave one'),
        ('train PPO CartPole-v1 --env Acrobot-v1', 2, 'as CartPole-v1 and as --env Acrobot-v1: leave one out'),
        ('tune', 2, 'zoo tune: the algorithm and the environment are missing: zoo tune TD3 Pendulum-v1'),
        ('compare PPO A2C', 2, 'zoo compare: the environment is missing'),
        ('compare PPO A2CC --env CartPole-v1', 2, "unknown algorithm 'A2CC': did you mean 'A2C'?"),
        ('compare PPO Acrobot-v1 --env CartPole-v1', 2, 'the environment is given twice, as Acrobot-v1 and as --env'),
        (
            'compare PPO A2C --algo DQN --env CartPole-v1',
            2,
            'algorithms are given twice, as PPO, A2C and as --algo DQN',
        ),
        ('compare PPO CartPole-v1 A2C', 2, 'the algorithm comes first, then the environment'),
        ('check', 2, 'zoo check: the environment is missing: zoo check CartPole-v1'),
        ('check CartPole-v1 more', 2, "zoo check: 'more' is one word too many"),
        ('describe', 2, 'zoo describe: the algorithm is missing: zoo describe PPO'),
        ('describe DQN Pendulum-v1', 2, 'zoo describe: DQN cannot act in Box(1,) float32'),
        ('test x more', 2, "zoo test: 'more' is one word too many"),
        ('train PPO CartPol-v1', 2, "did you mean 'CartPole-v1'?"),
        ('train PPO CartPole-v1 more', 2, "zoo train: 'more' is one word too many"),
        ('train PPO CartPole-v1 --stepps 5', 2, 'zoo train: there is no option --stepps, did you mean --steps?'),
        ('train PPO CartPole-v1 --steps many', 2, "zoo train: --steps: 'many' is not a whole number of at least 1"),
        ('train PPO CartPole-v1 --steps 2.5e0', 2, "--steps: '2.5e0' is not a whole number of at least 1"),
        ('compare PPO --env CartPole-v1 --set test_episodes=3', 2, 'it is an option of its own, --episodes'),
        ('tune PPO --env CartPole-v1 --set alg=3', 2, '--set alg: it is an option of its own'),
        ('train PPO CartPole-v1 --steps 0', 2, "--steps: '0' is not a whole number of at least 1"),
        ('train PPO CartPole-v1 --seed -1', 2, '--seed'),
        ('train PPO CartPole-v1 --type atri', 2, "unknown type 'atri': did you mean 'atari'?"),
        ('train PPO CartPole-v1 --type box2d', 2, "'CartPole-v1' is an environment of type 'classic_control'"),
        ('train PPO CartPole-v1 --set gama=1', 2, "unknown parameter of PPO 'gama': did you mean 'gamma'?"),
        ('train PPO CartPole-v1 --set gamma', 2, '--set gamma: give a name and a value'),
        ('train PPO CartPole-v1 --set gamma=2', 2, 'gamma is 2: give a number from 0 to 1'),
        ('train PPO CartPole-v1 --set gamma=1 --set gamma=0', 2, '--set gamma is given twice'),
        ('train PPO CartPole-v1 --set net_list=[1', 2, "'[1' is no Python value"),
        ('train PPO CartPole-v1 --set seed=1', 2, '--set seed: it is an option of its own, --seed'),
        ('train PPO CartPole-v1 --steps 5 --set train_steps=6', 2, '--steps and --set train_steps say the same'),
        ('train PPO CartPole-v1 --net 64x', 2, "net is '64x'"),
        ('train PPO CartPole-v1 --env-set lenght=3', 2, "does not take the argument 'lenght'"),
        ('train PPO CartPole-v1 --stop-at 3', 2, '--stop-at goes with --evaluate'),
        ('train PPO CartPole-v1 --evaluate 5 --no-evaluate', 2, '--evaluate and --no-evaluate contradict each other'),
        ('train PPO CartPole-v1 --set evaluate=False', 2, '--set evaluate: it is an option of its own'),
        ('train DQN Pendulum-v1', 2, 'DQN cannot act in Box(1,) float32'),
        ('train PPO --resume x', 2, '--resume goes on with a run as it was begun: leave out an algorithm'),
        ('train --resume x', 2, "there is no run 'x'"),
        ('test x', 2, "there is no run 'x'"),
        ('plot x --out x.jpg', 2, "drawn as a .png, such as 'x.png'"),
        ('film', 2, 'zoo film: RUN is missing: zoo film last takes the newest.'),
        ('list runs --type atari', 2, '--type is for environments'),
        ('list run', 2, "unknown kind 'run': did you mean 'runs'?"),
        ('describe PP', 2, "did you mean 'PPO'?"),
    ],
)
def test_bad_input_is_one_sentence(words: str, code: int, message: str, capsys):
    found, out, err = said(capsys, *words.split())
    last = err.splitlines()[-1]
    assert (found, out) == (code, '') and message in last and 'Traceback' not in err
    assert not Path('runs').exists()


@pytest.mark.parametrize(
    ('words', 'algorithms_found', 'environment'),
    [
        ('train PPO CartPole-v1', ['PPO'], 'CartPole-v1'),
        ('train --algo PPO --env CartPole-v1', ['PPO'], 'CartPole-v1'),
        ('train --steps 5 CartPole-v1 --algo PPO', ['PPO'], 'CartPole-v1'),
        ('train PPO --steps 5 CartPole-v1', ['PPO'], 'CartPole-v1'),
        ('train PPO CartPole-v1 --algo PPO --env CartPole-v1', ['PPO'], 'CartPole-v1'),
        ('tune PPO --env CartPole-v1', ['PPO'], 'CartPole-v1'),
        ('tune PPO CartPole-v1', ['PPO'], 'CartPole-v1'),
        ('compare PPO A2C DQN --env CartPole-v1', ['PPO', 'A2C', 'DQN'], 'CartPole-v1'),
        ('compare PPO A2C CartPole-v1', ['PPO', 'A2C'], 'CartPole-v1'),
        ('compare --algo PPO A2C --env CartPole-v1 --steps 3', ['PPO', 'A2C'], 'CartPole-v1'),
        ('compare --algo PPO --algo A2C CartPole-v1', ['PPO', 'A2C'], 'CartPole-v1'),
        ('compare --env CartPole-v1 PPO A2C', ['PPO', 'A2C'], 'CartPole-v1'),
        ('check --env CartPole-v1', [], 'CartPole-v1'),
        ('describe --algo PPO', ['PPO'], None),
    ],
)
def test_every_command_takes_words_and_options(words: str, algorithms_found: list, environment: str, monkeypatch):
    seen = []
    module = importlib.import_module(f'zoo.cli.commands.{words.split()[0]}')
    monkeypatch.setattr(module, 'run', seen.append)
    assert main(words.split()) == 0
    (args,) = seen
    assert args.algorithms == algorithms_found
    assert getattr(args, 'environment', None) == environment


def test_record_writes_episodes_to_learn_from(a_run: Path, capsys):
    code, out, err = said(capsys, 'record', 'last', '--episodes', '2')
    assert (code, err) == (0, '')
    dataset = zoo.open_dataset(f'runs/{a_run.name}/episodes.npz')
    assert len(dataset) == 2 and dataset[0].log_prob is None and out == f'{dataset.summary()}\n'
    assert said(capsys, 'record', 'last', '--episodes', '1', '--explore', '--out', 'explored')[0] == 0
    assert zoo.open_dataset('explored')[0].log_prob is not None


def test_errors_of_others_name_their_kind_and_can_be_traced(capsys, monkeypatch):
    def fail(*args: Any, **kwargs: Any) -> None:
        raise json.JSONDecodeError('strange', 'text', 0)

    monkeypatch.setattr(zoo, 'describe', fail, raising=False)
    code, _, err = said(capsys, 'describe', 'PPO')
    assert code == 1 and err.startswith('zoo describe: JSONDecodeError: strange') and '(--traceback' in err
    with pytest.raises(json.JSONDecodeError):
        main(['describe', 'PPO', '--traceback'])


def test_a_window_needs_a_display(a_run: Path, capsys, monkeypatch):
    for name in ('DISPLAY', 'WAYLAND_DISPLAY', 'SDL_VIDEODRIVER'):
        monkeypatch.delenv(name, raising=False)
    code, _, err = said(capsys, 'enjoy', 'last')
    assert code == 2 and 'there is no display' in err


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ('0.98', 0.98),
        ('1e-3', 1e-3),
        ('10_000', 10_000),
        ('None', None),
        ('True', True),
        ('true', True),
        ('false', False),
        ('none', None),
        ('null', None),
        ('nonesuch', 'nonesuch'),
        ('penalty', 'penalty'),
        ("'penalty'", 'penalty'),
        ('[64, 64]', [64, 64]),
        ("{'learners': 1}", {'learners': 1}),
        ('Linear(0.2)', zoo.Linear(0.2)),
        ('Linear(1, 0.05, until=0.1)', zoo.Linear(1, 0.05, 0.1)),
        ('-3', -3),
        ('a/b.npz', 'a/b.npz'),
        ('', ''),
    ],
)
def test_values(text: str, value: Any):
    found = values.parse_value(text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize('text', ['[1', "{'a': }", 'Linear(1, 2, 3, 4)', 'Linear(__import__("os"))', '(1'])
def test_what_is_no_value(text: str):
    with pytest.raises(ValueError, match='is no Python value'):
        values.parse_value(text)


@pytest.mark.parametrize('shell', completion.SHELLS)
def test_completion(shell: str, capsys):
    pytest.importorskip('argcomplete')
    code, out, _ = said(capsys, 'completion', shell)
    assert code == 0 and 'zoo' in out and '_ARGCOMPLETE' in out or 'argcomplete' in out


def completions(line: str, folder: Path) -> list[str]:
    """What Tab offers after a line, as a shell asks for it."""
    variables = {'_ARGCOMPLETE': '1', 'COMP_LINE': line, 'COMP_POINT': str(len(line)), '_ARGCOMPLETE_IFS': '\n'}
    variables |= {'_ARGCOMPLETE_STDOUT_FILENAME': str(folder / 'offered'), 'COMP_TYPE': '9'}
    process(['train'], folder, **variables)
    return (folder / 'offered').read_text().split('\n')


def process(words: list[str], folder: Path, timeout: float = 120, **variables: str) -> subprocess.CompletedProcess:
    """The command as a process of its own."""
    env = os.environ | {'PYTHONPATH': str(Path(zoo.__file__).parents[1])} | variables
    return subprocess.run(
        [sys.executable, '-m', 'zoo', *words], cwd=folder, env=env, capture_output=True, text=True, timeout=timeout
    )


def test_tab_offers_what_there_is(a_run: Path, tmp_path: Path):
    pytest.importorskip('argcomplete')
    assert [word.strip() for word in completions('zoo train PP', tmp_path)] == ['PPO']
    assert [word.strip() for word in completions('zoo train --algo PP', tmp_path)] == ['PPO']
    assert [word.strip() for word in completions('zoo test DQN_', tmp_path)] == [a_run.name]
    assert 'CartPole-v1' in [word.strip() for word in completions('zoo tune PPO --env Cart', tmp_path)]
    assert 'CartPole-v1' in [word.strip() for word in completions('zoo compare PPO Cart', tmp_path)]
    assert 'CartPole-v1' in [word.strip() for word in completions('zoo train --algo PPO Cart', tmp_path)]
    assert 'CartPole-v1' in [word.strip() for word in completions('zoo train PPO Cart', tmp_path)]


def test_help_imports_nothing_heavy(tmp_path: Path):
    code = (
        'import sys\nfrom zoo.cli import main\n'
        "assert main(['--help']) == main(['train', '--help']) == 0\n"
        "heavy = {'tensorflow', 'keras', 'numpy', 'gymnasium', 'matplotlib', 'argcomplete'} & sys.modules.keys()\n"
        'sys.exit(str(heavy) if heavy else 0)'
    )
    env = os.environ | {'PYTHONPATH': str(Path(zoo.__file__).parents[1])}
    found = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, '') and '--set NAME=VALUE' in found.stdout


@pytest.mark.full
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_process_is_interrupted_without_noise(number: signal.Signals, tmp_path: Path):
    """By Ctrl-C, and by what schedulers send."""
    env = os.environ | {'PYTHONPATH': str(Path(zoo.__file__).parents[1])}
    words = [*DQN[:4], '100000000', *DQN[5:], '--set', 'log_every=100']
    with subprocess.Popen(
        [sys.executable, '-m', 'zoo', *words], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as job:
        until = time.monotonic() + 120
        while not list(tmp_path.glob('runs/*/progress.csv')) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(0.5)
        job.send_signal(number)
        try:
            _, err = job.communicate(timeout=120)
        finally:
            job.kill()  # a shell that started the tests in the background makes them ignore the signal
    lines = err.decode().splitlines()
    assert job.returncode == 130 and len(lines) == 4, lines
    assert lines[2].startswith('Interrupted at step') and lines[3].startswith(
        'Go on with: zoo train --resume runs/DQN_'
    )


def test_a_refusal_before_the_first_step_is_no_failed_training(capsys, caplog):
    code, _, err = said(capsys, *DQN, '--set', 'compress=True')
    assert code == 2 and 'compress' in err and 'Training failed' not in err + caplog.text


def test_an_unknown_name_far_from_all_has_one_colon():
    with pytest.raises(
        ValueError, match=r"^unknown value of vectorized 'threads'\. Known: sync, async, envpool, compiled\. True takes"
    ):
        zoo.build_env('CartPole-v1', vectorized='threads')


def test_show_of_a_dataset(tmp_path: Path, capsys):
    env = zoo.build_env('CartPole-v1', 'classic_control')
    dataset = zoo.record_episodes(lambda obs: 0, env, 'mine.npz', 3, seed=0)
    code, out, err = said(capsys, 'show', 'dataset', 'mine.npz', '--plot', 'pictures/a.png')
    assert (code, out, err) == (0, f'{dataset.summary()}\n\nDrawn in pictures/a.png.\n', '')
    assert Image.open('pictures/a.png').size == (1080, 432)
    for words, told in (
        (('dataset',), 'the path is missing: zoo show dataset runs/expert.npz.'),
        (('dataset', 'none.npz'), "there are no recorded episodes at 'none.npz'."),
        (('dataset', 'mine.npz', '--networks'), '--networks is about a run, but a dataset is shown: leave it out.'),
        (('last', 'mine.npz'), "'mine.npz' is one word too many: zoo show dataset PATH shows recorded episodes."),
        (
            ('last', '--plot', 'a.png'),
            '--plot draws a dataset, zoo show dataset PATH --plot FILE; zoo plot draws runs.',
        ),
    ):
        assert said(capsys, 'show', *words) == (2, '', f'zoo show: {told}\n')


def test_a_run_may_be_called_dataset(a_run: Path, capsys):
    a_run.rename(a_run.with_name('dataset'))
    assert 'DQN' in said(capsys, 'show', 'dataset')[1]
