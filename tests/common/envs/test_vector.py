"""Copies in processes: the same results as in one process, and no failure that hangs or leaves a process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import zoo
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.env_wrappers import build_env
from zoo.common.envs.vector import limit_samples
from zoo.common.rollouts.collector import Collector

posix = pytest.mark.skipif(os.name != 'posix', reason='this system has no signals')


class Drift(gymnasium.Env):
    """A walk of two kinds of observation and random length, ended by its place or cut off."""

    observation_space = Dict({'place': Box(-100, 100, (2,), np.float32), 'left': Discrete(40)})
    action_space = Discrete(3)

    def _observation(self) -> dict[str, Any]:
        return {'place': self.place.astype(np.float32), 'left': self.left}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        self.left = int(self.np_random.integers(5, 40))
        return self._observation(), {'start': self.left}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        self.place += self.np_random.normal(action - 1, 1, 2)
        self.left -= 1
        ended = bool(np.abs(self.place).max() > 8)
        return self._observation(), float(self.place[0]), ended, self.left == 0 and not ended, {'left': self.left}


class OddError(Exception):
    """Cannot be unpickled, as it takes two arguments and hands on one."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)


class Trouble(gymnasium.Env):
    """Copy 1 gets into the trouble it is told of, by an action; ``make`` does when it is made in another process."""

    observation_space = Box(-1, 1, (1,), np.float32)
    kinds = ('none', 'raise', 'exit', 'kill', 'kill and leave a child', 'hide', 'shape', 'hang')
    action_space = Discrete(len(kinds))

    def __init__(self, parent: int | None = None) -> None:
        if parent not in (None, os.getpid()):
            raise OddError('no licence left', 2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if options == {'trouble': 'hang'}:
            time.sleep(1000)
        return np.zeros(1, np.float32), {'pid': os.getpid()}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        kind = self.kinds[action]
        if kind == 'raise':
            raise OddError('the arm is stuck', 7)
        if kind == 'hang':
            time.sleep(1000)
        if kind == 'exit':
            os._exit(3)
        if kind == 'kill and leave a child' and os.fork() == 0:
            time.sleep(12)  # with all that was open in its parent, as the processes of a simulator may have
            os._exit(0)
        if kind.startswith('kill'):
            os.kill(os.getpid(), signal.SIGKILL)
        info = {'callback': lambda: None} if kind == 'hide' else {}
        return np.zeros(3 if kind == 'shape' else 1, np.float32), 0.0, False, False, info

    def measure(self) -> None:
        raise OddError('no ruler', 1)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def is_running(pid: int) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def trouble() -> tuple[Any, list[int]]:
    env = build_env(Trouble, vectorized='async', nenv=2)
    return env, env.reset()[1]['pid'].tolist()


def assert_fails(env: Any, pids: list[int], call: Any, seconds: float = 20.0) -> str:
    """The message of the ``RuntimeError`` that a call raises, after which nothing runs and closing is at once."""
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        call()
    env.close()
    assert time.monotonic() - begin < seconds
    assert not any(map(is_running, pids))
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.step([0, 0])
    return str(caught.value)


# ---- equal results --------------------------------------------------------------------------------------------------


def flat(x: Any, path: str = '') -> dict[str, np.ndarray]:
    """Every array of a nested structure by its path; a final observation of each copy by the copy's number."""
    if isinstance(x, np.ndarray) and x.dtype == object:
        x = {str(i): value for i, value in enumerate(x) if value is not None}
    if isinstance(x, dict):
        return {key: value for name, part in x.items() for key, value in flat(part, f'{path}/{name}').items()}
    return {path: np.asarray(x)}


@pytest.mark.full
@pytest.mark.parametrize('env_id', ['CartPole-v1', Drift])
def test_sync_and_async_are_equal(env_id: Any):
    one, other = (build_env(env_id, vectorized=way, seed=3, nenv=3) for way in ('sync', 'async'))
    actions = np.random.default_rng(0).integers(one.single_action_space.n, size=(300, 3))
    results = [one.reset()], [other.reset()]
    for action in actions:
        results[0].append(one.step(action))
        results[1].append(other.step(action))
    other.close()
    ended = 0
    for a, b in zip(*results, strict=True):
        ended += 'final_obs' in a[-1]
        for x, y in zip(a, b, strict=True):
            x, y = flat(x), flat(y)
            assert x.keys() == y.keys()
            for path, value in x.items():
                assert value.dtype == y[path].dtype
                np.testing.assert_array_equal(value, y[path], err_msg=path)
    assert ended > 20


def test_transitions_collected_are_those_of_single_environments():
    env = build_env(Drift, vectorized='async', seed=5, nenv=2)
    singles = [build_env(Drift, seed=5 + i) for i in range(2)]
    collector = Collector(env, ActionAdaptor(env.single_action_space))
    collector.reset()
    current = [single.reset()[0] for single in singles]
    ended = 0
    for action in np.random.default_rng(1).integers(3, size=(120, 2)).astype(np.int32):
        before = {key: value.copy() for key, value in collector.obs.items()}
        collector.step(action)
        for i, single in enumerate(singles):
            found, reward, terminated, truncated, _ = single.step(action[i])
            for key in found:
                np.testing.assert_array_equal(before[key][i], current[i][key])
                np.testing.assert_array_equal(collector.next_obs[key][i], found[key])
            assert collector.reward[i] == np.float32(reward)
            assert (collector.terminated[i], collector.truncated[i]) == (terminated, truncated)
            current[i] = found
            if terminated or truncated:
                ended += 1
                current[i] = single.reset()[0]
    env.close()
    assert ended > 10


# ---- exceptions -----------------------------------------------------------------------------------------------------


def test_an_exception_arrives_with_its_traceback():
    env, pids = trouble()
    text = assert_fails(env, pids, lambda: env.step([0, Trouble.kinds.index('raise')]))
    assert text.startswith('copy 1 of Trouble failed in step:\nTraceback')
    assert "raise OddError('the arm is stuck', 7)" in text and 'OddError: the arm is stuck' in text


def test_an_exception_arrives_through_the_collector():
    env, pids = trouble()
    collector = Collector(env, ActionAdaptor(env.single_action_space))
    collector.reset()
    action = np.array([Trouble.kinds.index('raise'), 0], np.int32)
    text = assert_fails(env, pids, lambda: collector.step(action))
    assert 'copy 0 of Trouble failed in step' in text and 'OddError: the arm is stuck' in text


def test_an_exception_while_a_copy_is_made():
    with pytest.raises(RuntimeError) as caught:
        build_env(Trouble, vectorized='async', nenv=2, parent=os.getpid())
    text = str(caught.value)
    assert 'of Trouble could not be made:\nTraceback' in text and 'OddError: no licence left' in text


@pytest.mark.full
@pytest.mark.parametrize(
    ('kind', 'named'),
    [('hide', 'pickle'), ('shape', 'shape (3,) and dtype float32, but its space declares (1,) and float32')],
)
def test_what_gymnasiums_worker_stumbles_over_names_the_copy(kind: str, named: str):
    env, pids = trouble()
    text = assert_fails(env, pids, lambda: env.step([0, Trouble.kinds.index(kind)]))
    assert text.startswith('copy 1 of Trouble failed') and named in text


@pytest.mark.full
def test_an_exception_that_cannot_be_sent_is_no_hang():
    env, pids = trouble()
    text = assert_fails(env, pids, lambda: env.call('measure'))
    assert 'of Trouble failed with an exception that cannot be sent' in text


# ---- lost processes -------------------------------------------------------------------------------------------------


@pytest.mark.full
@posix
@pytest.mark.parametrize(
    ('kind', 'how'),
    [('kill', 'was killed by SIGKILL'), ('exit', 'exit status 3'), ('kill and leave a child', 'was killed by SIGKILL')],
)
def test_a_process_lost_while_stepping_is_reported(kind: str, how: str):
    env, pids = trouble()
    # The child that is left lives for twelve seconds: nobody waits for it.
    text = assert_fails(env, pids, lambda: env.step([0, Trouble.kinds.index(kind)]), seconds=10)
    assert text.startswith('copy 1 of Trouble is lost: its process ') and how in text
    assert '\n' not in text


@posix
def test_a_process_lost_between_steps_is_reported():
    env, pids = trouble()
    os.kill(pids[0], signal.SIGKILL)
    text = assert_fails(env, pids, lambda: [env.step([0, 0]) for _ in range(2)])
    assert text.startswith('copy 0 of Trouble is lost')


@pytest.mark.full
@posix
def test_a_process_lost_while_another_is_at_work_is_reported():
    env, pids = trouble()
    env.call_async('sleep', 2.0)
    threading.Timer(0.3, os.kill, (pids[1], signal.SIGKILL)).start()
    text = assert_fails(env, pids, env.call_wait)
    assert text.startswith('copy 1 of Trouble is lost')


@posix
@pytest.mark.parametrize('what', ['step', 'reset'])
def test_a_copy_that_hangs_is_reported(what: str):
    env, pids = trouble()
    assert env.sample_timeout == 600.0 and limit_samples(env, 1.0)
    calls = {
        'step': lambda: env.step([0, Trouble.kinds.index('hang')]),
        'reset': lambda: env.reset(options={'trouble': 'hang'}),
    }
    text = assert_fails(env, pids, calls[what], seconds=10)
    copy = 1 if what == 'step' else 0
    assert text == (
        f'copy {copy} of Trouble hangs: it has taken more than 1 s for a {what}; if that is right, give learn a longer '
        'sample_timeout.'
    )


def test_only_copies_in_processes_can_be_limited():
    assert not limit_samples(gymnasium.make('CartPole-v1'), 1.0)
    assert not limit_samples(build_env('CartPole-v1', nenv=2, vectorized='sync'), 1.0)


@pytest.mark.full
@posix
def test_closing_ends_every_process():
    env, pids = trouble()
    os.kill(pids[1], signal.SIGSTOP)  # it will not answer
    begin = time.monotonic()
    env.close(timeout=0.5)
    assert time.monotonic() - begin < 20 and not any(map(is_running, pids))


@posix
def test_processes_end_with_the_last_reference():
    env, pids = trouble()
    del env
    assert not any(map(is_running, pids))


SCRIPT = """
    import gymnasium, os, signal
    from zoo import build_env
    env = build_env('CartPole-v1', vectorized='async', nenv=2)
    print(*(process.pid for process in env.processes), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.full
@posix
def test_processes_end_with_their_parent(tmp_path):
    (tmp_path / 'script.py').write_text(textwrap.dedent(SCRIPT))
    paths = os.pathsep.join([str(Path(zoo.__file__).parents[1]), os.environ.get('PYTHONPATH', '')])
    done = subprocess.run(
        [sys.executable, str(tmp_path / 'script.py')],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, 'PYTHONPATH': paths},
        timeout=60,
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    end = time.monotonic() + 10
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_running, pids))


# ---- one object for all copies --------------------------------------------------------------------------------------


def test_one_object_for_every_copy_is_refused():
    env = Drift()
    with pytest.raises(ValueError, match='returns the same environment object for every copy'):
        build_env(lambda: env, nenv=2)


@pytest.mark.skipif(not Path('/dev/shm').is_dir(), reason='named semaphores are elsewhere')
def test_a_killed_program_leaves_no_semaphore(tmp_path: Path):
    """Killed together with all its processes, Python's resource tracker among them, as mpirun kills a rank."""
    program = """
        import os, signal, zoo

        if __name__ == '__main__':
            env = zoo.build_env('CartPole-v1', nenv=2, vectorized='async')
            env.reset(seed=0)
            env.step(env.action_space.sample())
            os.killpg(0, signal.SIGKILL)
    """
    (tmp_path / 'program.py').write_text(textwrap.dedent(program))
    before = {path.name for path in Path('/dev/shm').glob('sem.mp-*')}
    ended = subprocess.run([sys.executable, 'program.py'], cwd=tmp_path, start_new_session=True)
    assert ended.returncode == -signal.SIGKILL
    assert {path.name for path in Path('/dev/shm').glob('sem.mp-*')} <= before
