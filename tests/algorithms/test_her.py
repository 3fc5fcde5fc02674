"""``learn_params['her']``: where it is given by default, what is refused, exact resume, and that it learns."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import toys

import zoo
from zoo import algorithms, build_env, call_default_params, load
from zoo.algorithms.base import Algorithm
from zoo.common.training import loops

SMALL = {'hidden': [32], 'activation': 'relu'}
FEW = {'train_steps': 200, 'batch_size': 16, 'explore_steps': 40, 'buffer_size': 500, 'update_every': 4, 'roles': None}
#: Those with a replay buffer; R2D2 has a memory, with which it does not go.
OFF_POLICY = [
    name for name in algorithms.NAMES if getattr(algorithms, name).loop.run is loops.off_policy.run and name != 'R2D2'
]


class Reach(gymnasium.Wrapper):
    """The bits as an arm of two joints would have them: the bit of the largest entry of an action is flipped."""

    def __init__(self, n: int = 5) -> None:
        super().__init__(toys.BitFlip(n))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (n,), np.float32)

    def step(self, action: Any) -> Any:
        return self.env.step(int(np.argmax(action)))


def make_env(name: str) -> Any:
    return partial(toys.BitFlip, 5) if 'Discrete' in getattr(algorithms, name).acts_in else Reach


def agent_for(name: str, env: Any, **params: Any) -> Algorithm:
    single = build_env(env)
    cls = getattr(algorithms, name)
    specs = [{**SMALL, 'seed': i} for i in range(len(cls.network_names))]
    return cls(single.observation_space, single.action_space, net_list=specs, **params)


# Given and refused


@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.parametrize('name', OFF_POLICY)
def test_goal_environments_have_it_by_default(name: str, nenv: int):
    _, learn_params = call_default_params(build_env(make_env(name), nenv=nenv), alg=name)
    assert learn_params['her'] == {'strategy': 'future', 'k': 4}


@pytest.mark.parametrize('name', ['BC', 'MARWIL'])
def test_imitation_does_not_have_it_by_default(name: str):
    _, learn_params = call_default_params(build_env(Reach), alg=name)
    assert learn_params['her'] is None


def test_returns_to_the_end_refuse_it():
    data = zoo.record_episodes(lambda obs: np.ones(5, np.float32), build_env(Reach, seed=0), None, 2, seed=0)
    agent = agent_for('MARWIL', Reach)
    with pytest.raises(ValueError, match='but MARWIL learns from returns to the end: her=None'):
        agent.learn(build_env(Reach), dataset=data, train_updates=2, batch_size=4, her={}, run_dir=False)


def test_others_do_not():
    _, learn_params = call_default_params(build_env('CartPole-v1'), alg='DQN')
    assert learn_params['her'] is None
    assert 'her' not in call_default_params(build_env(toys.BitFlip), alg='PPO')[1]


@pytest.mark.parametrize(
    ('her', 'sentence'),
    [
        ({'strateggy': 'future'}, "^unknown key of her 'strateggy': did you mean 'strategy'. Known: strategy, k.$"),
        (
            {'strategy': 'futur'},
            "^unknown strategy of her 'futur': did you mean 'future'. Known: future, final, episode",
        ),
        ({'k': 0}, r"^her\['k'\] is 0: give a whole number of at least 1.$"),
        ({'strategy': 3}, r"^her\['strategy'\] is 3: give 'future', 'final' or 'episode'.$"),
        (True, r"^her is True: give dict\(strategy='future' or 'final' or 'episode', k=…\) or None.$"),
        ('future', "^her is 'future': give dict"),
    ],
)
@pytest.mark.parametrize('mode', ['train', 'test'])
def test_what_it_is_given_is_checked(her: Any, sentence: str, mode: str):
    env = build_env(toys.BitFlip)
    with pytest.raises(ValueError, match=sentence):
        agent_for('DQN', toys.BitFlip).learn(env, mode, her=her)


def test_an_environment_without_goals_is_refused_before_anything_is_written(tmp_path: Path):
    agent = agent_for('DQN', 'CartPole-v1')
    sentence = '^her needs a goal environment, but CartPole-v1 is none .its observations are Box.*: leave it out'
    with pytest.raises(ValueError, match=sentence):
        agent.learn(build_env('CartPole-v1'), run_dir=tmp_path / 'run', her={'k': 2}, **FEW)
    assert not (tmp_path / 'run').exists()
    agent.learn(build_env('CartPole-v1'), 'test', her={'k': 2}, test_episodes=1)
    with pytest.raises(ValueError, match="unknown parameter of PPO's learn 'her'"):
        agent_for('PPO', toys.BitFlip).learn(build_env(toys.BitFlip), her={'k': 2})


# Training


@pytest.mark.full(but='DQN-2')
@pytest.mark.parametrize(
    ('name', 'nenv'),
    [
        *(
            pytest.param(name, 1, marks=[] if name in (*toys.KINDS, 'R2D2') else pytest.mark.matrix)
            for name in OFF_POLICY
        ),
        ('DQN', 2),
        pytest.param('TD3', 2, marks=pytest.mark.matrix),
    ],
)
@pytest.mark.usefixtures('plain_graphs')
def test_every_algorithm_off_policy_trains_with_it(name: str, nenv: int, monkeypatch: pytest.MonkeyPatch):
    agent = agent_for(name, make_env(name))
    seen: list[Any] = []
    update_on = agent.update_on
    monkeypatch.setattr(agent, 'update_on', lambda batches: seen.append(batches) or update_on(batches))
    env = build_env(make_env(name), nenv=nenv)
    result = agent.learn(env, seed=0, run_dir=False, her={}, **FEW)
    assert np.isfinite(list(result.losses.values())).all()
    reached = np.concatenate([batch.reward.ravel() for batch in seen]) == 0
    assert reached.mean() > 0.2, 'by chance it would be a few in a hundred'
    seen.clear()
    agent.replay = None
    agent.learn(env, seed=0, run_dir=False, her=None, **FEW)
    assert (np.concatenate([batch.reward.ravel() for batch in seen]) == 0).mean() < 0.1


@pytest.mark.usefixtures('plain_graphs')
def test_it_can_be_turned_on_later():
    env = build_env(toys.BitFlip)
    agent = agent_for('DQN', toys.BitFlip)
    agent.learn(env, seed=0, run_dir=False, **FEW)
    agent.learn(env, seed=0, run_dir=False, her={'strategy': 'final'}, **FEW)
    assert agent.replay is not None and agent.replay.added == 400


@pytest.mark.full
@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.usefixtures('plain_graphs')
def test_a_resumed_training_is_the_uninterrupted_one(nenv: int, tmp_path: Path):
    params = FEW | {'train_steps': 400, 'checkpoint_every': 200, 'exact_resume': True, 'buffer_size': 150}
    params |= {'her': {'strategy': 'future', 'k': 4}, 'verbose': 0}
    make = partial(toys.BitFlip, 5)
    whole = agent_for('DQN', make)
    whole.learn(build_env(make, nenv=nenv), seed=3, run_dir=tmp_path / 'whole', **params)
    paths = sorted((tmp_path / 'whole' / 'checkpoints').iterdir())
    assert [path.name for path in paths] == ['000000200', '000000400']
    resumed = load(paths[0])
    resumed.learn(build_env(make, nenv=nenv), run_dir=tmp_path / 'resumed', resume=True, **params)
    assert resumed.steps == whole.steps == 400 and resumed.updates == whole.updates
    for name, array in whole.state().items():
        np.testing.assert_array_equal(resumed.state()[name], array, err_msg=name)
    other = load(paths[0])
    other.learn(build_env(make, nenv=nenv), run_dir=False, resume=True, **params | {'her': None})
    assert any((other.state()[name] != array).any() for name, array in whole.state().items()), 'or nothing was told'


def solved(her: dict[str, Any] | None, seed: int = 0) -> float:
    make = partial(toys.BitFlip, 8)
    env, test = build_env(make, nenv=4, seed=seed), build_env(make, seed=1000)
    agent = algorithms.DQN(
        test.observation_space,
        test.action_space,
        net_list=[{'hidden': [128], 'activation': 'relu', 'seed': seed}],
        optimizers_list=[{'learning_rate': 1e-3}],
        gamma=0.95,
        epsilon=0.2,
        target_update_every=100,
    )
    learn_params = {'train_steps': 5000, 'batch_size': 128, 'explore_steps': 200, 'buffer_size': 20_000}
    agent.learn(env, seed=seed, run_dir=False, update_every=32, updates=16, her=her, **learn_params)
    tested = agent.learn(test, 'test', test_episodes=50, seed=1)
    return statistics.mean(bool(success) for success in tested.successes)


@pytest.mark.full
@pytest.mark.parametrize(
    'strategy', ['future', *(pytest.param(strategy, marks=pytest.mark.matrix) for strategy in ('final', 'episode'))]
)
def test_bits_are_flipped_with_it(strategy: str):
    """Andrychowicz et al. 2017, figure 1."""
    assert solved({'strategy': strategy, 'k': 4}) > 0.9


@pytest.mark.full
def test_bits_are_not_flipped_without_it():
    assert solved(None) < 0.2
