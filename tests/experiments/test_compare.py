"""``zoo.compare``: its statistics by hand, and that what is done is not done again."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
from PIL import Image

import zoo
from zoo.cli import main
from zoo.common.env_wrappers import find_env_type
from zoo.common.tools.processes import alone_in
from zoo.experiments import plans, report, results, train, workers
from zoo.experiments.runs import Run
from zoo.experiments.statistics import bootstrap_interval, interquartile_mean


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


class TestStatistics:
    @pytest.mark.parametrize(
        ('scores', 'mean'),
        [
            ([7], 7),
            ([1, 2], 1.5),
            ([3, 1, 2], 2),  # a quarter of three is none
            ([4, 1, 3, 2], 2.5),  # the middle two
            ([1000, 0, 10, 20, 30, 100, 200, 0], 40),  # without 0, 0, 200, 1000: (10 + 20 + 30 + 100) / 4
        ],
    )
    def test_interquartile_mean_by_hand(self, scores: list[float], mean: float):
        assert interquartile_mean(scores) == mean

    def test_along_an_axis(self):
        scores = np.array([[0.0, 1.0], [5.0, 2.0], [6.0, 3.0], [900.0, 4.0]])
        np.testing.assert_array_equal(interquartile_mean(scores, 0), [5.5, 2.5])

    def test_bootstrap_of_two_by_hand(self):
        # The mean of two draws of 0 and 1 is 0, 1/2 or 1, with probabilities 1/4, 1/2 and 1/4.
        assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)
        assert bootstrap_interval([0.0, 1.0], level=0.4) == (0.5, 0.5)
        assert bootstrap_interval([3.0, 3.0, 3.0]) == (3.0, 3.0)

    def test_bootstrap_covers_the_mean_as_often_as_it_says(self):
        rng = np.random.default_rng(0)
        inside = 0
        for _ in range(200):
            low, high = bootstrap_interval(rng.normal(1.0, 2.0, 30), lambda x, axis: x.mean(axis), 0.9, 500)
            inside += low <= 1.0 <= high
        assert 165 <= inside <= 193  # of 200, some 176 for a percentile interval of 30

    def test_of_whole_curves(self):
        low, high = bootstrap_interval([[0.0, 5.0, 1.0], [1.0, 5.0, 1.0]])
        np.testing.assert_array_equal([low, high], [[0.0, 5.0, 1.0], [1.0, 5.0, 1.0]])


#: A comparison of two trainings that only explore, so that nothing is compiled.
FEW: dict[str, Any] = {'train_steps': 300, 'net': '8', 'explore_steps': 10_000, 'test_episodes': 2, 'progress': False}


def test_objects_of_one_name_are_told_apart(tmp_path):
    def network(units: int) -> Any:
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])

    def kept(units: int, factor: float, length: int) -> dict[str, Any]:
        env_params = {'reward_shaping': lambda reward: factor * reward}
        made = functools.partial(zoo.build_env, 'CartPole-v1', max_episode_steps=length)
        return {'net_list': [network(units)], 'env_params': env_params} | train.kept_environment(made)

    results.keep_settings(tmp_path, kept(4, 1.0, 10))
    results.keep_settings(tmp_path, kept(4, 1.0, 10))
    for other, name in ((kept(8, 1.0, 10), 'net_list'), (kept(4, 2.0, 10), 'env_params'), (kept(4, 1.0, 9), 'env_id')):
        with pytest.raises(ValueError, match=rf'holds runs with other settings \({name} '):
            results.keep_settings(tmp_path, other)
    assert train.kept_environment('CartPole-v1') == train.kept_environment(gymnasium.Env) == {}


@pytest.mark.full
def test_a_comparison_goes_on_and_writes_its_report(capsys):
    algs = {'one': {'alg': 'DQN'}, 'other': {'alg': 'DQN', 'gamma': 0.5}}
    first = zoo.compare(algs, 'CartPole-v1', seeds=1, out='here', jobs=2, **FEW)
    assert {label: [score.seed for score in found] for label, found in first.scores.items()} == {
        'one': [0],
        'other': [0],
    }
    times = {path: path.stat().st_mtime_ns for path in Path('here').rglob('result.json')}
    assert len(times) == 2
    (Path('here/one/seed_1')).mkdir()  # as of a run that was killed before its first checkpoint
    (Path('here/one/seed_1/config.json')).write_text('{"algorithm": "DQN"}')
    (Path('here/one/seed_1/monitor.csv')).write_text('left behind')
    more = zoo.compare({'one': algs['one']}, 'CartPole-v1', seeds=[1, 0], out='here', **FEW | {'progress': True})
    assert [score.seed for score in more.scores['one']] == [1, 0]
    assert more.scores['one'][1] == first.scores['one'][0]
    assert {path: path.stat().st_mtime_ns for path in times} == times  # they were not done again
    told = capsys.readouterr().err
    assert '1 of 2 runs are there already.' in told
    assert "'here' also holds runs of other: they are kept, but not in this report." in told

    found = first.scores['one'][0]
    assert found.score == np.mean(found.returns) and zoo.open_run(found.folder).seed == 0
    (row,) = [row for row in first.table if row[0] == 'other']
    assert row[1] == f'{first.scores["other"][0].score:.4g}' and row[6] == '1'
    text, page = repr(more), Path('here/report.html').read_text()
    assert 'one' in text and 'report: here/report.html' in text
    for note in ('Each run has 1 copy of the environment.', '2 seeds are few: the interval is too narrow'):
        assert note in text and note in page
    assert page.count('data:image/png;base64,') == 2 and 'interquartile' in page and '<td>one</td>' in page
    for name in ('curves.png', 'scores.png'):
        with Image.open(Path('here') / name) as picture:
            assert picture.width == 960
    assert len(Path('here/scores.csv').read_text().splitlines()) == 3

    with pytest.raises(ValueError, match=r'holds runs with other settings \(gamma 0.5 there and 0.9 now\)'):
        zoo.compare({'other': {'alg': 'DQN', 'gamma': 0.9}}, 'CartPole-v1', out='here', **FEW)
    with pytest.raises(ValueError, match="env_type 'classic_control' there and 'gymnasium' now"):
        zoo.compare({'one': algs['one']}, 'CartPole-v1', 'gymnasium', out='here', **FEW)
    with pytest.raises(ValueError, match="^'here' holds a comparison in CartPole-v1: choose another folder"):
        zoo.compare(['PPO'], 'Acrobot-v1', out='here', progress=False)
    with alone_in('here'), pytest.raises(ValueError, match="'here' is in use"):
        zoo.compare({'one': algs['one']}, 'CartPole-v1', out='here', **FEW)


@pytest.mark.full
def test_a_run_without_an_update_is_named(capsys):
    never = {**FEW, 'progress': True, 'explore_steps': 10_000}
    found = zoo.compare(['DQN'], 'CartPole-v1', seeds=2, out='here', **never)
    told = capsys.readouterr().err
    assert '(nothing was learned: it ended before the first update)' in told
    note = 'DQN, seeds 0, 1: nothing was learned: it ended before the first update.'
    assert note in repr(found) and note in Path('here/report.html').read_text()


class Two(gymnasium.Env):
    """Episodes of two steps; action 1 is rewarded."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1, np.float32), float(action), self.steps == 2, False, {}


