"""The trained agents that come with zoo, and the table of scores: train, test, keep, film.

    python benchmarks/scores/agents.py                          # every row, the cheap ones first: several days
    python benchmarks/scores/agents.py PPO/CartPole-v1 …        # some rows
    python benchmarks/scores/agents.py --seeds 0 1 …            # these seeds instead of the row's own
    python benchmarks/scores/agents.py --check                  # test every agent again beside its card
    python benchmarks/scores/agents.py --films                  # draw films and learning curves again
    python benchmarks/scores/agents.py --pages                  # write the pages alone

A row is an algorithm with ``zoo.train`` and its default settings in an environment; ``ROWS`` has what differs. Each
seed is trained in a process of its own and kept in ``results/agents.json``. A seed that is there is not trained again.
What was interrupted, by Ctrl-C or SIGTERM, goes on: long rows from their last checkpoint, others from the start of the
seed. A row that fails does not stop the others.

The score of a seed is the mean return of 100 test episodes with the best agent of its run. The best of all seeds
becomes the trained agent of that name. It is tested in 100 more episodes with seeds of their own, because the choice
among seeds prefers lucky tests. That is the score on its card. Small agents go to ``zoo/agents/trained``, larger ones
to ``agents``; cards always go to the package. The pages are ``results/agents.md``, ``docs/gallery.md`` and
a ``README.md`` for each agent.

``--check`` plays 100 episodes with a third set of seeds. It fails where the mean is more than three standard errors of
the difference away from the card: with two, one agent in twenty would fail by chance.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from agents_pages import EPISODES, FILM_SEED, GALLERY, cards, draw_curve, draw_film, picture, write_pages
from common import (
    BENCHMARKS,
    answer_of,
    checked,
    environment,
    parser_of,
    read_results,
    today,
    versions,
    write_results,
)
from published import published

RUNS = BENCHMARKS / 'runs' / 'agents'
#: The first seeds of the tests that choose among seeds, of the test for the card, and of ``--check``.
CHOICE_SEED, CARD_SEED, CHECK_SEED = 10_000, 20_000, 30_000
#: The most bytes of an agent in the package, for classic control, which every installation can build, and for others.
IN_PACKAGE = {'classic_control': 1_000_000}
IN_PACKAGE_ELSE = 300_000
#: Arguments of the environment for films, where its own camera would not follow the agent.
CAMERAS = {'Ant-v5': {'camera_name': 'track'}}
#: How many standard errors of the difference ``--check`` allows.
ALLOWED = 3.0


@dataclass(frozen=True)
class Row:
    """One algorithm in one environment.

    Attributes:
        alg, env_id: what is trained where.
        seeds: of the trainings.
        settings: arguments of ``zoo.train`` that are not the defaults.
        long: an interrupted training goes on from its last checkpoint, with ``exact_resume``.
    """

    alg: str
    env_id: str
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    settings: dict[str, Any] = field(default_factory=dict)
    long: bool = False

    @property
    def name(self) -> str:
        return f'{self.alg}/{self.env_id}'

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``zoo.train`` besides algorithm, environment and seed."""
        return self.settings | ({'exact_resume': True} if self.long else {})


def rows(env_id: str, *algs: str, seeds: int = 5, long: bool = False, **settings: Any) -> list[Row]:
    """Return rows of several algorithms with the same settings."""
    return [Row(alg, env_id, tuple(range(seeds)), settings, long) for alg in algs]


