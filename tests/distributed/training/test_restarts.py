"""Actors that die before their work or hang in it: they are started again, or end the training with a sentence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launchers import ENGINES
from test_train import ON, agent_for, launch, learn, no_processes_left
from traced import hanging

from zoo import build_env
from zoo.distributed import ClusterError
from zoo.distributed.training.planning import plan_for


def train(
    folder: Path, where: str, how: str, times: int | None, name: str = 'PPO', nenv: int = 1, **params: Any
) -> int:
    """Train with one actor whose environment fails so many times; return how often it failed."""
    folder.mkdir(exist_ok=True)
    env = build_env(hanging(folder, where, how, times), nenv=nenv, **({'vectorized': 'async'} if nenv > 1 else {}))
    try:
        learn(agent_for(name, env), env, roles={'actors': 1}, **params)
    finally:
        env.close()
        assert no_processes_left()
    return len(list(folder.iterdir()))


@pytest.mark.full(but='raises')
@pytest.mark.parametrize('how', ['raises', 'dies'])
def test_an_actor_that_fails_once_before_its_work_is_started_again(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture
):
    assert train(tmp_path / 'failed', 'make', how, 1) == 1
    errors = capfd.readouterr().err
    assert errors.count('Started again (1 of 3).') == errors.count('Started again') == 1


@pytest.mark.full
def test_the_same_error_twice_before_the_work_ends_the_training(tmp_path: Path, capfd: pytest.CaptureFixture):
    with pytest.raises(ClusterError, match=r'^rank 1 \(actor 0\) failed(.|\n)*the simulator is broken'):
        train(tmp_path / 'failed', 'make', 'raises', None, restarts=100)
    assert capfd.readouterr().err.count('Started again') == 1


@pytest.mark.full
def test_other_errors_before_the_work_are_as_many_as_restarts(tmp_path: Path, capfd: pytest.CaptureFixture):
    with pytest.raises(ClusterError, match='the simulator is broken, 2'):
        train(tmp_path / 'failed', 'make', 'differs', None, restarts=2)
    assert capfd.readouterr().err.count('Started again') == 2


@pytest.mark.full
@pytest.mark.parametrize('restarts', [0, 1])
def test_the_number_of_restarts_is_a_parameter(restarts: int, tmp_path: Path, capfd: pytest.CaptureFixture):
    with pytest.raises(ClusterError, match='the simulator is broken'):
        train(tmp_path / 'failed', 'step', 'raises', None, restarts=restarts)
    assert capfd.readouterr().err.count('Started again') == restarts


def test_restarts_that_are_none():
    env = build_env('CartPole-v1')
    agent = agent_for('PPO', env)
    with pytest.raises(ValueError, match=r'^restarts is -1: give a whole number of at least 0'):
        learn(agent, env, roles={'actors': 1}, restarts=-1)
    with pytest.raises(
        ValueError, match=r'^restarts=5 starts dead actors again, but roles=None has no actors: leave it'
    ):
        learn(agent, env, restarts=5)


def test_queues_are_no_longer_for_very_many_restarts():
    env = build_env('CartPole-v1')
    plan = plan_for(agent_for('PPO', env), env, {'actors': 1}, 0, 0, 600, ON, restarts=3)
    assert plan.answers == 5 and replace(plan, restarts=10**9).answers == 22


@pytest.mark.full(but='PPO-step')
@pytest.mark.parametrize(('name', 'where'), [('PPO', 'step'), ('PPO', 'make'), ('ES', 'reset')])
def test_an_actor_that_hangs_is_started_again(name: str, where: str, tmp_path: Path, capfd: pytest.CaptureFixture):
    assert train(tmp_path / 'failed', where, 'sleeps', 1, name, sample_timeout=2.0) == 1
    errors = capfd.readouterr().err
    called = {'step': 'a step', 'make': 'the construction', 'reset': 'a reset'}[where]
    assert f'rank 1 (actor 0) hangs: {called} of its environment has not returned for 2 s, which is' in errors
    assert 'time.sleep(1000)' in errors and errors.count('Started again (1 of 3)') == 1


@pytest.mark.full
def test_an_actor_that_always_hangs_ends_the_training(tmp_path: Path):
    with pytest.raises(ClusterError, match=r'^rank 1 \(actor 0\) hangs: a reset of its environment has not returned'):
        train(tmp_path / 'failed', 'reset', 'sleeps', None, sample_timeout=1.0, restarts=0)


@pytest.mark.full
def test_an_environment_that_lets_no_other_thread_run(tmp_path: Path, capfd: pytest.CaptureFixture):
    """The message is the stack that the interpreter writes."""
    assert train(tmp_path / 'failed', 'step', 'spins', 1, sample_timeout=2.0) == 1
    errors = capfd.readouterr().err
    assert 'in _fail' in errors and 'rank 1 (actor 0) ended with exit status 1. Started again (1 of 3).' in errors


@pytest.mark.full
def test_a_copy_of_an_actor_that_hangs(tmp_path: Path):
    words = r'rank 1 \(actor 0\) failed(.|\n)*copy [01] of .* hangs: it has taken more than 2 s for a step; if that'
    with pytest.raises(ClusterError, match=words):
        train(tmp_path / 'failed', 'step', 'sleeps', None, nenv=2, sample_timeout=2.0, restarts=0)


HANGS = """
from pathlib import Path
from test_train import agent_for, learn
from traced import hanging
from zoo import build_env

env = build_env(hanging(Path({folder!r}) / 'failed', 'step', 'sleeps', 1))
learn(agent_for({name!r}, env), env, roles={roles}, sample_timeout=2.0)
print('trained')
"""


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES)
def test_an_actor_that_hangs_under_each_launcher(engine: str, tmp_path: Path):
    (tmp_path / 'failed').mkdir()
    result = launch(engine, 2, tmp_path, 'PPO', 'CartPole-v1', {'actors': 1}, HANGS)
    words = r'rank 1 \(actor 0\) hangs: a step of its environment has not returned for 2 s, which is the sample_timeout'
    assert re.search(words, result.stdout), result.stdout
    assert (result.returncode == 0) == ('trained' in result.stdout) == (engine == 'local'), result.stdout