def test_several_environments(monkeypatch, capsys):
    """The runs of each have its own folder and report; all of them together have another."""

    def do(tasks: list[workers.Task], jobs: int, begun: Any, ended: Any) -> None:
        done.extend(task.name for task in tasks)
        for task in tasks:
            folder, own, env_id, _, seed, _ = task.args
            if (own['alg'], env_id, seed) == broken:
                ended(task, 'it broke')
                continue
            score = {'CartPole-v1': 262.01, 'Acrobot-v1': -495.46}.get(env_id, 1.5) + 10 * (own['alg'] == 'PPO') + seed
            folder.mkdir(parents=True)
            result = {'score': score, 'returns': [score], 'steps_per_second': 1.0, 'seconds': 1.0}
            (folder / 'result.json').write_text(json.dumps(result))
            (folder / 'config.json').write_text('{"algorithm": "PPO"}')
            ended(task, None)

    monkeypatch.setattr(workers, 'run', do)
    done, broken = list[str](), None
    names = ['CartPole-v1', 'Acrobot-v1', Two]
    made = zoo.compare(['PPO', 'DQN'], names, seeds=2, references={'Acrobot-v1': -395.46})
    assert done[:4] == ['PPO in CartPole-v1, seed 0', 'DQN in CartPole-v1, seed 0', 'PPO in Acrobot-v1, seed 0',
                        'DQN in Acrobot-v1, seed 0'] and len(done) == 12  # fmt: skip
    folder = Path('runs/compare_environments')
    assert made.folder == folder and list(made.environments) == ['CartPole-v1', 'Acrobot-v1', 'Two']
    said = capsys.readouterr().err
    assert 'Acrobot-v1: Each run has 1 copy of the environment.' in said
    assert 'Two: a random policy plays 20 episodes.' in said and 'CartPole-v1: a random' not in said

    # By hand: (272.01 − 24.02) / (500 − 24.02) = 0.521, …; the best of Two is PPO's mean, 12.
    summary = made.summary
    assert summary.scales['CartPole-v1'].random == 24.02 and summary.scales['CartPole-v1'].reference == 500
    assert summary.scales['Acrobot-v1'].reference == -395.46 and summary.scales['Acrobot-v1'].source == 'given'
    assert summary.scales['Two'].reference == 12.0 and 0.5 < summary.scales['Two'].random < 1.5
    np.testing.assert_allclose(summary.normalized('PPO')[0], [(272.01 - 24.02) / 475.98, (273.01 - 24.02) / 475.98])
    np.testing.assert_allclose(summary.normalized('PPO')[1], [0.1, 0.11])
    assert list(summary.aggregates) == ['PPO', 'DQN'] and summary.improvement['PPO', 'DQN'][0] == 1.0
    text, page = repr(made), (folder / 'report.html').read_text()
    for part in ('highest mean here', '20 episodes, measured now', 'given', '2 runs are few', 'optimality gap'):
        assert part in text and part in page
    assert f'report: {folder}/report.html' in text and 'href="Two/report.html"' in page
    assert (folder / 'Two/report.html').exists() and 'PPO, DQN on Two' in (folder / 'Two/report.html').read_text()
    with Image.open(folder / 'summary.png') as picture:
        assert picture.width == 900
    rows = (folder / 'scores.csv').read_text().splitlines()
    assert len(rows) == 13 and rows[0] == 'algorithm,environment,seed,score,normalized'
    assert rows[3].startswith('PPO,Acrobot-v1,0,-485.46,0.1')

    done.clear()  # what is there stays, and a run that fails is named, in a report of the others
    broken = ('DQN', 'Acrobot-v1', 2)
    with pytest.raises(RuntimeError, match=r'1 of 12 runs have failed: DQN in Acrobot-v1, seed 2 \(it broke; see '):
        zoo.compare(['PPO', 'DQN'], names[:2], seeds=3, references={'Acrobot-v1': -395.46})
    assert len(done) == 4 and '8 of 12 runs are there already.' in capsys.readouterr().err
    assert '2 to 3' in (folder / 'report.html').read_text()

    with pytest.raises(ValueError, match='the reference of Acrobot-v1 is -500, but a random policy has -495.5'):
        zoo.compare(['PPO'], names[:2], seeds=3, references={'Acrobot-v1': -500})
    with alone_in(folder / 'Two'), pytest.raises(ValueError, match="Two' is in use"):
        zoo.compare(['PPO', 'DQN'], names, seeds=2)
    assert 'a random policy' not in capsys.readouterr().err


