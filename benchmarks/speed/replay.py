"""What it takes to draw from a replay buffer: uniformly, several steps as one, by priority, compressed.

    python benchmarks/speed/replay.py             # a few minutes; writes results/replay.md
    python benchmarks/speed/replay.py --steps 2000 --frames 2000 --out FILE    # a quick look

A transition is stored, a batch is drawn, and where the draw is by priority, new priorities are set and summed up with
the next draw; the columns take turns within a round. Rows are filled without an environment, but for the frames of
Pong, which a random policy plays.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import RESULTS, header, parser_of, ratios, row, stamp, take_turns

import zoo
from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Transition
from zoo.common.replay.replay import Replay
from zoo.common.sampling import Priorities, Sampling

BATCH = 256
CAPACITY = 1_000_000
ROUNDS = 7
GAMMA = 0.99
SAMPLINGS = {
    'uniform': Sampling(GAMMA),
    '3 steps as one': Sampling(GAMMA, 3),
    'by priority': Sampling(GAMMA, 1, Priorities()),
    'by priority, 3 steps': Sampling(GAMMA, 3, Priorities()),
}
TASKS: dict[str, tuple[Space, Space]] = {
    '`CartPole-v1`: 4 numbers': (Box(-1, 1, (4,), np.float32), Discrete(2)),
    '`HalfCheetah-v5`: 17 numbers': (Box(-1, 1, (17,), np.float64), Box(-1, 1, (6,), np.float32)),
    '`Humanoid-v5`: 348 numbers': (Box(-1, 1, (348,), np.float64), Box(-1, 1, (17,), np.float32)),
}


def filled(observation_space: Space, action_space: Space, sampling: Sampling, capacity: int) -> Replay:
    """A replay buffer with a million transitions of episodes of a thousand steps, with a priority each."""
    adaptor = ActionAdaptor(action_space)
    replay = Replay(observation_space, adaptor, capacity, 1, sampling)
    state = replay.state() | {'cursor': np.array([capacity]), 'full': np.array([True]), 'added': np.array(capacity)}
    rows, rng = replay.rows, np.random.default_rng(0)
    for name, x in state.items():
        if x.ndim >= 2:
            state[name] = np.broadcast_to(x[:, :1], (1, rows, *x.shape[2:]))
    valid = np.arange(rows) % 1001 != 1000
    valid[capacity:] = False
    state |= {'valid': valid[None], 'reward': rng.random((1, rows), np.float32)}
    if sampling.priorities is not None:
        state |= {'priority': (rng.random(rows) * valid)[None], 'highest_priority': np.array(1.0)}
    replay.restore(state)
    return replay


def timed(works: dict[str, Callable[[], Any]], calls: int) -> dict[str, list[float]]:
    """Return the microseconds of a call of each, by round; the order is reversed in every second round."""

    def microseconds(work: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - begin) / calls * 1e6

    for work in works.values():
        work()
    return take_turns({name: functools.partial(microseconds, work) for name, work in works.items()}, ROUNDS, True)


def drawing(replay: Replay, rng: np.random.Generator) -> Callable[[], Any]:
    """Draw a batch and, by priority, set its priorities."""
    new = rng.random((64, 1, BATCH), np.float32)
    turn = 0

    def draw() -> None:
        nonlocal turn
        turn = (turn + 1) % len(new)
        replay.sample((1, BATCH), rng, 0.5)
        if replay.sampling.priorities is not None:
            replay.prioritize(new[turn])

    return draw


def adding(replay: Replay, obs: Any, after: Any) -> Callable[[], Any]:
    """Store a transition of one copy."""
    no = np.zeros(1, bool)
    action = replay_action(replay)

    def add() -> None:
        replay.add(Transition(obs, action, np.ones(1, np.float32), after, no, no))

    return add


def replay_action(replay: Replay) -> Any:
    """A stored action of one copy."""
    return spaces.tree_map(lambda x: np.zeros((1, *x.shape[1:]), x.dtype), replay.action)


def vectors(steps: int) -> list[str]:
    """The table of observations that are vectors."""
    lines = [
        f'## A batch of {BATCH} out of {CAPACITY:,}',
        '',
        *header('microseconds', *SAMPLINGS, 'by priority / uniform'),
    ]
    for title, (observation_space, action_space) in TASKS.items():
        replays = {name: filled(observation_space, action_space, kind, CAPACITY) for name, kind in SAMPLINGS.items()}
        rng, obs = np.random.default_rng(1), np.zeros((1, *observation_space.shape), observation_space.dtype)
        for what, works in (
            ('draw and set priorities', {name: drawing(replay, rng) for name, replay in replays.items()}),
            ('store one', {name: adding(replay, obs, obs) for name, replay in replays.items()}),
        ):
            took = timed(works, steps)
            ratio = statistics.median(ratios(took['by priority'], took['uniform']))
            medians = (f'{statistics.median(times):.0f}' for times in took.values())
            lines.append(row(f'{title}, {what}', *medians, f'{ratio:.1f}'))
        del replays, works
    return [*lines, '']


def pong(size: int, count: int) -> np.ndarray:
    """Frames ``[count, size, size, 1]`` of Pong as a random policy sees them."""
    env = zoo.build_env('PongNoFrameskip-v4', 'atari', frame_size=size, frame_stack=1)
    rng, found = np.random.default_rng(0), []
    obs, _ = env.reset(seed=0)
    while len(found) < count:
        found.append(np.array(obs))
        obs, _, terminated, truncated, _ = env.step(int(rng.integers(env.action_space.n)))
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()
    return np.stack(found)


def images(count: int, steps: int) -> list[str]:
    """The tables of frames: the buffer, and the codecs by themselves."""
    lines = [
        f'## Frames of `PongNoFrameskip-v4`, stacks of four, {count:,} of them',
        '',
        *header('', 'not compressed', 'compressed'),
    ]
    codecs = [
        '## LZ4 and Zstandard',
        '',
        f'One frame at a time, as they are stored and drawn, over {count:,} frames.',
        '',
        *header('frames', 'codec', 'bytes of a frame', 'packed to', 'microseconds to pack', 'to unpack'),
    ]
    for size in (42, 84):
        frames = pong(size, count)
        space = spaces.FrameStack(Box(0, 255, (size, size, 1), np.uint8), 4)
        replays = [Replay(space, ActionAdaptor(Discrete(6)), count, compress=compress) for compress in (False, True)]
        no, action = np.zeros(1, bool), np.zeros(1, np.int32)
        stack = np.repeat(frames[:1], 4, axis=-1)
        for t in range(1, count):
            after = np.concatenate([stack[..., 1:], frames[t : t + 1]], -1)
            for replay in replays:
                replay.add(Transition(stack, action, np.ones(1, np.float32), after, no, no))
            stack = after
        rng = np.random.default_rng(1)
        names = ('not compressed', 'compressed')
        drawn = timed(
            {name: drawing(replay, rng) for name, replay in zip(names, replays, strict=True)}, max(1, steps // 50)
        )
        added = timed({name: adding(x, stack, after) for name, x in zip(names, replays, strict=True)}, steps)
        held = [replay.obs.nbytes / count for replay in replays]
        title = f'{size}×{size}'
        lines.append(f'| {title}: bytes of a transition | {held[0]:,.0f} | {held[1]:,.0f} ({held[0] / held[1]:.1f}×) |')
        lines.append(f'| {title}: gigabytes of 1,000,000 | {held[0] / 1e3:.2f} | {held[1] / 1e3:.2f} |')
        for what, times in ((f'draw {BATCH}', drawn), ('store one', added)):
            medians = (f'{statistics.median(times[name]):,.0f}' for name in names)
            lines.append(row(f'{title}: microseconds to {what}', *medians))
        codecs += codec_rows(title, frames)
    return [*lines, '', *codecs, '']


def codec_rows(title: str, frames: np.ndarray) -> list[str]:
    """Each codec on frames one by one."""
    import lz4.block
    import zstandard

    raw = [frame.tobytes() for frame in frames]
    size = len(raw[0])
    codecs: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
        'LZ4': (
            lambda x: lz4.block.compress(x, store_size=False),
            lambda x: lz4.block.decompress(x, uncompressed_size=size),
        )
    }
    for level in (-1, 1, 3):
        packer, unpacker = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
        codecs[f'Zstandard {level}'] = (packer.compress, lambda x, u=unpacker: u.decompress(x, max_output_size=size))
    packed = {name: [pack(x) for x in raw] for name, (pack, _) in codecs.items()}
    packing = timed({name: lambda pack=pack: [pack(x) for x in raw] for name, (pack, _) in codecs.items()}, 1)
    unpacking = timed(
        {name: lambda u=unpack, p=packed[name]: [u(x) for x in p] for name, (_, unpack) in codecs.items()}, 1
    )
    rows = []
    for name in codecs:
        mean = sum(map(len, packed[name])) / len(raw)
        took = [statistics.median(times[name]) / len(raw) for times in (packing, unpacking)]
        rows.append(row(title, name, f'{size:,}', f'{mean:,.0f}', *(f'{x:.1f}' for x in took)))
    return rows


def main() -> None:
    """Measure and write the page."""
    parser = parser_of(__doc__)
    parser.add_argument('--steps', type=int, default=2000, help='calls in a round')
    parser.add_argument('--frames', type=int, default=20_000, help='frames of Pong')
    parser.add_argument('--out', type=Path, default=RESULTS / 'replay.md')
    args = parser.parse_args()
    lines = [
        '# Drawing from a replay buffer',
        '',
        f'`python benchmarks/speed/replay.py --steps {args.steps} --frames {args.frames}`, '
        f'{stamp("numpy", "lz4", "zstandard")}. Medians over {ROUNDS} rounds in which the columns took turns; the '
        'ratio is the median of those within a round.',
        '',
        *vectors(args.steps),
        *images(args.frames, args.steps),
    ]
    args.out.write_text('\n'.join(lines).rstrip() + '\n', encoding='utf-8')
    print('\n'.join(lines))


if __name__ == '__main__':
    main()
