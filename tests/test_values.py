"""Values of the wrong kind in what users call: one sentence each, in place of Python's own error."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import zoo
from zoo import algorithms, build_env, call_default_params
from zoo.common.tools.errors import UserError


@cache
def cartpole(**params: Any) -> Any:
    return build_env('CartPole-v1', **params)


@cache
def agent() -> Any:
    env = cartpole()
    return algorithms.DQN(env.observation_space, env.action_space, net_list=[{'hidden': [4]}])


def drawn() -> Any:
    return cartpole(render_mode='rgb_array')


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda: agent().save(5), r'^path, the folder to save in, is 5: give a path\.$'),
        (lambda: agent().save(''), r"^path, the folder to save in, is '': give a path\.$"),
        (lambda: zoo.load(5), r'^a saved agent is given by the path of its folder, or by its name, not by 5\.$'),
        (lambda: zoo.list_runs(5), r'^folder is 5: give a path\.$'),
        (lambda: zoo.open_run(5), r'^a run is given by the path of its folder or by its name in runs, not by 5\.$'),
        (lambda: zoo.plot_runs(5), r'^runs is 5: give a list of runs, such as \[5\]\.$'),
        (lambda: zoo.plot_runs('last'), r"^runs is 'last': give a list of runs, such as \['last'\]\.$"),
        (lambda: zoo.export(agent(), 5), r'^path, the folder to export to, is 5: give a path\.$'),
        (lambda: zoo.film(agent(), 'x'), r"^pictures need an environment of build_env\(…, .*\), not 'x'\.$"),
        (lambda: zoo.film(agent(), drawn()), r'^path, the file of a film, is None: give a path\.$'),
        (lambda: zoo.film(5, drawn(), 'x.gif'), r'^film needs an agent, not 5: film\(agent, env, path\)\.$'),
        (lambda: zoo.film(agent(), drawn(), 'x.gif', fps='x'), r"^fps is 'x': give a number\.$"),
        (lambda: zoo.film(agent(), drawn(), 'x.gif', fps=0), r'^fps is 0: give a number above 0\.$'),
        (lambda: zoo.film(agent(), drawn(), 'x.gif', seed='x'), r"^seed is 'x': give a whole number of at least 0, or"),
        (lambda: zoo.record_episodes(agent(), cartpole(), 5, 1), r'^path is 5: give a path\.$'),
        (lambda: zoo.compare(['DQN'], 'CartPole-v1', out=5), r'^out is 5: give a path\.$'),
        (lambda: zoo.callbacks.Checkpoint(folder=5), r'^folder is 5: give a path\.$'),
        (
            lambda: build_env('CartPole-v1', env_params=5),
            "^'CartPole-v1' does not take the argument 'env_params', only",
        ),
        (lambda: build_env('CartPole-v1', render_mode=5), r"^render_mode is 5: give its name, such as 'human' or"),
        (lambda: build_env('CartPole-v1', reward_shaping=lambda: 1), r'^reward_shaping is a function of one reward, '),
        (
            lambda: call_default_params(cartpole(), alg='DQN', seed='x'),
            r"^seed is 'x': give a whole number of at least",
        ),
        (
            lambda: call_default_params(cartpole(), alg='DQN', seed=-1),
            r'^seed is -1: give a whole number of at least 0',
        ),
        (lambda: agent().initial_state(-1), r'^count is -1: give the number of episodes, a whole number of at least 0'),
    ],
)
def test_is_refused_in_one_sentence(call: Callable[[], Any], message: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('name', algorithms.NAMES)
@pytest.mark.parametrize('value', [5, 'actor', {}, [5]])
def test_networks_and_optimizers_are_lists(name: str, value: Any):
    cls = getattr(algorithms, name)
    env = build_env('Pendulum-v1') if 'Box' in cls.acts_in else cartpole()
    for what in ('net_list', 'optimizers_list'):
        with pytest.raises(UserError, match=rf'^{what}.* give .*\.$|^{what} has 1 entry, but .*\.$'):
            cls(env.observation_space, env.action_space, **{what: value})


VECTOR, IMAGE = Box(-1.0, 1.0, (3,), np.float32), Box(0, 255, (36, 36, 1), np.uint8)
FEW = {'train_steps': 32, 'horizon': 16, 'run_dir': False, 'verbose': 0}


@pytest.mark.parametrize(
    ('call', 'said'),
    [
        (
            lambda: algorithms.PPO(VECTOR, Discrete(2), log_std_init=-1.0),
            'log_std_init=-1.0 changes nothing, since no ',
        ),
        (lambda: algorithms.OffPAC(VECTOR, Discrete(2), log_std_init=-1.0), 'log_std_init=-1.0 changes nothing, since'),
        (lambda: algorithms.PPO(VECTOR, Box(-1.0, 1.0), log_std_init=-1.0), None),
        (
            lambda: algorithms.DQN(IMAGE, Discrete(2), normalize_obs=True),
            'normalize_obs=True changes nothing, since no ',
        ),
        (lambda: algorithms.DQN(VECTOR, Discrete(2), normalize_obs=True), None),
        (
            lambda: algorithms.A2C(VECTOR, Discrete(2), max_grad_norm=0.9, optimizers_list=[{'clip_norm': 0.1}]),
            'max_grad_norm=0.9 changes nothing, since the optimizer has a clip_norm of its own.',
        ),
        (
            lambda: algorithms.DQN(VECTOR, Discrete(2), net_list=[{'features': 8}]),
            'net_list[0] (q): features=8 changes nothing, since no observation is an image.',
        ),
        (lambda: algorithms.DQN(IMAGE, Discrete(2), net_list=[{'features': 8}]), None),
        (
            lambda: algorithms.R2D2(VECTOR, Discrete(2), net_list=[{'features': 8, 'hidden': []}]),
            None,  # as many units has the recurrent layer
        ),
        (
            lambda: algorithms.DQN(VECTOR, Discrete(2), optimizers_list=[{'learning_rate': 0.0}]),
            'optimizers_list[0] (q) has learning_rate=0, so it moves no weight.',
        ),
        (
            lambda: agent_of_policy().learn(cartpole(), checkpoint_buffer=True, **FEW),
            'checkpoint_buffer=True changes nothing, since A2C has no replay buffer.',
        ),
    ],
)
def test_what_changes_nothing_is_said_in_one_line(call: Callable[[], Any], said: str | None, caplog):
    call()
    assert len(caplog.messages) == (said is not None)
    assert said is None or caplog.messages[0].startswith(said)


def agent_of_policy() -> Any:
    env = cartpole()
    return algorithms.A2C(env.observation_space, env.action_space, net_list=[{'hidden': [4]}, 'actor'])


def test_the_defaults_for_images_normalize_no_vectors():
    class Seen(gymnasium.Env):
        observation_space, action_space = IMAGE, Box(-1.0, 1.0, (2,))

    class Felt(Seen):
        observation_space = VECTOR

    for cls, is_normalized in ((Seen, False), (Felt, True)):
        assert call_default_params(cls(), 'mujoco', 'PPO')[0]['normalize_obs'] is is_normalized


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (
            lambda: algorithms.TRPO(VECTOR, Discrete(2), line_search_decay=1),
            'line_search_decay is 1: give a number above 0',
        ),
        (
            lambda: optimized(name='SGD', nesterov=True),
            r'.*: nesterov=True changes nothing without momentum: give both',
        ),
        (lambda: optimized(name='SGD', ema_overwrite_frequency=3), r'.*: ema_overwrite_frequency=3 changes nothing'),
        (lambda: agent().learn(cartpole(), seed=True, run_dir=False), 'the seed is True: give a whole number'),
    ],
)
def test_what_can_never_be_meant_is_refused(call: Callable[[], Any], message: str):
    with pytest.raises(UserError, match=f'^{message}'):
        call()


def optimized(**spec: Any) -> Any:
    return algorithms.DQN(VECTOR, Discrete(2), optimizers_list=[spec])