def test_another_environment_with_the_same_name_has_another_scale():
    plan = plans.Plan('CartPole-v1', 'classic_control', 'CartPole-v1', {'a': {'env_params': None}}, 1)
    assert plan.scale(False).random == 24.02
    settings = {'a': {'env_params': {'max_episode_steps': 5}}}
    plan = plans.Plan('CartPole-v1', 'classic_control', 'CartPole-v1', settings, 1)
    assert plan.scale(False).random == 5.0 and plan.scale(False).reference is None


@pytest.mark.full
def test_several_environments_are_trained():
    made = zoo.compare(['DQN'], ['CartPole-v1', 'Acrobot-v1'], seeds=1, jobs=2, **FEW | {'env_params': {
        'max_episode_steps': 20}})  # fmt: skip
    assert {name: len(one.scores['DQN']) for name, one in made.environments.items()} == {
        'CartPole-v1': 1,
        'Acrobot-v1': 1,
    }
    assert zoo.open_run(made.environments['Acrobot-v1'].scores['DQN'][0].folder).environment == 'Acrobot-v1'
    assert 'Acrobot-v1 is left out of the aggregates: no algorithm is better than random there.' in repr(made)


def compared(monkeypatch: pytest.MonkeyPatch, algs: Any, **params: Any) -> dict[str, Any]:
    """The ``nenv`` of each run that a comparison would do."""
    tasks: list[workers.Task] = []
    monkeypatch.setattr(workers, 'run', lambda given, *args: tasks.extend(given))
    zoo.compare(algs, 'CartPole-v1', **{'seeds': 1, 'out': 'here', **params})
    return {task.name.partition(',')[0]: task.args[1]['nenv'] for task in tasks}


