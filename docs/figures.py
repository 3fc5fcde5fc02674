"""Write the pictures of the pages about concepts, ``docs/images/*.svg``: ``python docs/figures.py [NAME…]``.

Shapes, sizes and numbers come from agents, buffers and runs that this program makes. A second run writes the same
bytes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
from gymnasium.spaces import Box, Dict, Discrete  # noqa: E402
from svg import BLUE, DARK, GRAY, GREEN, INK, ORANGE, PALE, PLAIN, WHITE, YELLOW, Picture  # noqa: E402

import zoo  # noqa: E402
from zoo import algorithms, build_env, call_default_params  # noqa: E402

WIDTH = 640
QUIET: dict[str, Any] = {'verbose': 0, 'run_dir': False}


def adaptors() -> Picture:
    """A nested observation on its way to a composed action, with the layers of a real agent."""
    from zoo.common.plots.diagrams import boxes_of

    robot = Dict(mode=Discrete(3), pose=Box(-1, 1, (6,)))
    observation = Dict(camera=Box(0, 255, (64, 64, 3), np.uint8), robot=robot)
    action = Dict(gripper=Discrete(2), move=Box(-0.5, 0.5, (3,)))
    agent = algorithms.PPO(observation, action, net_list=[{'hidden': [64, 64]}, 'actor'])
    boxes = boxes_of(agent)
    picture = Picture(WIDTH, 668, 'A nested observation through encoders, torso and heads to a composed action')
    middles = {'camera': 170, 'robot/mode': 402, 'robot/pose': 556}
    wide = {'camera': 220, 'robot/mode': 140, 'robot/pose': 140}
    picture.text(12, 14, 'observation: a nested Dict', 13, 'start', bold=True)
    features = {item.path: item for item in agent.preprocess.features}
    inputs = {box.title: box for box in boxes if box.kind == 'input'}
    kinds = {'image': 'scaled to [0, 1]', 'one_hot': 'one-hot', 'vector': 'as it is'}
    for path, x in middles.items():
        width = wide[path]
        picture.box(x - width / 2, 28, width, 40, [path, inputs[path].shape], WHITE, round_=9)
        shape = ' × '.join(map(str, features[path].shape))
        picture.box(x - width / 2, 92, width, 40, [kinds[features[path].kind], shape], PLAIN)
        picture.arrow((x, 68), (x, 92))
    encoder = [box for box in boxes if box.kind == 'image']
    encoder.append(next(box for box in boxes if box.kind == 'dense' and box.parents == [encoder[-1]]))
    y = 156.0
    for box in encoder:
        picture.arrow((170, y - 24 if box is encoder[0] else y - 8), (170, y))
        picture.box(60, y, 220, 36, [box.title, box.shape], BLUE, 12)
        y += 44
    picture.text(288, 240, 'encoder', 13, 'start', color=GRAY)
    join = next(box for box in boxes if box.title == 'join')
    picture.box(60, 344, 566, 26, f'joined: {join.shape} numbers', PLAIN)
    for path, x in middles.items():
        picture.arrow((x, y - 8 if path == 'camera' else 132), (x, 344))
    hidden = [box for box in boxes if box.kind == 'dense' and box is not encoder[-1]]
    y = 392.0
    for box in hidden:
        picture.arrow((343, 370 if box is hidden[0] else y - 8), (343, y))
        picture.box(233, y, 220, 28, f'{box.title}: {box.shape}', PALE)
        y += 36
    picture.text(226, 424, 'torso', 13, 'end', color=GRAY)
    heads = [box for box in boxes if box.kind == 'head']
    parts = agent.action_adaptor.parts
    actor, critic = heads[0], heads[-1]
    given = ' + '.join(f'{part.outputs}' for part in parts)
    picture.box(60, 488, 380, 28, f'head of the policy: {actor.shape} outputs, {given}', ORANGE)
    picture.box(476, 488, 150, 28, f'value: {critic.shape} output', ORANGE)
    picture.arrow((343, y - 8), (343, 488))
    picture.arrow((343, y + 3), (551, y + 3), (551, 488))
    x = 60.0
    words = {'gripper': ['categorical', 'one of 2 logits'], 'move': ['gaussian', '3 means, 3 deviations']}
    spaces = {'gripper': 'Discrete(2)', 'move': 'Box(3), to ±0.5'}
    for part in parts:
        picture.arrow((x + 90, 516), (x + 90, 540))
        assert words[part.path][0] == part.kind
        picture.box(x, 540, 180, 40, words[part.path], YELLOW)
        picture.arrow((x + 90, 580), (x + 90, 604))
        picture.box(x, 604, 180, 40, [part.path, spaces[part.path]], WHITE, round_=9)
        x += 200
    picture.text(12, 656, 'action: a composed Dict', 13, 'start', bold=True)
    picture.text(452, 560, 'a sample while it explores,', 12, 'start', color=GRAY)
    picture.text(452, 577, 'else the most likely action', 12, 'start', color=GRAY)
    return picture


def loops() -> Picture:
    """Two timelines with the default numbers of PPO in CartPole and of TD3 in Pendulum."""
    ppo, td3 = (
        call_default_params(build_env(env_id, 'classic_control'), 'classic_control', name)[1]
        for name, env_id in (('PPO', 'CartPole-v1'), ('TD3', 'Pendulum-v1'))
    )
    picture = Picture(WIDTH, 424, 'The loop over rollouts and the loop over a replay buffer')
    picture.text(12, 16, 'on_policy: PPO in CartPole-v1', 14, 'start', bold=True)
    horizon, epochs, batch = ppo['horizon'], ppo['epochs'], ppo['batch_size']
    minibatches = horizon // batch
    x = 12.0
    for i in range(2):
        picture.box(x, 34, 136, 46, ['collect', f'{horizon} steps'], BLUE)
        label = f'{epochs} epochs × {minibatches} minibatch' + ('es' if minibatches > 1 else '')
        picture.box(x + 136, 34, 164, 46, ['update', label], ORANGE, 12)
        picture.arrow((x + 222, 80), (x + 222, 100))
        picture.text(x + 222, 110, 'rollout is dropped', 12, color=GRAY)
        picture.text(x + 68, 94, 'policy ' + 'AB'[i], 12, color=GRAY)
        x += 304
    picture.text(x - 4, 57, '…', 14, 'start')
    picture.arrow((12, 136), (628, 136))
    first = f'{horizon}'
    picture.text(160, 150, f'step {first}', 12, color=GRAY)
    picture.text(464, 150, f'step {2 * horizon}', 12, color=GRAY)
    picture.text(
        12, 172, 'One call updates on the whole rollout. A step is used only in its own iteration.', 12, 'start'
    )

    picture.text(12, 214, 'off_policy: TD3 in Pendulum-v1', 14, 'start', bold=True)
    explore, every = td3['explore_steps'], td3['update_every']
    assert every == 1 and td3['updates'] is None  # what is drawn
    picture.box(12, 232, 190, 46, [f'{explore:,} random steps', 'no update yet'], PLAIN)
    x = 210.0
    while x < 590:
        picture.box(x, 232, 22, 46, '1', BLUE, 12)
        picture.box(x + 22, 232, 22, 46, '1', ORANGE, 12)
        x += 50
    picture.text(x + 2, 255, '…', 14, 'start')
    picture.arrow((107, 278), (107, 304))
    for at in range(221, 590, 50):
        picture.arrow((at, 278), (at, 304))
        picture.arrow((at + 22, 304), (at + 22, 278))
    picture.box(12, 304, 600, 36, f'replay buffer: the last {td3["buffer_size"]:,} transitions', GREEN)
    picture.box(12, 362, 22, 22, '1', BLUE, 12)
    picture.text(42, 373, 'environment step: its transition goes into the buffer', 12, 'start')
    picture.box(12, 392, 22, 22, '1', ORANGE, 12)
    picture.text(42, 403, f'gradient update: it draws {td3["batch_size"]} transitions, old and new', 12, 'start')
    return picture


class Counted(gymnasium.Env):
    """Episodes of given lengths, over and over: 0 terminated, 1 truncated."""

    lengths = ((5, 0), (4, 0), (6, 1), (3, 0))

    def __init__(self, first: int = 0) -> None:
        self.observation_space, self.action_space, self.count = Box(0, 99, (1,), np.float32), Discrete(2), first

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.step_, self.episode = 0, self.lengths[self.count % 4]
        self.count += 1
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.step_ += 1
        ends = self.step_ == self.episode[0]
        return np.full(1, self.step_, np.float32), 1.0, ends and not self.episode[1], ends and bool(self.episode[1]), {}


def rollout() -> Picture:
    """A real rollout ``[T, N]`` of four copies, with the ends of their episodes."""
    steps, copies = 16, 4
    made = iter(range(copies))
    env = build_env(lambda: Counted(next(made, 0)), 'gymnasium', nenv=copies)
    agent = algorithms.PPO(env.single_observation_space, env.single_action_space, net_list=[{'hidden': [8]}] * 2)
    found = agent.rollout(env, steps=steps * copies)
    picture = Picture(WIDTH, 262, 'A rollout of sixteen steps of four copies')
    picture.text(12, 16, f'one rollout: T = {steps} steps of N = {copies} copies', 14, 'start', bold=True)
    for copy in range(copies):
        y = 40 + 38 * copy
        picture.text(12, y + 14, f'copy {copy}', 13, 'start')
        for step in range(steps):
            kind = ORANGE if found.terminated[step, copy] else YELLOW if found.truncated[step, copy] else BLUE
            picture.box(
                72 + 34 * step, y, 34 if step == steps - 1 else 33, 28, str(int(found.obs[step, copy, 0])), kind
            )
    for x, fill, word in ((72, BLUE, 'step'), (150, ORANGE, 'terminated'), (262, YELLOW, 'truncated')):
        picture.box(x, 202, 18, 18, '', fill)
        picture.text(x + 25, 211, word, 12, 'start')
    picture.text(366, 211, 'number: steps since the reset', 12, 'start', color=GRAY)
    note = 'An episode may go on after the last column: the value of the next observation stands for the rest.'
    picture.text(12, 244, note, 12, 'start')
    return picture


def replay() -> Picture:
    """A real ring of rows: what is overwritten, a transition of three steps, a drawn batch."""
    from zoo.common.adaptors.action import ActionAdaptor
    from zoo.common.records import Transition
    from zoo.common.replay.replay import Replay
    from zoo.common.sampling import Sampling

    space, n_step = Box(0, 99, (1,), np.float32), 3
    ring = Replay(space, ActionAdaptor(Discrete(2)), 14, 1, Sampling(0.99, n_step))
    env = Counted()
    obs, _ = env.reset()
    for _ in range(22):
        after, reward, terminated, truncated, _ = env.step(0)
        ends = (np.array([flag]) for flag in (terminated, truncated))
        ring.add(Transition(obs[None], np.zeros(1, np.int32), np.full(1, reward, np.float32), after[None], *ends))
        obs = env.reset()[0] if terminated or truncated else after
    picture = Picture(WIDTH, 372, 'The ring of a replay buffer, a transition of three steps, a drawn batch')
    picture.text(12, 16, f'one ring of {ring.rows} rows, after 22 steps', 14, 'start', bold=True)
    cell, cursor = 40.0, int(ring.cursor[0])
    for row in range(ring.rows):
        x = 20 + cell * row
        at_end = not ring.valid[row] and row != cursor
        fill = WHITE if row == cursor else DARK if at_end else BLUE
        if ring.valid[row] and (ring.terminated[row] or ring.truncated[row]):
            fill = ORANGE if ring.terminated[row] else YELLOW
        picture.box(x, 62, cell - 2, 32, str(int(ring.obs[row, 0])), fill, dashed=row == cursor)
    x = 20 + cell * cursor + cell / 2 - 1
    picture.text(x, 40, 'cursor', 12)
    picture.arrow((x, 48), (x, 62))
    picture.arrow((20 + cell * ring.rows - 2, 78), (632, 78), (632, 108), (8, 108), (8, 78), (20, 78), dashed=True)
    held = np.flatnonzero(ring.valid)
    chain, taken = ring.steps(held)
    whole = [i for i in range(len(held)) if taken[:, i].all() and (np.diff(chain[:, i]) == 1).all()]
    short = [i for i in range(len(held)) if taken[:, i].sum() == 2 and chain[1, i] > chain[0, i]]
    for i, y in ((whole[0], 122), (short[-1], 122)):
        rows = chain[taken[:, i], i]
        left, right = 20 + cell * rows[0], 20 + cell * (rows[-1] + 1) - 2
        picture.line((left, y), (left, y + 8), (right, y + 8), (right, y))
        label = 'n_step=3: r₀ + γ r₁ + γ² r₂' if len(rows) == 3 else 'the newest: 2 steps so far'
        picture.text((left + right) / 2, y + 22, label, 12)
    drawn = ring.sample((6,), np.random.default_rng(5))
    picture.text(20, 180, 'a drawn batch', 13, 'start', bold=True)
    for i in range(6):
        picture.box(136 + 82 * i, 166, 76, 28, f'{drawn.obs[i, 0]:.0f} → {drawn.next_obs[i, 0]:.0f}', GREEN)
    entries = (
        (BLUE, 'a row: observation, action, reward; the next observation is in the next row'),
        (ORANGE, 'the last step before a termination: no value after it'),
        (YELLOW, 'the last step before a truncation: the value of the final observation counts'),
        (DARK, 'a final observation, which is never drawn; the episodes are kept apart by it'),
        (WHITE, 'the newest observation; the next step writes its action and reward here'),
        (GREEN, 'a transition: an observation, and the one that is up to three steps later'),
    )
    for i, (fill, word) in enumerate(entries):
        picture.box(20, 212 + 26 * i, 18, 18, '', fill, dashed=fill == WHITE)
        picture.text(46, 221 + 26 * i, word, 12, 'start')
    return picture


def roles() -> Picture:
    """The roles with the queues between them, and the default numbers of Ape-X DQN."""
    given = algorithms.ApexDQN.learn_defaults['roles']
    from zoo.distributed.training.plan import FREE_DRAWN_AHEAD

    message = 32  # zoo/distributed/training/planning.py: transitions in a message of an actor

    picture = Picture(WIDTH, 470, 'Learner, actor, server and replay buffer with the queues between them')
    picture.box(24, 20, 190, 96, ['learner', 'updates the agent', 'writes the run directory'], ORANGE)
    picture.box(430, 20, 190, 96, ['actor', 'steps nenv copies', 'of the environment'], BLUE)
    picture.arrow((430, 44), (214, 44))
    picture.text(322, 34, 'rollouts', 12)
    picture.arrow((214, 74), (430, 74))
    picture.text(322, 64, 'replies', 12)
    picture.arrow((214, 104), (430, 104), dashed=True)
    picture.text(322, 94, 'weights, when asked for', 12)
    picture.arrow((104, 116), (104, 140), (136, 140), (136, 116), both=True)
    picture.text(150, 136, 'several learners average', 12, 'start', color=GRAY)
    picture.text(150, 152, 'every gradient', 12, 'start', color=GRAY)
    picture.box(430, 156, 190, 42, ['server', 'holds the policy'], PALE)
    picture.arrow((490, 116), (490, 156))
    picture.text(483, 136, 'observations', 12, 'end')
    picture.arrow((550, 156), (550, 116))
    picture.text(557, 136, 'actions', 12, 'start')
    picture.text(12, 226, 'with a replay buffer in ranks of its own', 14, 'start', bold=True)
    names = ('learners', 'buffers', 'actors')
    picture.text(
        12,
        246,
        'ApexDQN: ' + ', '.join(f'{given[name]} {name[: None if given[name] > 1 else -1]}' for name in names),
        12,
        'start',
    )
    picture.box(30, 300, 150, 72, ['learner', 'updates without', 'waiting for steps'], ORANGE)
    picture.box(270, 300, 130, 72, ['buffer', 'stores, draws,', 'keeps priorities'], GREEN)
    for i in range(given['actors']):
        y = 268 + 78 * i
        picture.box(500, y, 120, 48, [f'actor {i}', 'ε of its own'], BLUE)
        picture.arrow((500, y + 24), (400, 324 + 24 * i))
    picture.text(446, 250, f'{message} steps a message', 12)
    picture.arrow((270, 314), (180, 314))
    picture.text(225, 304, 'batches', 12)
    picture.arrow((270, 338), (180, 338))
    picture.text(225, 328, 'counts', 12)
    picture.arrow((180, 362), (270, 362))
    picture.text(225, 352, 'asks, |δ|', 12)
    picture.arrow((105, 372), (105, 424), (560, 424), (560, 394), dashed=True)
    picture.text(332, 414, 'weights and replies, to every actor', 12)
    note = f'A buffer draws {FREE_DRAWN_AHEAD} batches ahead, so that the learner need not wait for it.'
    picture.text(12, 452, note, 12, 'start')
    return picture


#: What each file of a run directory is.
FILES = {
    'best': 'the best agent of the tests',
    'best.json': 'how good the best and the last agent are',
    'checkpoints': 'saved agents, named by their steps',
    'config.json': 'spaces, networks, hyper-parameters, seed',
    'curve.png': 'the learning curve',
    'evaluations.csv': 'a row for each episode of the tests',
    'events.out.tfevents.*': 'the log for TensorBoard',
    'monitor.csv': 'a row for each episode of the training',
    'progress.csv': 'losses, returns and speed, about 200 rows',
    'weights.safetensors': 'its weights, optimizers, counters',
}


def run_directory() -> Picture:
    """The tree of a real run of PPO."""
    from zoo.callbacks import KeepBest

    rows: list[tuple[int, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        tests = KeepBest(every=1024, episodes=2, share=None)
        zoo.train(
            'PPO', 'CartPole-v1', train_steps=2048, evaluate=tests, run_dir=folder, verbose=0, checkpoint_every=1024
        )

        def walk(path: Path, depth: int) -> None:
            names = {'events.out.tfevents.*' if p.name.startswith('events') else p.name: p for p in path.iterdir()}
            for name, entry in sorted(names.items()):
                said = f'after {int(name):,} steps' if name.isdigit() else FILES[name]
                if depth == 1 and name == 'config.json':
                    said = 'what the agent is'
                if depth < 2:
                    rows.append((depth, name + '/' * entry.is_dir(), said))
                if entry.is_dir():
                    walk(entry, depth + 1)

        walk(Path(folder), 0)
    step = 25
    picture = Picture(WIDTH, 56 + step * len(rows), 'The files of a run directory')
    picture.text(12, 16, 'runs/PPO_CartPole-v1_<date>-<time>/', 13, 'start', mono=True)
    for i, (depth, name, said) in enumerate(rows):
        x, y = 24 + 28 * depth, 44 + step * i
        picture.line((x, y), (x + 14, y))
        picture.text(x + 19, y, name, 13, 'start', mono=True)
        picture.text(300, y, said, 13, 'start', color=GRAY if depth else INK)
        inside = [j for j in range(i) if rows[j][0] < depth]
        children = [j for j in range(max(inside, default=-1) + 1, len(rows)) if rows[j][0] == depth]
        if i == children[0]:  # the trunk of this folder, to its last file
            last = next((j for j in range(i, len(rows)) if rows[j][0] < depth), len(rows))
            end = max(j for j in children if j < last)
            picture.line((x, y - 16), (x, 44 + step * end))
    return picture


def seeds() -> Picture:
    """The returns of three real runs: two of one seed, and one of another."""
    curves = []
    for seed in (0, 0, 1):
        _, result = zoo.train('PPO', 'CartPole-v1', seed=seed, train_steps=4096, **QUIET)
        curves.append(np.asarray(result.returns))
    assert np.array_equal(curves[0], curves[1]) and not np.array_equal(curves[0], curves[2])
    picture = Picture(WIDTH, 424, 'What a seed fixes, and three runs of two seeds')
    picture.box(20, 26, 96, 40, 'seed=0', WHITE, 14, 9)
    streams = ('environments', 'initial weights', 'acts and draws', 'tests between')
    for i, word in enumerate(streams):
        x = 176 + 116 * i
        picture.box(x, 26, 108, 40, word, PALE, 12)
        picture.arrow((68, 66), (68, 80), (x + 54, 80), (x + 54, 66))
    picture.text(20, 106, 'Each has random numbers of its own, made from the seed and a name.', 12, 'start')
    left, right, top, bottom = 66, 620, 150, 356
    most, longest = max(curve.max() for curve in curves), max(len(curve) for curve in curves)
    picture.text(20, 132, 'PPO in CartPole-v1: return of each episode', 13, 'start', bold=True)
    picture.line((left, top), (left, bottom), (right, bottom), color=INK)
    high = int(-(-most // 50) * 50)
    for value in (0, high // 2, high):
        y = bottom - (bottom - top) * value / high
        picture.line((left - 4, y), (left, y), color=INK)
        picture.text(left - 8, y, str(value), 12, 'end')
    looks = ((2, ORANGE[1], 1.4, True), (0, '#9CC9E6', 6.0, False), (1, BLUE[1], 1.4, False))
    for which, color, width, dashed in looks:
        points = [
            (round(left + (right - left) * i / (longest - 1), 1), round(bottom - (bottom - top) * v / high, 1))
            for i, v in enumerate(curves[which])
        ]
        picture.line(*points, color=color, width=width, dashed=dashed)
    picture.text(right, bottom + 14, 'episode', 12, 'end')
    for x, (_, color, width, dashed), word in zip(
        (450, 66, 180), looks, ('seed 1', 'seed 0', 'seed 0 again: the same line'), strict=True
    ):
        picture.line((x, 392), (x + 30, 392), color=color, width=width, dashed=dashed)
        picture.text(x + 38, 392, word, 12, 'start')
    return picture


def choose() -> Picture:
    """Questions that lead to an algorithm; each answer is checked against what the algorithm can act in."""
    labels = (
        ('few steps', 'a slow simulator', BLUE, ('DQN, QRDQN', 'SAC, TQC, CrossQ', 'PPO')),
        ('little time', 'a fast simulator', GREEN, ('PPO', 'PPO', 'PPO')),
        ('memory', 'one look shows too little', YELLOW, ('PPO, R2D2', 'PPO, SAC', 'PPO')),
        ('many processes', 'a cluster', ORANGE, ('IMPALA, ApexDQN', 'IMPALA, ApexDDPG', 'IMPALA, DPPO')),
        ('no gradients', 'short episodes', PLAIN, ('ARS, ES', 'ARS, ES', 'ARS, ES')),
    )
    kinds = ('one of n', 'Discrete'), ('bounded numbers', 'Box'), ('several at once', 'Dict')
    picture = Picture(WIDTH, 378, 'Which algorithm, by the action space and by what matters most')
    picture.text(12, 18, '1  What is an action?', 14, 'start', bold=True)
    picture.text(12, 114, '2  What matters most?', 14, 'start', bold=True)
    for i, (word, space) in enumerate(kinds):
        x = 184 + 152 * i
        others = {'Dict': 'Dict, Tuple, Multi…'}
        picture.box(x, 34, 144, 46, [word, others.get(space, space)], WHITE, 12, 9)
        picture.arrow((x + 72, 80), (x + 72, 132))
        for j, (_, _, fill, names) in enumerate(labels):
            for name in names[i].split(', '):
                acts_in = getattr(algorithms, name).acts_in
                assert not acts_in or space in acts_in, (space, name, acts_in)
            picture.box(x, 132 + 48 * j, 144, 38, names[i], fill, 12)
    for j, (word, why, _, _) in enumerate(labels):
        picture.text(12, 142 + 48 * j, word, 13, 'start', bold=True)
        picture.text(12, 159 + 48 * j, why, 12, 'start', color=GRAY)
    return picture


FIGURES: dict[str, Callable[[], Picture]] = {
    'adaptors': adaptors,
    'choose': choose,
    'loops': loops,
    'replay': replay,
    'roles': roles,
    'rollout': rollout,
    'run_directory': run_directory,
    'seeds': seeds,
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise SystemExit(f'unknown figure {unknown[0]!r}: choose from {", ".join(FIGURES)}')
    for name in names or FIGURES:
        path = DOCS / 'images' / f'{name}.svg'
        FIGURES[name]().save(path)
        print(path.relative_to(DOCS.parent))


if __name__ == '__main__':
    main(sys.argv[1:])