#: Cheap ones first: seconds, minutes, then hours a seed.
LISTED: list[Row] = [
    *rows('CartPole-v1', 'PPO', 'A2C', 'TRPO', 'ARS', 'DQN', 'VPG', 'C51', 'Rainbow', 'QRDQN', 'SAC'),
    *rows('Pendulum-v1', 'PPO', 'TRPO', 'A2C'),
    *rows('MountainCarContinuous-v0', 'PPO', 'A2C', 'SAC'),
    *rows('Acrobot-v1', 'A2C', 'PPO'),
    *rows('Acrobot-v1', 'TRPO', train_steps=100_000),
    *rows('Acrobot-v1', 'DQN', 'QRDQN', train_steps=100_000),
    *rows('MountainCar-v0', 'A2C', 'PPO', 'DQN', 'QRDQN'),
    *rows('Pendulum-v1', 'DDPG', 'TD3', 'SAC', 'TQC', 'CrossQ'),
    # Minutes a seed.
    *rows('LunarLander-v3', 'A2C', 'PPO'),
    *rows('LunarLander-v3', 'TRPO', train_steps=200_000),
    *rows('LunarLander-v3', 'QRDQN', 'DQN'),
    *rows('LunarLanderContinuous-v3', 'PPO', long=True),
    *rows('LunarLanderContinuous-v3', 'TRPO', train_steps=200_000),
    *rows('FetchReach-v4', 'SAC', seeds=3),
    *rows('FetchReach-v4', 'TQC', seeds=3, train_steps=20_000),
    *rows('HalfCheetah-v5', 'A2C', 'PPO', seeds=3, long=True),
    # SAC has no tuned settings for these: as many steps as DQN.
    *rows('Acrobot-v1', 'SAC', long=True, train_steps=100_000),
    *rows('MountainCar-v0', 'SAC', long=True, train_steps=120_000),
    *rows('cartpole-swingup', 'SAC', seeds=3, long=True, train_steps=100_000),
    *rows('LunarLanderContinuous-v3', 'TD3', 'SAC', 'TQC', long=True),
    *rows('MountainCarContinuous-v0', 'TD3', seeds=3, long=True),
    *rows('Hopper-v5', 'PPO', seeds=3, long=True),
    *rows('Walker2d-v5', 'PPO', seeds=3, long=True),
    *rows('BipedalWalker-v3', 'PPO', seeds=3, long=True),
    # Hours a seed. Pong at 42x42 pixels needs half of the steps of the defaults.
    *rows(
        'PongNoFrameskip-v4',
        'PPO',
        seeds=1,
        long=True,
        train_steps=2_200_000,
        nenv=8,
        vectorized='envpool',
        env_params={'frame_size': 42},
    ),
    *rows('BipedalWalker-v3', 'SAC', 'TQC', seeds=3, long=True),
    *rows('HalfCheetah-v5', 'SAC', seeds=3, long=True),
    *rows('HalfCheetah-v5', 'TQC', 'TD3', seeds=3, long=True, train_steps=500_000),
    *rows('Hopper-v5', 'SAC', 'TD3', seeds=3, long=True),
    *rows('Walker2d-v5', 'SAC', 'TD3', seeds=3, long=True),
    # Published scores are of Ant-v3, which showed no contact forces. With them `zoo train PPO Ant-v5` reaches 206.
    *rows('Ant-v5', 'PPO', 'SAC', 'TD3', seeds=3, long=True, env_params={'include_cfrc_ext_in_observation': False}),
    *rows('FetchPush-v4', 'TQC', 'SAC', seeds=1, long=True),
]
ROWS = {one.name: one for one in LISTED}


# One seed, in a process of its own


def folder_of(asked: Row, seed: int) -> Path:
    """Return the run directory of a seed."""
    return RUNS / f'{asked.alg}_{asked.env_id}_{seed}'


