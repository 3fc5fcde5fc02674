"""Values of the wrong kind in what users call: one sentence each, in place of Python's own error."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

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
        (lambda: zoo.load(5), r'^a saved agent is given by the path of its folder, not by 5\.$'),
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
        (lambda: zoo.record_dataset(agent(), cartpole(), 1, 5), r'^path is 5: give a path\.$'),
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
        (lambda: agent().predict(np.zeros(4), state=5), r'^the state has shape \(\), but 1 observations need \(1, 0\)'),
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
        with pytest.raises(UserError, match=rf'^{what}.* give .*\.$|^{what} has 1 entries, but .*\.$'):
            cls(env.observation_space, env.action_space, **{what: value})