class TestCopies:
    """Every algorithm has as many copies of the environment as the others, unless the user wants it otherwise."""

    def test_all_have_the_largest_default(self, monkeypatch, capsys):
        assert compared(monkeypatch, ['PPO', 'A2C', 'DQN']) == {'PPO': 8, 'A2C': 8, 'DQN': 8}
        said = capsys.readouterr().err.splitlines()[0]
        assert said == (
            'Each run has 8 copies of the environment. It is the largest default (PPO 1, A2C 8, DQN 1); nenv (--nenv) '
            'sets another one.'
        )

    def test_equal_defaults_need_no_reason(self, monkeypatch, capsys):
        assert compared(monkeypatch, ['PPO', 'DQN']) == {'PPO': 1, 'DQN': 1}
        assert capsys.readouterr().err.splitlines()[0] == 'Each run has 1 copy of the environment.'

    def test_what_the_user_says_holds(self, monkeypatch, capsys):
        assert compared(monkeypatch, ['PPO', 'A2C'], nenv=3, out='all') == {'PPO': 3, 'A2C': 3}
        own = {'PPO': {'alg': 'PPO', 'nenv': 2}, 'A2C': {'alg': 'A2C'}, 'DQN': {'alg': 'DQN'}}
        assert compared(monkeypatch, own, out='one') == {'PPO': 2, 'A2C': 8, 'DQN': 8}
        assert 'Copies of the environment: PPO 2, A2C 8, DQN 8.' in capsys.readouterr().err

    def test_actors_have_copies_each(self, monkeypatch, capsys):
        assert compared(monkeypatch, ['A3C', 'A2C']) == {'A3C': 1, 'A2C': 8}
        assert 'Each actor of A3C has so many.' in capsys.readouterr().err
        assert compared(monkeypatch, ['A3C', 'A2C'], roles=None, out='alone') == {'A3C': 8, 'A2C': 8}

    def test_an_algorithm_is_added_with_the_copies_of_the_others(self, monkeypatch, capsys):
        compared(monkeypatch, ['PPO', 'A2C'])
        assert compared(monkeypatch, ['PPO', 'DQN']) == {'PPO': 8, 'DQN': 8}
        assert 'The runs that are there have as many.' in capsys.readouterr().err

    def test_runs_with_fewer_copies_are_not_mixed_in(self, monkeypatch):
        compared(monkeypatch, ['PPO'])
        with pytest.raises(
            ValueError, match="^'here' holds runs of PPO with nenv=1, but all would have 8 now: give nenv=1"
        ):
            compared(monkeypatch, ['PPO', 'A2C'])
        assert compared(monkeypatch, ['PPO', 'A2C'], nenv=1) == {'PPO': 1, 'A2C': 1}

    @pytest.mark.parametrize(
        ('options', 'algs', 'nenv'),
        [
            ('', ['PPO', 'A2C'], None),
            ('--nenv 4', ['PPO', 'A2C'], 4),
            ('--nenv A2C=4', {'PPO': {'alg': 'PPO'}, 'A2C': {'alg': 'A2C', 'nenv': 4}}, None),
            ('--nenv 2 --nenv A2C=4', {'PPO': {'alg': 'PPO'}, 'A2C': {'alg': 'A2C', 'nenv': 4}}, 2),
        ],
    )
    def test_from_the_shell(self, options: str, algs: Any, nenv: int | None, monkeypatch):
        asked: dict[str, Any] = {}
        monkeypatch.setattr(zoo, 'compare', lambda *args, **params: asked.update(params, algs=args[0]), raising=False)
        assert main(f'compare PPO A2C --env CartPole-v1 {options}'.split()) == 0
        assert (asked['algs'], asked['nenv']) == (algs, nenv)

    @pytest.mark.parametrize(
        ('options', 'message'),
        [
            ('--nenv DQN=4', '--nenv DQN=4: DQN is none of PPO, A2C.'),
            ('--nenv 4 --nenv 5', '--nenv is given twice for all'),
            ('--nenv A2C=4 --nenv A2C=5', '--nenv is given twice for A2C'),
            ('--nenv A2C=x', "--nenv: 'x' is not a whole number of at least 1"),
        ],
    )
    def test_nonsense_is_refused(self, options: str, message: str, capsys):
        assert main(f'compare PPO A2C --env CartPole-v1 {options}'.split()) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ('seeds', 'told'), [(2, '2 seeds are few: '), (1, '1 seed is few: '), (5, ''), ([3, 4, 5], '3 seeds')]
)
def test_few_seeds_are_said_before_hours_are_spent(seeds: Any, told: str, monkeypatch, capsys):
    compared(monkeypatch, ['DQN'], seeds=seeds)
    said = capsys.readouterr().err
    assert told in said and ('The same call with 5 seeds adds the missing runs.' in said) == bool(told)


