"""``zoo.tune``: what is searched, and that a study goes on."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import zoo
from zoo import algorithms
from zoo.cli import main
from zoo.cli.values import parse_value
from zoo.common.schedules import Linear
from zoo.common.tools.params import Param, Range, above, at_least, between
from zoo.common.tools.processes import alone_in
from zoo.experiments import search_space, tune
from zoo.experiments.search_space import Choice, choice_for
from zoo.experiments.train import known_params

optuna = pytest.importorskip('optuna')


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


def number(limits: Range, kind: str = 'number', **more: Any) -> Param:
    return Param('x', None, kind, range=limits, **more)


@pytest.mark.parametrize(
    ('param', 'default', 'choice'),
    [
        (number(above(0)), 1e-3, Choice(1e-4, 1e-2, scale='log')),
        (number(above(0), scheduled=True), Linear(1e-3), Choice(1e-4, 1e-2, scale='log', schedule=(0.0, 1.0))),
        (number(between(0, 1)), 0.99, Choice(0.9, 0.999, scale='log1m')),
        (number(between(0, 1)), 0.9, Choice(0.5, 0.99, scale='log1m')),
        (number(between(0, 1)), 0.4, Choice(0.1, 1.0)),
        (number(Range(0, 1, open_low=True)), 0.005, Choice(0.0005, 0.05, scale='log')),
        (number(at_least(0)), 0.0, Choice(1e-8, 0.1, scale='log')),
        (number(at_least(1), 'whole'), 64, Choice(16, 256, True, 'log')),
        (number(at_least(2), 'whole'), 4, Choice(2, 16, True, 'log')),
        (number(Range(), 'flag'), True, Choice(values=(False, True))),
        (number(Range(), 'choice', choices=('a', 'b')), 'a', Choice(values=('a', 'b'))),
        (number(above(0)), None, None),
        (number(Range(), 'any'), None, None),
    ],
)
def test_what_is_searched_by_hand(param: Param, default: Any, choice: Choice | None):
    found = choice_for(param, default)
    if choice is None:
        assert found is None
        return
    assert found is not None
    assert (found.whole, found.scale, found.values, found.schedule) == (
        choice.whole,
        choice.scale,
        choice.values,
        choice.schedule,
    )
    assert (found.low, found.high) == pytest.approx((choice.low, choice.high))


class Ends:
    """A trial that takes an end of every range."""

    def __init__(self, high: bool) -> None:
        self.high = high

    def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> float:
        assert low < high and (low > 0 or not log)
        return high if self.high else low

    def suggest_int(self, name: str, low: int, high: int, log: bool = False) -> int:
        return int(self.suggest_float(name, low, high, log))

    def suggest_categorical(self, name: str, values: list[Any]) -> Any:
        return values[-1 if self.high else 0]


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_the_ends_of_every_range_are_allowed(name: str):
    env_id = 'Pendulum-v1' if 'Box' in getattr(algorithms, name).acts_in else 'CartPole-v1'
    choices, environment, steps = search_space.space_of(name, env_id, 'classic_control', None, {'nenv': 1}, None)
    known = known_params(getattr(algorithms, name))
    wanted = {'learning_rate', 'net'} | ({'gamma'} & known.keys())
    assert environment == env_id and steps >= 1000 and wanted <= choices.keys()
    for parameter, choice in choices.items():
        for high in (False, True):
            value = choice.suggest(Ends(high), parameter)
            if parameter in known:
                known[parameter].check(value)


#: Trials that only explore, so that nothing is compiled.
FEW: dict[str, Any] = {
    'train_steps': 200,
    'test_episodes': 1,
    'explore_steps': 10_000,
    'search': ['gamma', 'learning_rate'],
    'progress': False,
    'net': '8',
}


@pytest.mark.full
def test_a_study_goes_on(capsys):
    first = zoo.tune('DQN', 'CartPole-v1', trials=2, jobs=1, **FEW)
    assert first.folder == Path('runs/tune_DQN_CartPole-v1') and len(first.trials) == 2
    study = tune.open_study(first.folder, 'random', 'none', 0)
    study.ask()  # as of a trial that was killed
    more = zoo.tune('DQN', 'CartPole-v1', trials=3, **FEW | {'progress': True})
    assert more.trials[:2] == first.trials and len(more.trials) == 3
    assert '2 of 3 trials are there already.' in capsys.readouterr().err
    assert {trial.state for trial in more.trials} <= {'complete', 'pruned'}
    assert len({trial.params['gamma'] for trial in more.trials}) == 3

    best = more.best
    assert best.score == max(trial.score for trial in more.trials if trial.state == 'complete')
    found = json.loads((more.folder / 'best.json').read_text())
    assert found['trial'] == best.number and found['params']['gamma'] == more.params['gamma']
    assert len((more.folder / 'trials.csv').read_text().splitlines()) == 4
    assert repr(more).startswith('DQN on CartPole-v1: 3 trials')
    run = zoo.open_run(more.folder / f'trial_{best.number:04d}')
    assert run.config['params']['gamma'] == more.params['gamma']
    schedule = run.config['optimizers_list'][0]['learning_rate']
    assert Linear(schedule['start'], schedule['end'], schedule['until']) == more.params['learning_rate']
    assert zoo.tune('DQN', 'CartPole-v1', trials=3, **FEW).trials == more.trials  # nothing is left to do

    with pytest.raises(ValueError, match='holds a study with other settings'):
        zoo.tune('DQN', 'CartPole-v1', trials=3, **FEW | {'search': ['gamma']})
    with pytest.raises(ValueError, match=r'\(test_episodes 1 there and 2 now\)'):
        zoo.tune('DQN', 'CartPole-v1', trials=3, **FEW | {'test_episodes': 2})
    with alone_in(more.folder), pytest.raises(ValueError, match='is in use'):
        zoo.tune('DQN', 'CartPole-v1', trials=3, **FEW)
    # The order in which parameters were given is none of their values, and a function is what it is called.
    few = dict(reversed(FEW.items()))
    assert zoo.tune('DQN', 'CartPole-v1', trials=3, **few).trials == more.trials


def test_no_two_trials_have_one_seed_also_after_an_interrupt(monkeypatch):
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(
        tune.workers, 'run', lambda tasks, *_: asked.extend((task.name, task.args[-1]) for task in tasks)
    )
    Path('here').mkdir()
    study = tune.open_study(Path('here'), 'random', 'none', 0)
    study.ask()  # interrupted
    second = study.ask()
    second.set_user_attr('params', '{}')
    study.tell(second, 1.0)
    # And where no process leaves a score, that is no success.
    with pytest.raises(RuntimeError, match='2 of 3 trials have ended without a score or an error'):
        zoo.tune('DQN', 'CartPole-v1', trials=3, out='here', seed=7, **FEW)
    assert asked == [('trial 2 of 3', 9), ('trial 3 of 3', 10)]


def test_pruners_compare_tests_by_their_number(monkeypatch):
    reported: list[int] = []
    monkeypatch.setattr(tune.Evaluate, '__call__', lambda self, training: self.returns.append(1.0))

    def steps_of(horizon: int) -> list[int]:
        reported.clear()
        trial = SimpleNamespace(report=lambda value, step: reported.append(step), should_prune=lambda: False)
        report = tune.ReportToStudy(trial, 2000, 1)
        for due in (2000, 4000, 6000, 8000, 10_000):
            steps = -(-due // horizon) * horizon
            report(SimpleNamespace(steps=steps, done=steps >= 10_000))
        return list(reported)

    assert steps_of(256) == steps_of(320) == [1, 2, 3, 4, 5]


class FakeTrial:
    """Keeps what is reported, and prunes at some steps."""

    number = 3

    def __init__(self, prune_at: tuple[int, ...] = ()) -> None:
        self.prune_at, self.reports, self.user_attrs = prune_at, dict[int, float](), dict[str, Any]()

    def report(self, value: float, step: int) -> None:
        self.reports[step] = value

    def should_prune(self) -> bool:
        return max(self.reports) in self.prune_at

    def set_user_attr(self, name: str, value: Any) -> None:
        self.user_attrs[name] = value


def trial_of(
    monkeypatch: pytest.MonkeyPatch, trial: FakeTrial, seeds: int, learns: bool = True
) -> tuple[Any, list[tuple[int, str]]]:
    """Do a trial whose tests return the seed plus the number of the test; return its value, and what was trained."""
    trained: list[tuple[int, str]] = []

    def train(alg: str, env_id: Any, env_type: str, *, run_dir: Path, callbacks: list[Any], **params: Any) -> Any:
        trained.append((params['seed'], os.fspath(run_dir)))
        for step in (10, 20, 30, 40, 50):
            callbacks[0].value = params['seed'] + step / 10
            if callbacks[0](SimpleNamespace(steps=step, done=step == 50)) is False:
                break
        return None, SimpleNamespace(losses={'q': 1.0} if learns else {})

    found: list[Any] = []

    def optimize(objective: Any, n_trials: int, catch: Any) -> None:
        try:
            found.append(objective(trial))
        except optuna.exceptions.TrialPruned:
            found.append('pruned')

    monkeypatch.setattr(tune.Evaluate, '__call__', lambda self, training: self.returns.append(self.value))
    monkeypatch.setattr(tune, 'train', train)
    monkeypatch.setattr(tune, 'open_study', lambda *_: SimpleNamespace(optimize=optimize))
    fixed = {'train_steps': 50, 'seed': 7, 'nenv': 1}
    tune._work(Path('x'), 'DQN', 'CartPole-v1', 'classic_control', {}, fixed, seeds, 1, 'tpe', 'median', 0)
    return found[0], trained


class TestSeeds:
    def test_the_score_is_the_mean_over_the_seeds(self, monkeypatch):
        trial = FakeTrial()
        value, trained = trial_of(monkeypatch, trial, 3)
        # The last test of each seed has returned 12, 13 and 14.
        assert value == 13.0 and json.loads(trial.user_attrs['scores']) == {'7': 12.0, '8': 13.0, '9': 14.0}
        assert trained == [(7, 'x/trial_0003/seed_7'), (8, 'x/trial_0003/seed_8'), (9, 'x/trial_0003/seed_9')]
        # The tests of the second seed are averaged with the score of the first.
        assert list(trial.reports) == list(range(1, 16))
        assert [trial.reports[step] for step in (1, 5, 6, 10, 11)] == [
            8.0,
            12.0,
            (12 + 9) / 2,
            12.5,
            (12 + 13 + 10) / 3,
        ]

    def test_one_seed_is_as_it_was(self, monkeypatch):
        trial = FakeTrial()
        assert trial_of(monkeypatch, trial, 1) == (12.0, [(7, 'x/trial_0003')])
        assert trial.reports == {1: 8.0, 2: 9.0, 3: 10.0, 4: 11.0, 5: 12.0}

    @pytest.mark.parametrize(
        ('step', 'seeds', 'scores'), [(2, [7], None), (5, [7], {'7': 12.0}), (7, [7, 8], {'7': 12.0})]
    )
    def test_it_is_pruned_at_any_test(self, step: int, seeds: list[int], scores: Any, monkeypatch):
        trial = FakeTrial((step,))
        value, trained = trial_of(monkeypatch, trial, 3)
        assert value == 'pruned' and [seed for seed, _ in trained] == seeds and max(trial.reports) == step
        assert json.loads(trial.user_attrs.get('scores', 'null')) == scores

    def test_it_is_not_pruned_when_all_is_done(self, monkeypatch):
        assert trial_of(monkeypatch, FakeTrial((15,)), 3)[0] == 13.0

    def test_a_trial_without_an_update_says_so(self, monkeypatch, tmp_path):
        for learns in (True, False):
            trial = FakeTrial()
            trial_of(monkeypatch, trial, 1, learns)
            assert ('unlearned' in trial.user_attrs) is not learns
        made = tune.Tuning(tmp_path, 'DQN', 'CartPole-v1', (tune.Trial(0, 'complete', 2.0, {}, learned=False),))
        assert 'trial_0000 (nothing was learned: it ended before the first update)' in repr(made)

    def test_what_is_told(self, tmp_path):
        trials = (
            tune.Trial(0, 'complete', 2.0, {'gamma': 0.9}, {3: 1.0, 4: 3.0}),
            tune.Trial(1, 'pruned', 1.5, {'gamma': 0.8}, {3: 1.5}),
        )
        made = tune.Tuning(tmp_path, 'DQN', 'CartPole-v1', trials)
        assert '2  trial_0000 [1, 3]: gamma=0.9' in repr(made) and 'trial_0001 (pruned): gamma=0.8' in repr(made)
        made.write()
        assert (tmp_path / 'trials.csv').read_text().splitlines() == [
            'trial,state,score,seed 3,seed 4,gamma', '0,complete,2.0,1.0,3.0,0.9', '1,pruned,1.5,1.5,,0.8',
        ]  # fmt: skip
        assert json.loads((tmp_path / 'best.json').read_text())['scores'] == {'3': 1.0, '4': 3.0}

    @pytest.mark.full
    def test_in_a_study(self, capsys):
        made = zoo.tune('DQN', 'CartPole-v1', trials=2, seeds=2, seed=5, jobs=2, **FEW | {'progress': True})
        said = capsys.readouterr().err
        assert 'Each trial is 2 trainings, with the seeds 5 to 6; its score is their mean.' in said
        for trial in made.trials:
            assert trial.scores.keys() == {5, 6} and trial.score == sum(trial.scores.values()) / 2
            for seed in (5, 6):
                run = zoo.open_run(made.folder / f'trial_{trial.number:04d}' / f'seed_{seed}')
                assert run.seed == seed and run.config['params']['gamma'] == trial.params['gamma']
        assert zoo.tune('DQN', 'CartPole-v1', trials=2, seeds=2, seed=5, **FEW).trials == made.trials
        with pytest.raises(ValueError, match=r'other settings \(seeds 2 there and 3 now\)'):
            zoo.tune('DQN', 'CartPole-v1', trials=2, seeds=3, seed=5, **FEW)
        with pytest.raises(ValueError, match='other settings'):
            zoo.tune('DQN', 'CartPole-v1', trials=2, seed=5, **FEW)


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'alg': 'DQM'}, "unknown algorithm 'DQM': did you mean 'DQN'"),
        ({'trials': 0}, 'trials is 0'),
        ({'sampler': 'tpee'}, "unknown sampler 'tpee': did you mean 'tpe'"),
        ({'pruner': 'medium'}, "unknown pruner 'medium': did you mean 'median'"),
        ({'search': ['lr']}, "unknown parameter 'lr' to search: it is called 'learning_rate' here"),
        ({'search': ['n_steps']}, "unknown parameter of DQN to search 'n_steps': it is called"),
        ({'search': ['gama']}, "unknown parameter of DQN to search 'gama': did you mean 'gamma'"),
        ({'search': 'gamma'}, 'search is .gamma.: give names'),
        ({'search': {'gamma': 3}}, 'search: gamma is 3: give a list of values, or a pair of bounds'),
        ({'search': {'gamma': (0.9, 0.5)}}, 'the first of two bounds is the lower one'),
        ({'search': {'gamma': [0.9, 2]}}, 'gamma is 2: give a number from 0 to 1'),
        ({'search': ['log_every']}, 'log_every has no range around its default None'),
        ({'search': ['gamma'], 'gamma': 0.9}, 'gamma is searched and fixed at 0.9'),
        ({'gama': 1}, "unknown parameter of DQN 'gama': did you mean 'gamma'"),
        ({'run_dir': 'x'}, 'run_dir is chosen for each trial'),
        ({'seeds': 0}, 'seeds is 0'),
        ({'env_id': 'Pendulum-v1'}, 'DQN cannot act in Box'),
    ],
)
def test_what_is_refused_before_the_first_trial(given: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        zoo.tune(**{'alg': 'DQN', 'env_id': 'CartPole-v1', **FEW, **given})
    assert not Path('runs').exists()


def test_without_optuna(monkeypatch):
    monkeypatch.setitem(__import__('sys').modules, 'optuna', None)
    with pytest.raises(ImportError, match=r"pip install 'zoo-rl\[tune\]'"):
        zoo.tune('DQN', 'CartPole-v1')


def test_from_the_shell(capsys, monkeypatch):
    asked: dict[str, Any] = {}

    def answer(*args: Any, **params: Any) -> Any:
        asked.update(params, args=args)
        trial = tune.Trial(0, 'complete', 1.0, {'gamma': 0.9, 'learning_rate': Linear(0.1)})
        return tune.Tuning(Path('x'), 'TD3', 'Pendulum-v1', (trial,))

    monkeypatch.setattr(zoo, 'tune', answer, raising=False)
    words = (
        'tune TD3 --env Pendulum-v1 --trials 4 --seeds 3 --search gamma --search tau=(0.001,0.1) --set policy_delay=1'
    )
    assert main(words.split()) == 0
    assert asked['args'] == ('TD3', 'Pendulum-v1', None) and asked['search'] == {'gamma': None, 'tau': (0.001, 0.1)}
    assert (asked['trials'], asked['seeds'], asked['policy_delay']) == (4, 3, 1)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith('zoo train TD3 Pendulum-v1 --set policy_delay=1 --set gamma=0.9 --set ')
    more = "--type classic_control --steps 500 --nenv 4 --seed 3 --env-set 'max_episode_steps=50'"
    assert main(shlex.split(f'tune TD3 --env Pendulum-v1 {more}')) == 0
    last = capsys.readouterr().out.splitlines()[-1]  # the same settings as those of the trials
    assert (
        'Pendulum-v1 --type classic_control --steps 500 --nenv 4 --seed 3 --env-set max_episode_steps=50 --set' in last
    )
    assert parse_value(last.rpartition('learning_rate=')[2].rstrip("'")) == Linear(0.1)


def test_rollouts_are_short_beside_a_trial():
    """A training ends with a whole rollout: with long ones the trials would have other lengths."""
    found, _, steps = search_space.space_of('PPO', 'CartPole-v1', 'classic_control', ['horizon'], {'nenv': 8}, 4_000)
    assert steps == 4_000 and (found['horizon'].low, found['horizon'].high) == (8, 50)
    long, _, _ = search_space.space_of('PPO', 'CartPole-v1', 'classic_control', ['horizon'], {'nenv': 8}, 10**7)
    assert long['horizon'].low < long['horizon'].high
    asked, _, _ = search_space.space_of(
        'PPO', 'CartPole-v1', 'classic_control', {'horizon': (100, 900)}, {'nenv': 8}, 4_000
    )
    assert (asked['horizon'].low, asked['horizon'].high) == (100, 900)
