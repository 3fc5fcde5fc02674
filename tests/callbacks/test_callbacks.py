"""Callbacks: when they are called, what they do, and that testing changes nothing of a training."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from PIL import Image, ImageSequence

import zoo
from zoo import algorithms
from zoo.callbacks import Callback, Checkpoint, Evaluate, Film, KeepBest, MLflow, StopOnPlateau, WandB
from zoo.common.envs.answers import LIFE_LOST
from zoo.common.plots.films import write
from zoo.common.tools.processes import alone_in

#: A training that only explores, so that nothing is compiled.
FEW: dict[str, Any] = {'explore_steps': 10_000, 'verbose': 0}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)


def cartpole(**params: Any) -> Any:
    return zoo.build_env('CartPole-v1', 'classic_control', **params)


def dqn(**params: Any) -> Any:
    env = gymnasium.make('CartPole-v1')
    return algorithms.DQN(env.observation_space, env.action_space, net_list=[{'hidden': [8], 'seed': 1}], **params)


def learn(callbacks: Any, steps: int = 100, env: Any = None, agent: Any = None, **params: Any) -> Any:
    env = cartpole() if env is None else env
    return (agent or dqn()).learn(env, 'train', seed=1, callbacks=callbacks, train_steps=steps, **{**FEW, **params})


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(line for line in file if not line.startswith('#')))


class Calls(Callback):
    """Writes down when it is called."""

    def __init__(self, every: int | None = None, until: int | None = None) -> None:
        self.every, self.until = every, until
        self.seen: list[Any] = []

    def begin(self, training: Any) -> None:
        self.seen.append(('begin', training.steps))

    def __call__(self, training: Any) -> bool | None:
        self.seen.append(training.steps)
        return self.until is None or training.steps < self.until

    def end(self, training: Any) -> None:
        self.seen.append(('end', training.steps, type(training.error).__name__))


class Interrupting(Calls):
    """As Ctrl-C."""

    def __call__(self, training: Any) -> None:
        raise KeyboardInterrupt


def test_the_old_name_of_film_warns():
    with pytest.warns(DeprecationWarning, match='is called zoo.callbacks.Film now'):
        assert zoo.callbacks.Record is Film


class TestWhen:
    def test_every_so_many_steps_and_at_the_end(self):
        timed, logged = Calls(every=30), Calls()
        learn([timed, logged], log_every=40)
        assert timed.seen == [('begin', 0), 30, 60, 90, 100, ('end', 100, 'NoneType')]
        assert logged.seen == [('begin', 0), 40, 80, 100, ('end', 100, 'NoneType')]

    def test_copies_step_together_and_lateness_does_not_add_up(self):
        timed = Calls(every=10)
        learn([timed], 36, cartpole(nenv=4), log_every=1000)
        assert timed.seen[1:-1] == [12, 20, 32, 36]

    def test_a_timed_one_ends_the_training_too(self):
        timed = Calls(every=30, until=60)
        assert learn([timed]).steps == 60
        assert timed.seen[1:-1] == [30, 60]

    def test_what_a_callback_has_waited_is_no_part_of_the_time(self):
        result = learn([lambda training: training.waited(1000.0)], log_every=50, run_dir='run')
        assert -2000 < result.wall_time < -1900  # of two rows
        late = [float(row['t']) for row in rows(Path('run/monitor.csv')) if int(row['step']) > 50]
        assert late and all(seconds < -900 for seconds in late)
        assert all(float(row['speed/steps_per_second']) > 0 for row in rows(Path('run/progress.csv')))

    def test_the_end_is_told_what_ended_it(self):
        def fail(training: Any) -> None:
            raise KeyboardInterrupt

        timed = Calls(every=30)
        with pytest.raises(KeyboardInterrupt):
            learn([timed, fail], log_every=50)
        assert timed.seen == [('begin', 0), 30, ('end', 50, 'KeyboardInterrupt')]

    def test_all_that_have_begun_end_where_another_cannot_begin(self):
        class Bad(Calls):
            def begin(self, training: Any) -> None:
                raise ValueError('no.')

        first = Calls()
        with pytest.raises(ValueError, match='no'):
            learn([first, Bad()])
        assert first.seen == [('begin', 0), ('end', 0, 'ValueError')]

    @pytest.mark.parametrize('every', [0, -1, 2.5, True, '5'])
    def test_every_is_a_whole_number(self, every: Any):
        with pytest.raises(ValueError, match='every of the callback .* is'):
            learn([Calls(every=every)])
        assert not Path('runs').exists()


class TestEvaluate:
    def test_what_it_writes_and_keeps(self):
        evaluate = Evaluate(every=40, episodes=3)
        result = learn([evaluate])
        assert evaluate.steps == [40, 80, 100] and evaluate.best == max(evaluate.returns)
        written = rows(result.run_dir / 'evaluations.csv')
        assert [int(row['step']) for row in written] == [40] * 3 + [80] * 3 + [100] * 3
        by_hand = [np.mean([float(row['r']) for row in written[i : i + 3]]) for i in (0, 3, 6)]
        np.testing.assert_allclose(by_hand, evaluate.returns)
        logged = [float(row['test/return']) for row in rows(result.run_dir / 'progress.csv') if row['test/return']]
        np.testing.assert_allclose(logged, evaluate.returns, rtol=1e-5)
        best = zoo.open_run(result.run_dir).load(best=True)
        assert best.steps == evaluate.steps[int(np.argmax(evaluate.returns))]

    @pytest.mark.full
    def test_it_changes_nothing_of_the_training(self):
        few = {'explore_steps': 40, 'batch_size': 8, 'run_dir': False}
        found = []
        for callbacks in ([], [Evaluate(every=20, episodes=2, keep_best=False)]):
            agent = dqn()
            result = learn(callbacks, 120, agent=agent, **few)
            found.append((result.returns, [v.numpy() for v in agent.trainable_variables]))
        assert found[0][0] == found[1][0]
        for one, other in zip(found[0][1], found[1][1], strict=True):
            np.testing.assert_array_equal(one, other)

    def test_it_stops_on_a_score(self, caplog):
        assert learn([Evaluate(every=40, episodes=2, stop_at=1.0)]).steps == 40
        assert 'Stopped at step 40: the mean return of 2 episodes is' in caplog.text

    def test_a_resumed_run_goes_on_with_what_was_best(self):
        first = Evaluate(every=20, episodes=2)
        with pytest.raises(KeyboardInterrupt):
            learn([first, Interrupting(every=50)])
        again = Evaluate(every=20, episodes=2)
        file = zoo.open_run('last').path / 'evaluations.csv'
        with open(file, 'a') as written:  # by one that was killed later on
            written.write('60,9,9,\n60,9,9,\n8')
        zoo.resume('last', callbacks=[again], verbose=0)
        assert again.steps == [20, 40, 60, 80, 100] and again.returns[:2] == first.returns
        assert [int(row['step']) for row in rows(file)] == [step for step in again.steps for _ in range(2)]
        assert again.best == max(9.0, *again.returns)  # which is kept, if its row is not

    @pytest.mark.full
    def test_a_resumed_run_is_tested_as_one_that_was_not_interrupted(self):
        kept = {'checkpoint_every': 50, 'exact_resume': True}

        whole, again = Evaluate(every=20, episodes=2), Evaluate(every=20, episodes=2)
        learn([whole], 160, run_dir='whole', **kept)
        with pytest.raises(KeyboardInterrupt):
            learn([Evaluate(every=20, episodes=2), Interrupting(every=100)], 160, run_dir='cut', **kept)
        for path in zoo.open_run('cut').checkpoints:
            if int(path.name) > 50:  # as of a run that was killed
                shutil.rmtree(path)
        zoo.resume('cut', callbacks=[again], verbose=0)
        assert (again.steps, again.returns, again.best) == (whole.steps, whole.returns, whole.best)
        assert rows(Path('cut/evaluations.csv')) == rows(Path('whole/evaluations.csv'))
        assert zoo.open_run('cut').load(best=True).steps == whole.steps[int(np.argmax(whole.returns))]
        assert len(set(whole.returns)) > 2  # other episodes in each test

    def test_a_run_that_is_continued_keeps_what_was_best(self):
        """By a second call of learn in the same directory, which is no resumption."""
        agent = dqn()
        long, short = (cartpole(max_episode_steps=n) for n in (5, 3))
        first, second = Evaluate(every=50, episodes=1, env=long), Evaluate(every=50, episodes=1, env=short)
        kept = Checkpoint(every=50, keep=2)
        learn([first, kept], 100, agent=agent, run_dir='here')
        learn([second, kept], 100, agent=agent, run_dir='here')
        assert second.steps == [50, 100, 150, 200] and second.returns == [5.0, 5.0, 3.0, 3.0] and second.best == 5.0
        assert zoo.open_run('here').load(best=True).steps == 50
        assert [int(row['step']) for row in rows(Path('here/evaluations.csv'))] == second.steps
        assert [path.name for path in sorted(Path('here/snapshots').iterdir())] == ['000000150', '000000200']

    def test_what_it_cannot_use_is_refused_before_the_first_step(self):
        for given in ({'stop_at': '475'}, {'stop_at': True}, {'env': 'CartPole-v1'}, {'seed': -1}, {'episodes': 0}):
            with pytest.raises(ValueError, match=next(iter(given))):
                Evaluate(**given)
        with pytest.raises(ValueError, match="min_rise is '1': give a number"):
            StopOnPlateau(100, min_rise='1')  # type: ignore[arg-type]
        other = zoo.build_env('Pendulum-v1')
        for callback in (Evaluate(env=other), Film(env=other)):
            with pytest.raises(ValueError, match="environment is another than the agent's: its observation_space"):
                learn([callback])
        with pytest.raises(ValueError, match=r'the class Evaluate in it: give an object of it, Evaluate\(…\)'):
            learn([Evaluate])
        other.close()

    def test_what_came_after_the_checkpoint_is_not_there_twice(self):
        # Interrupted at step 100, but resumed from 50, as of a run that was killed.
        callbacks = [Evaluate(every=20, episodes=2), Checkpoint(every=20, keep=2)]
        with pytest.raises(KeyboardInterrupt):
            learn([*callbacks, Interrupting(every=100)], 200, run_dir='here', checkpoint_every=50, log_every=10)
        run = zoo.open_run('here')
        for path in run.checkpoints:
            if int(path.name) > 50:
                shutil.rmtree(path)
        again = Evaluate(every=20, episodes=2)
        zoo.resume('here', callbacks=[again, Checkpoint(every=20, keep=2)], verbose=0)
        assert [int(row['step']) for row in rows(Path('here/evaluations.csv'))] == [
            step for step in again.steps for _ in range(2)
        ]
        steps = zoo.open_run('here').progress['step']
        assert steps == sorted(steps) and steps[-1] == 200 and len(steps) == 20 + len(again.steps)
        assert [path.name for path in sorted(Path('here/snapshots').iterdir())] == ['000000180', '000000200']

    def test_an_environment_of_its_own(self):
        env = cartpole(max_episode_steps=5)
        evaluate = Evaluate(every=50, episodes=2, env=env)
        learn([evaluate])
        assert evaluate.returns == [5.0, 5.0]
        with pytest.raises(ValueError, match='was given the environment of the training'):
            learn([Evaluate(env=env)], env=env)

    @pytest.mark.full
    def test_it_opens_no_second_window(self, monkeypatch):
        modes: list[str | None] = []

        def make(render_mode: str | None = None) -> gymnasium.Env:
            modes.append(render_mode)
            env = gymnasium.make('CartPole-v1')
            env.unwrapped.render_mode = render_mode
            return env

        monkeypatch.setenv('DISPLAY', ':0')
        env = zoo.build_env(make, render_mode='human')
        learn([Evaluate(every=50, episodes=1)], 50, env)
        assert modes == ['human', None]

    def test_what_is_refused(self):
        with pytest.raises(ValueError, match='keeps the best agent in the run directory, but run_dir=False'):
            learn([Evaluate()], run_dir=False)
        with pytest.raises(ValueError, match=r'Evaluate needs an environment of its own.*give Evaluate\(env=…\)'):
            learn([Evaluate()], env=gymnasium.make('CartPole-v1'))
        for given in ({'every': 0}, {'episodes': 'ten'}):
            with pytest.raises(ValueError, match='give a whole number of at least 1'):
                Evaluate(**given)


def test_checkpoints_of_ones_own():
    saves = Checkpoint(every=30, keep=2)
    result = learn([saves])
    assert [path.name for path in sorted((result.run_dir / 'snapshots').iterdir())] == ['000000090', '000000100']
    assert zoo.load(saves.paths[0]).loop_state == {'steps': 90, 'train_steps': 100, 'scheduled': False}
    assert zoo.load(saves.paths[1]).loop_state is None
    learn([Checkpoint(every=50, folder='mine')], run_dir=False)
    assert len(list(Path('mine').iterdir())) == 2
    with pytest.raises(ValueError, match='give folder=…'):
        learn([Checkpoint()], run_dir=False)


def test_checkpoints_with_the_replay_buffer(caplog):
    saves = Checkpoint(every=50, buffer=True)
    learn([saves])
    assert zoo.load(saves.paths[-1]).saved_buffer is not None
    with pytest.raises(ValueError, match='and there is none in this process: leave buffer out'):
        zoo.train('PPO', 'CartPole-v1', callbacks=[Checkpoint(buffer=True)], train_steps=64, net='4', verbose=0)
    spaces = gymnasium.spaces.Box(-1.0, 1.0, (2,)), gymnasium.spaces.Discrete(2)
    agent = algorithms.PPO(*spaces, net_list=[{'hidden': [4]}] * 2)
    agent.save('mine', buffer=True)
    assert 'buffer=True saves nothing: this agent has no replay buffer.' in caplog.text


class TestStopOnPlateau:
    @staticmethod
    def after(returns: list[float], callback: StopOnPlateau) -> int | None:
        """After how many episodes of ten steps each it stops."""
        steps = types.SimpleNamespace(num_envs=1)
        training = types.SimpleNamespace(experience=steps, returns=[], steps=0, warn=lambda *words: None)
        callback.begin(training)
        for i, total in enumerate(returns, 1):
            training.returns.append(total)
            training.steps += 10
            if callback(training) is False:
                return i
        return None

    def test_by_hand(self):
        # Means of two episodes: 1.5, 2.5, 2.5, 2.5: no rise since step 30, 20 steps later it ends.
        assert self.after([1, 2, 3, 2, 3, 2], StopOnPlateau(20, window=2)) == 5
        assert self.after([1, 2, 3, 4, 5, 6], StopOnPlateau(20, window=2)) is None
        # Rises of 1 are none where more than 1.5 is asked for.
        assert self.after([1, 2, 3, 4, 5, 6], StopOnPlateau(10, min_rise=1.5, window=2)) == 3
        # Losses count like any other number; nothing is judged before there are enough episodes.
        assert self.after([-9, -9, -9, -9], StopOnPlateau(20, window=2)) == 4
        assert self.after([1, 1, 1], StopOnPlateau(1, window=5)) is None

    def test_a_resumed_training_is_judged_by_what_it_plays(self):
        steps = types.SimpleNamespace(num_envs=1)
        training = types.SimpleNamespace(experience=steps, returns=[100.0] * 5, steps=50, warn=lambda *words: None)
        callback = StopOnPlateau(20, window=2)
        callback.begin(training)
        for total in range(8):
            training.returns.append(float(total))
            training.steps += 10
            assert callback(training) is None

    def test_a_training_on_a_dataset_has_no_episodes_to_watch(self):
        training = types.SimpleNamespace(experience=types.SimpleNamespace(num_envs=0))
        with pytest.raises(ValueError, match='a training on a dataset has none: leave it out'):
            StopOnPlateau(20).begin(training)

    def test_it_ends_a_training(self, caplog):
        result = learn([StopOnPlateau(100, min_rise=1e9, window=1, every=10)], 2000)
        assert 100 <= result.steps < 400
        assert 'has not risen above' in caplog.text


def milliseconds(film: Any) -> float:
    """How long it lasts; pictures that are alike are one, shown longer."""
    return sum(frame.info['duration'] for frame in ImageSequence.Iterator(film))


def test_a_film_of_an_episode():
    result = learn([Film(every=60, max_steps=20)])
    first, second = sorted((result.run_dir / 'videos').iterdir())
    assert (first.name, second.name) == ('000000060.gif', '000000100.gif')
    with Image.open(first) as film:
        assert film.size == (600, 400)
        assert 0 < milliseconds(film) <= 21 * 20 and milliseconds(film) % 20 == 0  # 50 frames a second
    with pytest.raises(ValueError, match=r"unknown kind of film '.gf': did you mean '.gif'"):
        Film(kind='gf')


def test_films(tmp_path):
    agent, env = dqn(), cartpole(render_mode='rgb_array')
    for kind in ('gif', 'webp', 'png'):
        path = zoo.film(agent, env, tmp_path / 'films' / f'one.{kind}', max_steps=5, seed=1, fps=10)
        with Image.open(path) as film:
            assert film.n_frames > 1 and (kind != 'gif' or milliseconds(film) == 600)
    with pytest.raises(ValueError, match='render_mode=None: build it with'):
        zoo.film(agent, cartpole(), 'a.gif')
    with pytest.raises(ValueError, match='2 copies cannot be drawn'):
        zoo.film(agent, cartpole(nenv=2, render_mode='rgb_array'), 'a.gif')
    with pytest.raises(ValueError, match='max_steps is 0'):
        zoo.film(agent, env, 'a.gif', max_steps=0)
    with pytest.raises(ValueError, match='fps is 0: give a number above 0'):
        zoo.film(agent, env, 'a.gif', fps=0)


class Lives(gymnasium.Env):
    """A game of three lives of four steps each."""

    metadata: ClassVar[dict[str, Any]] = {'render_modes': ['rgb_array'], 'render_fps': 30}
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        lost, over = self.steps % 4 == 0, self.steps == 12
        return np.ones(2, np.float32), 1.0, lost, False, {LIFE_LOST: True} if lost and not over else {}

    def render(self) -> np.ndarray:
        return np.zeros((8, 8, 3), np.uint8)


def test_a_film_begins_a_recurrent_state_with_every_life(tmp_path, monkeypatch):
    net_list = [{'hidden': [4], 'recurrent': 'lstm', 'seed': 1}, 'actor']
    agent = algorithms.PPO(Lives.observation_space, Lives.action_space, net_list=net_list)
    seen = []
    step = agent.behavior.step

    def watched(obs: Any, state: Any, *rest: Any, **more: Any) -> Any:
        seen.append(bool(np.any(state)))
        return step(obs, state, *rest, **more)

    monkeypatch.setattr(agent.behavior, 'step', watched)
    zoo.film(agent, zoo.build_env(Lives, render_mode='rgb_array'), tmp_path / 'a.gif')
    assert seen == [False, True, True, True] * 3


def test_a_film_takes_its_pictures_one_by_one(tmp_path):
    alive, most = 0, 0

    class Picture(np.ndarray):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def pictures() -> Iterator[np.ndarray]:
        nonlocal alive, most
        for i in range(20):
            alive += 1
            most = max(most, alive)
            yield np.full((8, 8, 3), 10 * i, np.uint8).view(Picture)

    write(tmp_path / 'a.gif', pictures(), fps=10)
    with Image.open(tmp_path / 'a.gif') as film:
        assert film.n_frames == 20
    assert most < 5

    def broken() -> Iterator[np.ndarray]:
        yield np.zeros((8, 8, 3), np.uint8)
        raise RuntimeError

    with pytest.raises(RuntimeError):  # nothing half is left, and what was there stays
        write(tmp_path / 'a.gif', broken(), fps=10)
    assert [path.name for path in tmp_path.iterdir()] == ['a.gif']


def test_steps_of_all_episodes_together(tmp_path, caplog):
    env = cartpole(render_mode='rgb_array', max_episode_steps=4)
    path = zoo.film(dqn(), env, tmp_path / 'a.gif', episodes=3, max_steps=10, seed=1, fps=10)
    with Image.open(path) as film:
        assert milliseconds(film) == 1300  # ten steps, and what three episodes begin with
    assert 'The film has 2 whole episodes of 3, since it ends after max_steps=10' in caplog.text


class TestMonitor:
    def test_its_form(self):
        result = learn([], 200)
        first, header, *lines = (result.run_dir / 'monitor.csv').read_text().splitlines()
        assert json.loads(first.removeprefix('#')).keys() == {'t_start', 'env_id'}
        assert json.loads(first[1:])['env_id'] == 'CartPole-v1' and header == 'r,l,t,step'
        found = np.array([[float(x) for x in line.split(',')] for line in lines])
        assert found[:, 0].tolist() == found[:, 1].tolist() == result.returns
        assert found[:, 3].tolist() == result.episode_steps == np.cumsum(found[:, 1]).tolist()
        assert (np.diff(found[:, 2]) >= 0).all()
        assert zoo.open_run(result.run_dir).episodes['r'] == result.returns

    def test_of_several_copies(self):
        result = learn([], 400, cartpole(nenv=3))
        assert [float(row['r']) for row in rows(result.run_dir / 'monitor.csv')] == result.returns

    @pytest.mark.full
    def test_with_roles(self):
        evaluate = Evaluate(every=200, episodes=1)
        result = learn([evaluate], 400, roles={'actors': 2})
        found = rows(result.run_dir / 'monitor.csv')
        assert [float(row['r']) for row in found] == result.returns and len(found) > 4
        assert [int(row['step']) for row in found] == result.episode_steps
        assert len(evaluate.returns) >= 2

    @pytest.mark.full
    def test_it_goes_on_at_resume(self):
        def interrupt(training: Any) -> None:
            if training.steps >= 200:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            learn([interrupt], 400, log_every=50)
        path = zoo.open_run('last').path / 'monitor.csv'
        before = path.read_text().splitlines()
        with open(path, 'a') as file:
            file.write('9.0,9,9.0,250\n9.0')  # played after the checkpoint by a run that was killed
        result = zoo.resume('last', verbose=0).result
        after = path.read_text().splitlines()
        assert after[: len(before)] == before and len(after) == len(before) + result.episodes
        seconds = [float(line.split(',')[2]) for line in after[2:]]
        assert seconds == sorted(seconds)

    def test_a_second_call_in_the_same_directory_appends(self):
        agent = dqn()
        one = learn([], 100, agent=agent, run_dir='here')
        two = learn([], 100, agent=agent, run_dir='here')
        assert [float(row['r']) for row in rows(Path('here/monitor.csv'))] == one.returns + two.returns

    def test_another_training_in_the_same_directory_is_refused(self):
        learn([], 100, run_dir='here')
        before = {path: path.read_bytes() for path in Path('here').rglob('*') if path.is_file()}
        with pytest.raises(ValueError, match="'here' holds a run of 100 steps, but this agent has taken 0: choose"):
            learn([], 50, run_dir='here')
        with alone_in('here'), pytest.raises(ValueError, match="'here' is in use: something else is writing there"):
            learn([], 50, run_dir='here')
        assert {path: path.read_bytes() for path in Path('here').rglob('*') if path.is_file()} == before

    def test_a_file_of_somebody_elses_is_kept(self):
        Path('here').mkdir()
        Path('here/monitor.csv').write_text('a,b\n1,2\n')
        with pytest.raises(ValueError, match="holds 'monitor.csv' and is no run"):
            learn([], run_dir='here')
        assert Path('here/monitor.csv').read_text() == 'a,b\n1,2\n'


def test_services_that_are_not_installed(monkeypatch):
    for name, callback in (('wandb', WandB), ('mlflow', MLflow)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f'pip install {name}'):
            callback()


def test_wandb_is_sent_the_rows(monkeypatch):
    sent: list[Any] = []

    class Session:
        def log(self, metrics: dict[str, float], step: int) -> None:
            sent.append((step, metrics))

        def finish(self, exit_code: int) -> None:
            sent.append(exit_code)

    def init(**options: Any) -> Session:
        sent.append(options)
        return Session()

    monkeypatch.setitem(sys.modules, 'wandb', types.SimpleNamespace(init=init))
    result = learn([WandB('cartpole', mode='offline'), Evaluate(every=100, episodes=1)], log_every=50)
    assert (sent[0]['project'], sent[0]['mode'], sent[0]['name']) == ('cartpole', 'offline', result.run_dir.name)
    known = {'gamma': 0.99, 'environment': 'CartPole-v1', 'explore_steps': 10_000, 'log_every': 50, 'nenv': 1}
    assert known.items() <= sent[0]['config'].items() and {'seed', 'batch_size'} <= sent[0]['config'].keys()
    assert [step for step, _ in sent[1:-1]] == [50, 100, 100] and 'episode/return' in sent[1][1] and sent[-1] == 0
    assert 'test/return' in sent[3][1]  # a row that another callback writes


def test_mlflow_is_sent_the_rows(monkeypatch):
    sent: list[Any] = []
    names = ('set_tracking_uri', 'set_experiment', 'start_run', 'log_params', 'log_metrics', 'end_run')
    called = {name: (lambda *a, name=name, **k: sent.append((name, a, k))) for name in names}
    monkeypatch.setitem(sys.modules, 'mlflow', types.SimpleNamespace(**called))
    learn([MLflow('cartpole')], log_every=50)
    assert [name for name, *_ in sent] == [
        'set_experiment',
        'start_run',
        'log_params',
        'log_metrics',
        'log_metrics',
        'end_run',
    ]
    assert sent[3][2] == {'step': 50} and sent[-1][1] == ('FINISHED',)

    def fail(training: Any) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        learn([MLflow(), fail], log_every=50)
    assert sent[-1][1] == ('FAILED',)


@pytest.mark.parametrize(
    ('callbacks', 'told'),
    [
        ([Evaluate(every=50), Evaluate(every=70)], 'two callbacks Evaluate would both write evaluations.csv'),
        ([Evaluate(every=50), KeepBest(every=70)], 'Evaluate and KeepBest would both write evaluations.csv'),
        ([KeepBest(every=50), KeepBest(every=70)], 'two callbacks KeepBest would both write evaluations.csv'),
    ],
)
def test_two_callbacks_that_test_are_refused(callbacks: list[Any], told: str):
    with pytest.raises(ValueError, match=told):
        learn(callbacks)


def test_a_callback_of_the_user_that_ends_a_training_is_named(capsys):
    def enough(training: Any) -> bool:
        return training.steps < 40

    learn([enough], log_every=20, verbose=1)
    assert 'enough has ended the training at step 40.' in capsys.readouterr().err
