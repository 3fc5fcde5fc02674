"""The mean of the weights: what it is, who has it, and that training does not."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zoo
from zoo import build_env
from zoo.common.training.average import SAMPLES, Average
from zoo.common.training.training import Training

TINY = {'hidden': [8]}
STEPS = {'explore_steps': 100, 'batch_size': 16, 'update_every': 8, 'updates': 2}
LEARN: dict[str, dict[str, Any]] = {
    'DQN': STEPS,
    'CrossQ': STEPS,
    'PPO': {'horizon': 32, 'epochs': 2, 'batch_size': 16},
    'ES': {'train_steps': 6000},
}
ENV_IDS = {'CrossQ': 'Pendulum-v1'}


class Weights:
    """An agent that has a single weight."""

    def __init__(self) -> None:
        self.learned: dict[str, np.ndarray] | None = None
        self.steps = 0
        self.value = np.zeros(1)

    def network_weights(self) -> dict[str, np.ndarray]:
        return {'w': self.value.copy()}

    def set_network_weights(self, weights: dict[str, np.ndarray]) -> None:
        self.value = weights['w'].copy()


def mean_of(values: list[tuple[int, float]], window: float, train_steps: int) -> float:
    """Return the mean where the weight has these values after these steps."""
    agent: Any = Weights()
    average = Average(agent, window, train_steps, 0)
    for steps, value in values:
        agent.value = np.array([value], np.float64)
        average.stepped(steps)
    average.show()
    assert agent.learned is not None and agent.learned['w'] == values[-1][1]
    return float(agent.value[0])


def agent_for(name: str, seed: int = 1) -> Any:
    env = build_env(ENV_IDS.get(name, 'CartPole-v1'))
    cls = getattr(zoo.algorithms, name)
    specs = [TINY | {'seed': seed + i} for i in range(len(cls.network_names))]
    return cls(env.observation_space, env.action_space, net_list=specs)


def learn(agent: Any, name: str, **params: Any) -> Any:
    env = build_env(ENV_IDS.get(name, 'CartPole-v1'))
    params = {'train_steps': 1200, 'seed': 3, 'run_dir': False, 'verbose': 0} | LEARN[name] | params
    return agent.learn(env, 'train', **params)


def different(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> list[str]:
    assert one.keys() == two.keys()
    return [name for name in one if not np.array_equal(one[name], two[name])]


def test_after_one_window_the_weights_before_it_count_for_one_part_in_e():
    rising = [(step, 0.0 if step <= 8000 else 1.0) for step in range(0, 10_001, 5)]
    assert mean_of(rising, 0.2, 10_000) == pytest.approx(1 - (1 - 1 / SAMPLES) ** SAMPLES)


def test_in_the_first_window_all_weights_count_equally():
    samples = [math.ceil(25 * k / 10) * 10 for k in range(1, 41)]  # the first step after each fortieth of the window
    assert mean_of([(step, step) for step in range(0, 1001, 10)], 1.0, 1000) == pytest.approx(np.mean(samples))


@pytest.mark.parametrize('apart', [1000, 300])
def test_rare_updates_reach_back_as_far_as_frequent_ones(apart: int):
    rare = [(step, 0.0 if step <= 6000 else 1.0) for step in range(0, 9001, apart)]
    often = [(step, 0.0 if step <= 6000 else 1.0) for step in range(0, 9001, 5)]
    # A rare sample stands for all steps since the one before.
    assert mean_of(rare, 0.1, 10_000) == pytest.approx(mean_of(often, 0.1, 10_000), abs=0.01)


@pytest.mark.parametrize('name', LEARN)
def test_training_goes_on_with_its_own_weights(name: str):
    without, agent = agent_for(name), agent_for(name)
    learn(without, name)
    learn(agent, name, average_window=0.3, callbacks=[lambda training: None])
    assert without.learned is None
    assert different(agent.learned, without.network_weights()) == []
    assert different(agent.network_weights(), agent.learned)


def test_callbacks_and_files_have_the_mean(tmp_path: Path):
    seen: list[dict[str, np.ndarray]] = []

    def note(training: Training) -> None:
        training.agent.save(tmp_path / f'{len(seen)}')
        seen.append(training.agent.network_weights())

    note.every = 300  # type: ignore[attr-defined]
    agent = agent_for('DQN')
    learn(agent, 'DQN', average_window=0.3, callbacks=[note], run_dir=tmp_path / 'run')
    assert len(seen) == 4
    assert different(seen[-1], agent.network_weights()) == []
    assert different(seen[1], seen[2])
    for path, weights in ((tmp_path / '2', seen[2]), (tmp_path / 'run', seen[3])):
        loaded = zoo.load(path)
        assert different(loaded.network_weights(), weights) == []
        assert different(loaded.learned, loaded.network_weights())
    obs = np.array([0.1, 0.2, -0.1, 0.3], np.float32)
    raw = zoo.load(tmp_path / '2')
    raw.set_network_weights(raw.learned)
    acting = [float(np.ravel(x.behavior.forward(obs[None]))[0]) for x in (zoo.load(tmp_path / '2'), raw)]
    assert acting[0] != acting[1], 'acting takes the mean too'


def test_before_the_first_sample_there_is_no_mean():
    began, seen = agent_for('PPO').network_weights(), []

    def stop(training: Training) -> bool:
        seen.append(training.agent.network_weights())
        return training.steps < 64

    stop.every = 32  # type: ignore[attr-defined]
    agent = agent_for('PPO')
    learn(agent, 'PPO', train_steps=100_000, average_window=0.5, callbacks=[stop])  # a sample is due after 1,250 steps
    assert agent.learned is None
    assert all(different(weights, began) for weights in seen)
    assert different(agent.network_weights(), began) and different(seen[-1], agent.network_weights()) == []


def test_the_next_training_begins_with_the_mean():
    agent = agent_for('DQN')
    learn(agent, 'DQN', average_window=0.3)
    mean = agent.network_weights()
    learn(agent, 'DQN', train_steps=1)  # no update
    assert agent.learned is None
    assert different(agent.network_weights(), mean) == []


def test_a_training_that_is_refused_takes_nothing():
    agent = agent_for('DQN')
    learn(agent, 'DQN', average_window=0.3)
    held = agent.learned
    with pytest.raises(ValueError, match='buffer_size'):
        learn(agent, 'DQN', buffer_size=8)
    assert agent.learned is held


def test_a_callback_may_not_change_weights_that_it_does_not_have():
    def change(training: Training) -> None:
        weights = training.agent.network_weights()
        training.agent.set_network_weights({name: value + 1 for name, value in weights.items()})

    with pytest.raises(ValueError, match='^a callback has changed the weights, .* give average_window=0'):
        learn(agent_for('PPO'), 'PPO', average_window=0.3, callbacks=[change])
    learn(agent_for('PPO'), 'PPO', callbacks=[change])


def test_a_callback_that_restores_an_earlier_state_is_refused_in_the_same_words():
    earlier = agent_for('PPO', seed=7).state()
    with pytest.raises(ValueError, match='^a callback has changed the weights, .* give average_window=0'):
        learn(
            agent_for('PPO'),
            'PPO',
            average_window=0.3,
            callbacks=[lambda training: training.agent.restore_state(earlier)],
        )


def test_an_interrupted_training_leaves_the_mean_too():
    def interrupt(training: Training) -> None:
        if training.steps > 600:
            raise KeyboardInterrupt

    agent = agent_for('PPO')
    with pytest.raises(KeyboardInterrupt):
        learn(agent, 'PPO', average_window=0.3, callbacks=[interrupt])
    assert different(agent.network_weights(), agent.learned)


def test_a_copy_has_both():
    agent = agent_for('PPO')
    learn(agent, 'PPO', average_window=0.3)
    twin = copy.deepcopy(agent)
    assert different(twin.network_weights(), agent.network_weights()) == []
    assert different(twin.learned, agent.learned) == []


def test_learner_0_has_the_mean_with_roles():
    agent = agent_for('PPO')
    learn(agent, 'PPO', average_window=0.3, roles={'actors': 1})
    assert different(agent.network_weights(), agent.learned)


def test_a_window_is_a_part_of_the_training():
    with pytest.raises(ValueError, match='average_window is 2'):
        learn(agent_for('PPO'), 'PPO', average_window=2)


def test_a_training_that_fails_before_its_first_step_leaves_the_agent_its_mean(tmp_path: Path):
    env = build_env('CartPole-v1')
    params = {'horizon': 32, 'epochs': 2, 'batch_size': 16, 'average_window': 0.5, 'run_dir': False, 'verbose': 0}
    agent = zoo.algorithms.PPO(env.observation_space, env.action_space, net_list=[TINY] * 2)
    agent.learn(env, train_steps=128, seed=0, **params)
    agent.save(tmp_path / 'saved')
    agent = zoo.load(tmp_path / 'saved')
    mean, learned = agent.network_weights(), dict(agent.learned)
    agent.loop_state = {'steps': 128, 'train_steps': 128}

    class Refused:
        every = None

        def begin(self, training: Any) -> None:
            raise ValueError('not today')

        def __call__(self, training: Any) -> None:
            raise AssertionError

    with pytest.raises(ValueError, match='not today'):
        agent.learn(env, resume=True, train_steps=256, callbacks=[Refused()], **params)
    for name, value in mean.items():
        np.testing.assert_array_equal(value, agent.network_weights()[name])
        np.testing.assert_array_equal(learned[name], agent.learned[name])