def train(asked: Row, seed: int) -> dict[str, Any]:
    """Train one seed, or go on with it, and test its best agent; return its entry in the results."""
    import zoo

    folder = folder_of(asked, seed)
    if any((folder / 'checkpoints').glob('[0-9]*')):
        if zoo.load(folder).loop_state is not None:
            zoo.resume(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        zoo.train(asked.alg, asked.env_id, seed=seed, run_dir=folder, **asked.arguments)
    run = zoo.open_run(folder)
    agent = run.load(best=run.best is not None)
    found = {'score': tested(agent, run, CHOICE_SEED), 'policy': 'last' if run.best is None else 'best'}
    if run.best is not None and agent.steps == run.steps:
        found['policy'] = 'last'
    found |= {'steps': agent.steps, 'train_steps': run.steps, 'seconds': round(seconds_of(run), 1), 'date': today()}
    return found | {'versions': {'zoo': zoo.__version__} | versions('tensorflow', 'keras', 'gymnasium', 'numpy')}


def seconds_of(run: Any) -> float:
    """Return the wall time of a training, from the ends of its episodes."""
    return max(run.episodes.get('t', []), default=0.0)


def tested(agent: Any, run: Any, seed: int) -> dict[str, Any]:
    """Test the deterministic policy in the environment of its training, one copy; return the score."""
    env = run.build_env(seed, nenv=1, vectorized=False)
    try:
        result = agent.learn(env, 'test', test_episodes=EPISODES, seed=seed, verbose=0)
    finally:
        env.close()
    known = [float(success) for success in result.successes if success is not None]
    return {
        'mean': round(statistics.mean(result.returns), 3),
        'std_error': round(statistics.stdev(result.returns) / math.sqrt(len(result.returns)), 3),
        'min': round(min(result.returns), 3),
        'max': round(max(result.returns), 3),
        'episodes': len(result.returns),
        'success': round(statistics.mean(known), 3) if known else None,
    }


# The trained agent


def keep(asked: Row, seed: int, entry: dict[str, Any]) -> dict[str, Any]:
    """Make the agent of a seed the trained agent of its row, with card, film and curve."""
    import zoo
    from zoo.agents.finding import BESIDE, TRAINED

    run = zoo.open_run(folder_of(asked, seed))
    agent = run.load(best=run.best is not None)
    score = tested(agent, run, CARD_SEED)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / 'agent'
        saved = agent.save(folder / 'checkpoints' / f'{agent.steps:09d}', training_state=False)
        shutil.copy(run.path / 'config.json', folder)
        write_curve(run, folder / 'progress.csv')
        size = sum(file.stat().st_size for file in saved.iterdir())
        small = size <= IN_PACKAGE.get(run.config['env_type'], IN_PACKAGE_ELSE)
        for root in (TRAINED, BESIDE):  # it may have been of another size before
            shutil.rmtree(root / asked.name, ignore_errors=True)
        shutil.copytree(folder, (TRAINED if small else BESIDE) / asked.name)
    write_card(asked, seed, entry, score, 'package' if small else 'repository', run.config['env_type'])
    return score


def write_curve(run: Any, path: Path) -> None:
    """Write the learning curve in a hundred rows, so that ``zoo plot`` draws it."""
    steps, returns = run.smooth_curve
    picked = sorted({round(i * (len(steps) - 1) / 99) for i in range(100)}) if len(steps) else []
    lines = ['step,episode/return', *(f'{int(steps[i])},{returns[i]:.6g}' for i in picked)]
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')


def write_card(asked: Row, seed: int, entry: dict[str, Any], score: dict[str, Any], place: str, env_type: str) -> None:
    """Write the card of a trained agent."""
    from zoo.agents import Card
    from zoo.agents.finding import TRAINED

    names = ('policy', 'steps', 'train_steps', 'seconds', 'date', 'versions')
    card = Card(
        algorithm=asked.alg,
        environment=asked.env_id,
        env_type=env_type,
        seed=seed,
        seeds={number: one['score']['mean'] for number, one in results_of(asked).items()},
        score=score,
        published=published(asked.alg, asked.env_id),
        command=command_of(asked, seed),
        place=place,
        **{name: entry[name] for name in names},
    )
    folder = TRAINED / asked.name
    folder.mkdir(parents=True, exist_ok=True)
    card.write(folder)


def results_of(asked: Row) -> dict[str, Any]:
    """Return the entries of a row's seeds, in the order of the seeds."""
    found = read_results('agents').get(asked.name, {})
    return {seed: found[seed] for seed in sorted(found, key=int)}


def command_of(asked: Row, seed: int) -> str:
    """Return the command that trains a seed of a row again."""
    given = dict(asked.arguments)
    words = ['zoo', 'train', asked.alg, asked.env_id, '--seed', str(seed)]
    for name, option in (('train_steps', '--steps'), ('nenv', '--nenv')):
        words += [option, str(given.pop(name))] if name in given else []
    words += [f'--env-set {name}={value}' for name, value in given.pop('env_params', {}).items()]
    return ' '.join([*words, *(f'--set {name}={value}' for name, value in given.items())])


def draw(name: str) -> dict[str, Any]:
    """Draw the film and the learning curve of a trained agent."""
    import zoo

    GALLERY.mkdir(parents=True, exist_ok=True)
    run = zoo.open_run(name)
    draw_curve(run, picture(name, '.png'))
    if not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
    view = CAMERAS.get(ROWS[name].env_id, {})
    env = run.build_env(FILM_SEED, nenv=1, vectorized=False, render_mode='rgb_array', **view)
    try:
        draw_film(run.load(), env, picture(name, '.webp'))
    finally:
        env.close()
    return {}


# What is asked for


def worker(task: str, name: str, **given: Any) -> Any:
    """Do a piece of work in a process of its own and return its answer."""
    what = json.dumps({'task': task, 'name': name, **given})
    env = environment()
    env.pop('ZOO_DEFAULTS', None)  # the user's own defaults do not count here
    return answer_of([sys.executable, __file__, '--work', what], env, shown=True)


def work(given: dict[str, Any]) -> dict[str, Any]:
    """Do a piece of work that `worker` asked for."""
    name, task = given['name'], given['task']
    if task == 'train':
        return train(ROWS[name], given['seed'])
    if task == 'keep':
        return keep(ROWS[name], given['seed'], given['entry'])
    return draw(name)


def run_seed(asked: Row, seed: int) -> None:
    """Train a seed, note its score, and keep its agent if it is the best of its row so far."""
    name = asked.name
    entry = worker('train', name, seed=seed)
    told = f'{entry["score"]["mean"]:.1f} ± {entry["score"]["std_error"]:.1f} in {entry["seconds"] / 60:.1f} min'
    print(f'{name} seed {seed}: {told}', flush=True)
    results = read_results('agents')  # another process may have added its rows meanwhile
    results.setdefault(name, {})[str(seed)] = entry
    write_results('agents', results)
    best = max(results_of(asked).items(), key=lambda found: (found[1]['score']['mean'], -int(found[0])))[0]
    if best == str(seed):
        score = worker('keep', name, seed=seed, entry=entry)
        print(f'{name} is seed {seed} now: {score["mean"]:.1f} ± {score["std_error"]:.1f}', flush=True)
        draw_pictures(name)
    else:
        note_seeds(name)
    shutil.rmtree(folder_of(asked, seed), ignore_errors=True)
    write_pages(ROWS)


def note_seeds(name: str) -> None:
    """Write the scores of all seeds into a card that is there."""
    from zoo.agents.finding import TRAINED

    seeds = {number: one['score']['mean'] for number, one in results_of(ROWS[name]).items()}
    for card in cards(ROWS):
        if card.name == name:
            replace(card, seeds=seeds).write(TRAINED / name)


def draw_pictures(name: str) -> None:
    """Draw film and curve; where that fails, say why and go on."""
    try:
        worker('draw', name)
    except RuntimeError as error:
        print(f'{name} has no film: {error}', flush=True)


def check(names: list[str]) -> int:
    """Test trained agents again; return 1 if one is not as good as its card says."""
    import zoo

    failed = 0
    for card in cards(ROWS):
        if card.name not in names:
            continue
        try:
            run = zoo.open_run(card.name)
            found = tested(run.load(), run, CHECK_SEED)
        except Exception as error:
            print(f'{card.name} FAILED: {error}', flush=True)
            failed += 1
            continue
        allowed = ALLOWED * math.hypot(found['std_error'], card.score['std_error'])
        well = abs(found['mean'] - card.score['mean']) <= allowed
        failed += not well
        told = f'{found["mean"]:.1f} ± {found["std_error"]:.1f}, card {card.shown_score}'
        print(f'{card.name} {"as its card says" if well else "FAILED"}: {told}', flush=True)
    print(f'{failed} failed' if failed else 'all as their cards say')
    return int(failed > 0)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument('rows', nargs='*', metavar='ALGORITHM/ENVIRONMENT', help='all when none is named')
    parser.add_argument('--seeds', type=int, nargs='+', help="instead of the row's own")
    parser.add_argument('--again', action='store_true', help='train seeds that are there again')
    parser.add_argument('--check', action='store_true', help='train nothing: test the agents again beside their cards')
    parser.add_argument('--films', action='store_true', help='train nothing: draw films and learning curves again')
    parser.add_argument('--pages', action='store_true', help='train nothing: write the pages')
    parser.add_argument(
        '--list', action='store_true', help='train nothing: list the rows, and the seeds that are missing'
    )
    parser.add_argument('--work', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work is not None:
        print('\n' + json.dumps(work(json.loads(args.work))), flush=True)
        return 0
    names = checked(parser, 'row', args.rows, ROWS)
    if args.list:
        for name in names:
            print(name, *(seed for seed in ROWS[name].seeds if str(seed) not in read_results('agents').get(name, {})))
        return 0
    if args.check:
        return check(names)
    if args.films or args.pages:
        for card in cards(ROWS) if args.films else ():
            if card.name in names:
                draw_pictures(card.name)
        write_pages(ROWS)
        return 0
    failed = []
    for name in names:
        for seed in args.seeds or ROWS[name].seeds:
            there = str(seed) in read_results('agents').get(name, {})
            # A run directory that is there was interrupted, or its agent could not be kept.
            if there and not args.again and not folder_of(ROWS[name], seed).exists():
                continue
            try:
                run_seed(ROWS[name], seed)
            except RuntimeError as error:
                print(f'{name} seed {seed} failed: {error}', flush=True)
                failed.append(f'{name} seed {seed}')
    print(f'failed: {", ".join(failed)}' if failed else 'all rows are there')
    return int(bool(failed))


if __name__ == '__main__':
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets a job in the background ignore the first one
        signal.signal(number, signal.default_int_handler)
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        told = 'interrupted: the same command goes on from here'
        raise SystemExit(1 if '--work' in sys.argv else told) from None