class Slow(gymnasium.Env):
    """Episodes of 50 steps, of which those after the first take long."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        time.sleep(0.02 * (self.steps > 50))
        return np.zeros(1, np.float32), 0.0, False, self.steps % 50 == 0, {}


@pytest.mark.full
def test_seconds_are_those_of_all_steps():
    """Also of those after the last episode that ended."""
    own = {'alg': 'PPO', 'train_steps': 64, 'horizon': 64, 'batch_size': 64, 'epochs': 1, 'net': '4'}
    Path('run').mkdir()
    plans.run_one(Path('run'), own, Slow, find_env_type(Slow), 0, 1)
    result = json.loads(Path('run/result.json').read_text())
    assert result['seconds'] >= max(zoo.open_run('run').episodes['t']) + 14 * 0.02
    assert result['steps_per_second'] == 64 / result['seconds']


@pytest.mark.parametrize('buffer', [True, False])
def test_an_interrupted_run_is_resumed_where_nothing_is_lost(buffer: bool):
    def interrupt(training: Any) -> None:
        if training.steps >= 100:
            raise KeyboardInterrupt

    few = {'train_steps': 200, 'net': '8', 'explore_steps': 10_000, 'verbose': 0, 'log_every': 50}
    with pytest.raises(KeyboardInterrupt):
        zoo.train('DQN', 'CartPole-v1', run_dir='here', callbacks=[interrupt], checkpoint_buffer=buffer, **few)
    Path('here/output.txt').write_text('kept')
    found = plans.resumed_agent(Path('here'))
    if buffer:
        agent, seconds = found
        run = zoo.open_run('here')
        assert agent.steps == 200 and seconds >= max(run.episodes['t'])
        again, seconds = plans.resumed_agent(Path('here'))  # as if it were interrupted in its test
        assert again.steps == 200 and seconds == max(run.episodes['t'])
        assert zoo.open_run('here').progress['step'] == [50, 100, 150, 200]
    else:
        assert found is None and [path.name for path in Path('here').iterdir()] == ['output.txt']


@pytest.mark.full
def test_a_run_that_fails_is_named_when_the_others_have_ended(monkeypatch):
    # An environment that fails in the test after the training of one of the two.
    with pytest.raises(RuntimeError, match=r'1 of 2 runs have failed: bad, seed 0 \(.*cannot.*output.txt'):
        zoo.compare(
            {'bad': {'alg': 'DQN', 'net_list': [{'hidden': [0]}]}, 'good': {'alg': 'DQN', 'net': '8'}},
            'CartPole-v1',
            seeds=1,
            out='here',
            **{name: value for name, value in FEW.items() if name != 'net'},
        )
    assert Path('here/good/seed_0/result.json').exists() and 'good' in Path('here/report.html').read_text()


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'algs': 'PPO'}, 'algs is .PPO.: give names'),
        ({'algs': []}, 'algs is'),
        ({'algs': ['PPO', 'A3D']}, "unknown algorithm 'A3D'"),
        ({'algs': ['DQN', 'DQN']}, 'an algorithm is named twice'),
        ({'algs': {'a b': {'alg': 'DQN'}, 'a-b': {'alg': 'DQN'}}}, 'would be one folder'),
        ({'algs': {'a': {}}}, 'give parameters of zoo.train'),
        ({'seeds': 0}, 'seeds is 0: give how many'),
        ({'seeds': [1, 1]}, 'seeds is'),
        ({'jobs': 0}, 'jobs is 0'),
        ({'gama': 1}, "unknown parameter of DQN 'gama': did you mean 'gamma'"),
        ({'gamma': 3}, 'gamma is 3: give a number from 0 to 1'),
        ({'seed': 3}, 'seed is chosen for each run'),
        ({'env_id': 'Pendulum-v1'}, 'DQN cannot act in Box'),
        ({'env_id': ['CartPole-v1', 'Pendulum-v1']}, 'DQN cannot act in Box'),
        ({'env_id': []}, 'env_id is an empty list: give environments'),
        ({'env_id': ['CartPole-v1', 'CartPole-v1']}, 'the environment CartPole-v1 is named twice'),
        ({'references': {'CartPole-v1': 500}}, 'references normalize scores over several environments'),
        ({'env_id': ['CartPole-v1', 'Acrobot-v1'], 'references': {'Acrobat-v1': 1}}, "did you mean 'Acrobot-v1'"),
        ({'env_id': ['CartPole-v1', 'Acrobot-v1'], 'references': 3}, 'references is 3: give scores by environment'),
        (
            {
                'algs': {'a': {'alg': 'DQN'}, 'b': {'alg': 'DQN', 'env_params': {'max_episode_steps': 10}}},
                'env_id': ['CartPole-v1', 'Acrobot-v1'],
            },
            'normalized by one random score in each, but the env_params',
        ),
        ({'env_id': 'CartPol-v1'}, "did you mean 'CartPole-v1'"),
    ],
)
def test_what_is_refused_before_the_first_run(given: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        zoo.compare(**{'algs': ['DQN'], 'env_id': 'CartPole-v1', **FEW, **given})
    assert not Path('runs').exists()


def test_from_the_shell(capsys, monkeypatch):
    asked: dict[str, Any] = {}
    monkeypatch.setattr(zoo, 'compare', lambda *args, **params: asked.update(params, args=args), raising=False)
    words = 'compare PPO A2C --env CartPole-v1 --seeds 2 --steps 1e3 --set gamma=0.9 --env-set max_episode_steps=9'
    assert main(words.split()) == 0
    assert asked['args'] == (['PPO', 'A2C'], 'CartPole-v1', None)
    assert (asked['seeds'], asked['train_steps'], asked['gamma']) == (2, 1000, 0.9)
    assert asked['env_params'] == {'max_episode_steps': 9}
    several = 'compare PPO A2C --env CartPole-v1 Acrobot-v1 --reference Acrobot-v1=-80 --reference CartPole-v1=5e2'
    for words in (
        several,
        'compare --env CartPole-v1 Acrobot-v1 PPO A2C --reference Acrobot-v1=-80 --reference CartPole-v1=5e2',
        f'{several.replace(" --env", "")} --seeds 5',
        'compare --algo PPO A2C CartPole-v1 Acrobot-v1 --reference Acrobot-v1=-80 --reference CartPole-v1=5e2',
    ):
        assert main(words.split()) == 0
        assert asked['args'] == (['PPO', 'A2C'], ['CartPole-v1', 'Acrobot-v1'], None), words
        assert asked['references'] == {'Acrobot-v1': -80.0, 'CartPole-v1': 500.0}
    monkeypatch.undo()
    for words, message in {
        'PPO CartPole-v1 --reference 500': '--reference 500: give an environment and a score',
        'PPO CartPole-v1 --reference CartPole-v1=x': "'x' is not a number",
        'PPO CartPole-v1 --reference CartPole-v1=5': '--reference normalizes scores over several environments',
        'PPO CartPole-v1 --set references=3': 'it is an option of its own, --reference',
        'PPO CartPole-v1 --env Acrobot-v1 MountainCar-v0': 'is given twice, as CartPole-v1 and as --env',
    }.items():
        assert main(['compare', *words.split()]) == 2
        assert message in capsys.readouterr().err
    assert main(['compare', 'PPO', 'A2D', '--env', 'CartPole-v1']) == 2
    assert "unknown algorithm 'A2D': did you mean 'A2C'?" in capsys.readouterr().err


class TestWorkers:
    @staticmethod
    def tasks(tmp_path: Path, functions: list[Any]) -> list[workers.Task]:
        return [
            workers.Task(str(i), f, (tmp_path / f'{i}.json',), tmp_path / f'{i}.txt') for i, f in enumerate(functions)
        ]

    def test_all_are_done_also_where_one_fails(self, tmp_path: Path):
        def good(path: Path) -> None:
            print('said')
            path.write_text(json.dumps(1))

        def bad(path: Path) -> None:
            raise ValueError('why it failed')

        ended: dict[str, str | None] = {}
        begun: list[str] = []
        tasks = self.tasks(tmp_path, [good, bad, good])
        workers.run(tasks, 2, lambda task: begun.append(task.name), lambda task, why: ended.update({task.name: why}))
        assert begun == ['0', '1', '2'] and ended == {'0': None, '1': 'ValueError: why it failed', '2': None}
        assert (tmp_path / '2.json').exists() and (tmp_path / '0.txt').read_text() == 'said\n'

    def test_one_that_is_killed_says_so_and_interrupts_arrive(self, tmp_path: Path):
        def killed(path: Path) -> None:
            print('what it said before', flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        def interrupted(path: Path) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            path.write_text('not reached')

        ended: dict[str, str | None] = {}
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as behind an & in a script
        try:
            tasks = self.tasks(tmp_path, [killed, interrupted])
            workers.run(tasks, 2, lambda task: None, lambda task, why: ended.update({task.name: why}))
        finally:
            signal.signal(signal.SIGINT, before)
        assert ended['0'] is not None and ended['0'].startswith('its process was killed by SIGKILL')
        assert ended['1'] is not None and not (tmp_path / '1.json').exists()

    def test_an_interrupt_is_handed_on(self, tmp_path: Path):
        def slow(path: Path) -> None:
            import time

            try:
                path.write_text('begun')
                time.sleep(60)
            except KeyboardInterrupt:
                path.write_text('saved')
                raise

        def begun(task: workers.Task) -> None:
            if task.name == '1':
                import time

                until = time.monotonic() + 60
                while not all((tmp_path / f'{i}.json').exists() for i in (0, 1)) and time.monotonic() < until:
                    time.sleep(0.05)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt, match='the same again goes on from here'):
            workers.run(self.tasks(tmp_path, [slow, slow, slow]), 2, begun, lambda task, why: None)
        assert [(tmp_path / f'{i}.json').read_text() for i in (0, 1)] == ['saved', 'saved']
        assert not (tmp_path / '2.json').exists()


def test_a_label_without_a_curve_is_named(tmp_path: Path):
    scores = []
    for seed, steps in enumerate((10, 20)):  # of one episode each, that have no step in common
        folder = tmp_path / f'seed_{seed}'
        folder.mkdir()
        (folder / 'config.json').write_text('{"algorithm": "PPO"}')
        (folder / 'monitor.csv').write_text(f'#{{}}\nr,l,t,step\n1,{steps},0.1,{steps}\n')
        scores.append(results.Score(seed, 1.0, (1.0,), 100.0, 1.0, folder))
    page = report.Comparison(tmp_path, 'CartPole-v1', None, {'a<b': tuple(scores)})._repr_html_()
    assert 'Without a curve, because their runs have no steps in common: a&lt;b.' in page


def test_the_smooth_curve_by_hand(tmp_path: Path):
    def smooth(returns: list[float]) -> list[float]:
        rows = ''.join(f'{value},1,0.1,{step}\n' for step, value in enumerate(returns))
        (tmp_path / 'monitor.csv').write_text(f'#{{}}\nr,l,t,step\n{rows}')
        return Run(tmp_path, {}).smooth_curve[1].tolist()

    assert smooth([3.0, 5.0, 4.0]) == [3.0, 5.0, 4.0]  # of one episode
    assert smooth([0.0, 2.0] * 20)[:4] == [0.0, 1.0, 1.0, 1.0]  # of a twentieth of them, two


def test_other_episodes_are_another_setting(tmp_path: Path):
    def kept(source: Any) -> None:
        results.keep_settings(tmp_path / 'x', {'dataset': source})

    data = zoo.record_episodes(lambda obs: 0, zoo.build_env('CartPole-v1'), 'data.npz', episodes=3, seed=0)
    for same in ('data.npz', Path('data.npz'), data):
        kept(same)
    for other in (data[:2], data[:2].save('other.npz'), Path('other.npz')):
        with pytest.raises(ValueError, match='holds runs with other settings .dataset'):
            kept(other)
