"""Replay: what is sampled is exactly what happened, uniformly, in the environment's dtype, and held once."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import SPACES, Counting, drive, expected
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Transition
from zoo.common.replay import sequences
from zoo.common.replay.replay import Replay
from zoo.common.rollouts.collector import Collector
from zoo.common.sampling import Priorities, Sampling
from zoo.common.schedules import Linear

ADAPTOR = ActionAdaptor(Discrete(5))
SEED = 5


class Filled:
    """A replay buffer filled by playing, with everything that was played, written down by copy."""

    def __init__(self, env: Any, capacity: int, form: str = 'box', length: int | None = None) -> None:
        self.collector = Collector(env, ADAPTOR)
        self.copies = self.collector.num_envs
        self.form, self.length = form, length
        self.replay = Replay(SPACES[form], ADAPTOR, capacity, self.copies)
        self.rng = np.random.default_rng(1)
        self.actions: list[list[int]] = [[] for _ in range(self.copies)]
        self.truth: dict[tuple[int, int, int], tuple] = {}
        self.order: list[list[tuple[int, int, int]]] = [[] for _ in range(self.copies)]
        self.seed = SEED
        self.collector.reset(self.seed)

    def play(self, steps: int) -> Filled:
        for _ in range(steps):
            obs, action = self.collector.obs, ADAPTOR.random(self.copies, self.rng)
            c = self.collector
            c.step(action)
            self.replay.add(Transition(obs, action, c.reward, c.next_obs, c.terminated, c.truncated), c.valid)
            for i in np.flatnonzero(c.valid):
                self.actions[i].append(int(action[i]))
        for i, actions in enumerate(self.actions):
            transitions, _ = drive(Counting(length=self.length), self.seed + i, actions)
            played = {(self.seed + i, episode, t): rest for episode, t, *rest in transitions}
            self.order[i] += [key for key in played if key not in self.truth]
            self.truth |= played
        return self

    def restart(self, seed: int) -> None:
        """Reset every copy in mid-episode, as a checkpoint does."""
        self.replay.cut()
        self.seed = seed
        self.actions = [[] for _ in range(self.copies)]
        self.collector.reset(seed)

    def sampled(self, n: int = 1500) -> set[tuple[int, int, int]]:
        """Check ``n`` sampled transitions against what was played; which ones they were."""
        batch = self.replay.sample((n,), np.random.default_rng(2))
        keys = [self.key(batch.obs, k) for k in range(n)]
        distinct = sorted(set(keys))
        place = {key: i for i, key in enumerate(distinct)}
        which = [place[key] for key in keys]
        fields = (batch.action, batch.reward, batch.terminated, batch.truncated)
        for found, wanted in zip(fields, zip(*(self.truth[key] for key in distinct), strict=True), strict=True):
            np.testing.assert_array_equal(found, np.array(wanted)[which])
        for flat, later in ((batch.obs, 0), (batch.next_obs, 1)):
            wanted = [expected(self.form, seed, episode, t + later) for seed, episode, t in distinct]
            for path, x in spaces.tree_items(flat):
                each = np.stack([of[path] if path else of for of in wanted])
                np.testing.assert_array_equal(x, each[which], err_msg=path)
        return set(distinct)

    def key(self, flat: Any, k: int) -> tuple[int, int, int]:
        if self.form == 'discrete':
            number = int(flat[k])
            return number // 10_000, number // 100 % 100, number % 100
        place = {'box': flat, 'float64': flat, 'image': flat, 'stack': flat}.get(self.form)
        if place is None:
            place = flat['0' if self.form == 'tuple' else 'place']
        place = place[k]
        if self.form in ('image', 'stack'):
            place = place[0] if self.form == 'image' else place[0, :, -1]
        return tuple(int(x) for x in place)


def copies(n: int, form: str = 'box', mode: Any = AutoresetMode.SAME_STEP, length: int | None = None) -> SyncVectorEnv:
    return SyncVectorEnv([partial(Counting, form, length=length)] * n, autoreset_mode=mode)


@pytest.mark.parametrize('form', SPACES)
def test_all_that_was_played_is_sampled_exactly(form: str):
    filled = Filled(Counting(form), 100, form).play(60)
    assert filled.sampled() == set(filled.truth)
    assert len(filled.replay) == filled.replay.added == 60


@pytest.mark.parametrize('mode', list(AutoresetMode))
@pytest.mark.parametrize('form', SPACES)
def test_all_that_copies_played_is_sampled_exactly(form: str, mode: AutoresetMode):
    filled = Filled(copies(3, form, mode), 300, form).play(40)
    assert filled.sampled() == set(filled.truth)
    assert len(filled.replay) == filled.replay.added == filled.collector.steps
    assert (filled.collector.steps < 120) == (mode == AutoresetMode.NEXT_STEP)


@pytest.mark.full(but='stack in dict-1-None')
@pytest.mark.parametrize('mode', [None, *AutoresetMode])
@pytest.mark.parametrize('capacity', [1, 2, 7, 31])
@pytest.mark.parametrize('form', ['box', 'stack in dict'])
def test_wrapping_around_keeps_the_newest(form: str, mode: AutoresetMode | None, capacity: int):
    """Over several turns of the ring only what was played is in it, and the newest of each copy is."""
    n = 1 if mode is None else 3
    filled = Filled(Counting(form) if mode is None else copies(n, form, mode), capacity, form)
    for steps in [1, 1, 1, 1, 1, 2, 3, 5, 4, 5, 6, 1, 4, 1, 2, 3, 1, 1, 20]:
        filled.play(steps)
        held = len(filled.replay)
        assert held <= n * max(2, -(-capacity // n))
        found = filled.sampled(12 * held)
        assert len(found) == held
        for i in range(n):
            mine = [key for key in filled.order[i] if key in found]
            assert mine == filled.order[i][-len(mine) :], 'not the newest'


def test_capacity_is_held_where_no_episode_ends():
    filled = Filled(Counting(length=10_000), 30, length=10_000).play(29)
    assert len(filled.replay) == 29
    assert [len(filled.play(1).replay) for _ in range(70)] == [30] * 70
    filled = Filled(copies(4, length=10_000), 30, length=10_000).play(50)
    assert len(filled.replay) == 32, 'rounded up for equal shares'
    assert filled.sampled() == {key for order in filled.order for key in order[-8:]}


def test_each_episode_end_takes_the_place_of_one_transition():
    for length, held in ((9, 90), (1, 50)):
        filled = Filled(Counting(length=length), 100, length=length).play(300)
        assert abs(len(filled.replay) - held) <= 1


def test_stacks_of_long_episodes_reach_back_over_the_end_of_the_ring():
    filled = Filled(copies(2, 'stack', length=50), 60, 'stack', length=50)
    for _ in range(40):
        filled.play(7).sampled(300)
        assert len(filled.replay) <= 60


def test_cut_begins_a_new_stack():
    filled = Filled(copies(2, 'stack'), 40, 'stack').play(11)
    for seed in range(20, 200, 20):
        filled.restart(seed)
        filled.play(7).sampled(1000)


def test_cut_keeps_the_last_next_observation():
    filled = Filled(copies(2), 40).play(11)
    for seed in range(20, 200, 20):
        filled.restart(seed)
        filled.play(7)
        filled.sampled(1000)
    without = Filled(copies(2), 40).play(11)
    without.replay.cut = lambda: None
    for seed in range(20, 200, 20):
        without.restart(seed)
        without.play(7)
    with pytest.raises(AssertionError):  # or else this test could not fail
        without.sampled(1000)


def test_cut_of_an_empty_buffer():
    filled = Filled(Counting(), 5)
    filled.restart(3)
    filled.play(4)
    assert filled.sampled() == set(filled.truth)


@pytest.mark.parametrize('turns', [0.6, 3])
def test_sampling_is_uniform(turns: float):
    """Pearson's chi-square with 100,000 draws; invalid rows and unequally filled copies do not matter."""
    filled = Filled(copies(3, mode=AutoresetMode.NEXT_STEP), 90).play(int(30 * turns))
    batch = filled.replay.sample((100, 1000), np.random.default_rng(4))
    _, counts = np.unique(batch.obs.reshape(-1, 3), axis=0, return_counts=True)
    cells = len(filled.replay)
    assert len(counts) == cells > 30
    chi_square = ((counts - 1e5 / cells) ** 2 / (1e5 / cells)).sum()
    degrees = cells - 1
    assert abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees)


def test_copies_filled_unequally_are_sampled_uniformly():
    replay = Replay(SPACES['discrete'], ADAPTOR, 400, 2)
    for step in range(100):
        fields = (np.array([step, 1000 + step]), np.zeros(2, np.int32), np.zeros(2, np.float32), np.zeros(2, int))
        replay.add(Transition(*fields, np.zeros(2, bool), np.zeros(2, bool)), np.array([step < 10, True]))
    drawn = replay.sample((110_000,), np.random.default_rng(0)).obs
    assert abs((drawn < 1000).sum() - 10_000) < 4 * np.sqrt(10_000)


def test_leading_axes_dtypes_and_contiguity():
    filled = Filled(Counting('dict'), 50, 'dict').play(80)
    batch = filled.replay.sample((4, 6), np.random.default_rng(0))
    for flat in (batch.obs, batch.next_obs):
        for path, leaf in spaces.leaves(SPACES['dict']).items():
            assert flat[path].dtype == leaf.dtype
            assert flat[path].shape == (4, 6, *leaf.shape)
            assert flat[path].flags.c_contiguous
    for x, dtype in (
        (batch.action, np.int32),
        (batch.reward, np.float32),
        (batch.terminated, np.bool_),
        (batch.truncated, np.bool_),
    ):
        assert x.dtype == dtype
        assert x.shape == (4, 6)
        assert x.flags.c_contiguous


def test_what_is_sampled_is_a_copy():
    filled = Filled(Counting(), 50).play(20)
    batch = filled.replay.sample((100,), np.random.default_rng(0))
    batch.obs[:] = batch.next_obs[:] = batch.reward[:] = -1
    filled.sampled()


def test_every_observation_is_held_once():
    frames = Box(0, 255, (84, 84, 4), np.uint8)
    replay = Replay(Dict(camera=frames, place=Box(-1, 1, (3,), np.float32)), ActionAdaptor(Box(-1, 1, (2,))), 1000, 4)
    rows = 4 * (250 + 1)
    assert replay.nbytes == rows * (84 * 84 * 4 + 3 * 4 + 2 * 4 + 4 + 4)
    held = 0
    for value in vars(replay).values():
        held += sum(x.nbytes for _, x in spaces.tree_items(value) if isinstance(x, np.ndarray) and len(x) == rows)
    assert held == replay.nbytes


def test_of_a_stack_of_frames_each_is_held_once():
    """100,000 transitions of Atari in 0.72 GB."""
    frames = spaces.FrameStack(Box(0, 255, (84, 84, 1), np.uint8), 4)
    replay = Replay(frames, ActionAdaptor(Discrete(6)), 1000)
    assert replay.nbytes == (1000 + 4) * (84 * 84 + 4 + 4 + 4)


def test_actions_of_a_dict():
    space = Dict(move=Box(-2, 2, (2,), np.float32), gear=Discrete(3))
    adaptor = ActionAdaptor(space)
    replay = Replay(SPACES['discrete'], adaptor, 10)
    rng = np.random.default_rng(0)
    actions = [adaptor.random(1, rng) for _ in range(8)]
    for i, action in enumerate(actions):
        replay.add(
            Transition(
                np.array([i]), action, np.ones(1, np.float32), np.array([i + 1]), np.array([False]), np.array([i == 4])
            )
        )
    batch = replay.sample((50,), rng)
    for k, i in enumerate(batch.obs):
        assert batch.action['gear'][k] == actions[i]['gear'][0]
        np.testing.assert_array_equal(batch.action['move'][k], actions[i]['move'][0])


def rebuilt(filled: Filled, capacity: int) -> Replay:
    replay = Replay(SPACES[filled.form], ADAPTOR, capacity, filled.copies)
    # What is in it must not matter.
    junk = Filled(copies(filled.copies, filled.form), capacity, filled.form).play(3 * capacity).replay.state()
    replay.restore(junk)
    replay.restore({name: x.copy() for name, x in filled.replay.state().items()})
    return replay


@pytest.mark.parametrize('steps', [4, 150])
def test_restored_samples_alike_and_goes_on_alike(steps: int):
    filled = Filled(copies(3, 'dict'), 100, 'dict').play(steps)
    other = rebuilt(filled, 100)
    assert len(other) == len(filled.replay)
    assert other.added == filled.replay.added
    for more in (0, 5, 60):
        for _ in range(more):
            c = filled.collector
            obs, action = c.obs, ADAPTOR.random(3, filled.rng)
            c.step(action)
            for replay in (filled.replay, other):
                replay.add(Transition(obs, action, c.reward, c.next_obs, c.terminated, c.truncated), c.valid)
        one, two = (replay.sample((7, 30), np.random.default_rng(3)) for replay in (filled.replay, other))
        for a, b in zip(one, two, strict=True):
            for (_, x), (_, y) in zip(spaces.tree_items(a), spaces.tree_items(b), strict=True):
                np.testing.assert_array_equal(x, y)


def test_a_buffer_of_stacks_says_its_own_capacity():
    saved = Filled(Counting('stack'), 50, 'stack').play(5).replay.state()
    with pytest.raises(ValueError, match='1 copies of 50 transitions each, but this one has 1 of 60: '):
        Replay(SPACES['stack'], ADAPTOR, 60).restore(saved)


def test_state_leaves_the_empty_part_out():
    filled = Filled(Counting(), 1_000_000).play(20)
    assert sum(x.nbytes for x in filled.replay.state().values()) < 2000


@pytest.mark.parametrize(('capacity', 'n'), [(60, 2), (30, 1), (25, 3)])
def test_restore_refuses_another_capacity(capacity: int, n: int):
    saved = Filled(copies(2), 50).play(5).replay.state()
    with pytest.raises(ValueError, match=r'the saved replay buffer has 2 copies of 25 .* with the same buffer_size\.$'):
        Replay(SPACES['box'], ADAPTOR, capacity, n).restore(saved)


@pytest.mark.full(but='stack-20-1')
@pytest.mark.parametrize('n', [1, 2, 5])
@pytest.mark.parametrize(('form', 'steps'), [('dict', 20), ('stack', 20), ('box', 150), ('stack', 150)])
def test_another_number_of_copies_takes_over_what_was_saved(form: str, steps: int, n: int):
    """Each transition exactly, all of them where there is room, and the newest where the ring is full."""
    filled = Filled(copies(3, form), 150, form).play(steps)
    held = filled.sampled()
    assert len(held) == len(filled.replay)
    saved = filled.replay.state()
    filled.replay = Replay(SPACES[form], ADAPTOR, 150, n)
    filled.replay.restore(Filled(copies(n, form), 150, form).play(90).replay.state())  # which must not matter
    filled.replay.restore(saved)
    taken = filled.sampled()
    assert taken <= held and len(taken) == len(filled.replay)
    assert len(taken) == len(held) if steps == 20 else len(taken) >= 0.8 * len(held)
    newest = {order[-1] for order in filled.order}
    assert newest <= taken
    assert filled.replay.added == 3 * steps


def test_another_number_of_copies_takes_over_priorities():
    replay = prioritized(30)
    for start in (0.0, 10.0, 20.0):
        one_episode([1.0, 1.0], 'terminated', replay, start)
    give(replay, {0.0: 1.0, 1.0: 2.0, 10.0: 3.0, 11.0: 4.0, 20.0: 5.0, 21.0: 6.0})
    other = prioritized(30, 2)
    other.restore(replay.state())

    def priorities(x: Replay) -> dict[float, float]:
        return dict(zip(x.obs[x.valid].tolist(), x.tree.values[x.valid].tolist(), strict=True))

    assert priorities(other) == priorities(replay) and len(set(priorities(other).values())) == 6
    assert (other.tree.values[~other.valid] == 0.0).all() and other.highest == replay.highest
    assert (other.cursor > 0).all(), 'dealt to both'


@pytest.mark.parametrize('n', [1, 3])
def test_sampling_from_an_empty_buffer_is_refused(n: int):
    replay = Replay(SPACES['box'], ADAPTOR, 10, n)
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r'^the replay buffer holds no transition yet: add some before sampling\.$'
        ):
            replay.sample((2, 3), np.random.default_rng(0))
        replay.cut()
    assert len(replay) == 0


def test_a_copy_that_has_none_yet_is_not_sampled():
    filled = Filled(copies(3), 30)
    c = filled.collector
    obs = c.obs
    c.step(np.zeros(3, np.int32))
    action = np.zeros(3, np.int32)
    transition = Transition(obs, action, c.reward, c.next_obs, c.terminated, c.truncated)
    filled.replay.add(transition, np.array([False, True, False]))
    batch = filled.replay.sample((50,), np.random.default_rng(0))
    assert (batch.obs == [SEED + 1, 0, 0]).all()
    filled.replay.add(transition, np.zeros(3, bool))
    assert len(filled.replay) == filled.replay.added == 1


def test_memory_is_announced_before_it_is_taken(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    caplog.set_level(logging.INFO, 'zoo')
    Replay(SPACES['box'], ADAPTOR, 1000)
    assert not caplog.records

    def taken(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(sequences.spaces, 'zeros', taken)
    with pytest.raises(MemoryError):
        Replay(Box(0, 255, (84, 84, 4), np.uint8), ADAPTOR, 1_000_000, 8)
    assert [record.name for record in caplog.records] == ['zoo']
    assert 'The replay buffer of 1,000,000 transitions takes up to 28.24 GB of memory.' in caplog.text


def test_environment_of_gymnasium():
    """CartPole: each next observation is what the equations of motion make of the observation and the action."""
    env = gymnasium.make('CartPole-v1', max_episode_steps=12)
    collector = Collector(env, ActionAdaptor(env.action_space))
    replay = Replay(env.observation_space, collector.adaptor, 100)
    collector.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(250):
        obs, action = collector.obs, collector.adaptor.random(1, rng)
        collector.step(action)
        c = collector
        replay.add(Transition(obs, action, c.reward, c.next_obs, c.terminated, c.truncated), c.valid)
    batch = replay.sample((500,), rng)
    model = env.unwrapped
    for obs, action, next_obs, terminated in zip(
        batch.obs, batch.action, batch.next_obs, batch.terminated, strict=True
    ):
        model.state, model.steps_beyond_terminated = obs.astype(np.float64), None
        predicted, _, ended, _, _ = model.step(int(action))
        np.testing.assert_allclose(next_obs, predicted, atol=1e-5)
        assert terminated == ended
    assert batch.truncated.any()


def test_copies_that_come_by_themselves_are_stored_as_if_all_came_together():
    """What actors send is of some copies each, and never at the same time."""
    whole, parts = (Replay(SPACES['box'], ADAPTOR, 40, 4) for _ in range(2))
    players = [Filled(SyncVectorEnv([partial(Counting)] * 2), 20) for _ in range(2)]
    for turn in range(30):
        steps = []
        for player in players:
            c, obs = player.collector, player.collector.obs
            action = np.full(2, turn % 5, np.int32)
            c.step(action)
            fields = (obs, action, c.reward, c.next_obs, c.terminated, c.truncated)
            steps.append(Transition(*(np.copy(field) for field in fields)))
        whole.add(Transition(*(np.concatenate(fields) for fields in zip(*steps, strict=True))))
        for k in (1, 0) if turn % 2 else (0, 1):
            parts.add(steps[k], first=2 * k)
    assert parts.added == whole.added == 120
    for name, array in whole.state().items():
        np.testing.assert_array_equal(parts.state()[name], array, err_msg=name)


def test_only_the_copies_that_begin_anew_are_cut():
    """An actor that is started again begins new episodes; those of the others go on."""
    replay = Replay(SPACES['box'], ADAPTOR, 30, 3)

    def add(copy: int, t: int, episode: int) -> None:
        obs, after = (np.array([[copy, episode, x]], SPACES['box'].dtype) for x in (t, t + 1))
        no = np.zeros(1, bool)
        replay.add(Transition(obs, np.zeros(1, np.int32), np.zeros(1, np.float32), after, no, no), first=copy)

    for t in range(3):
        for copy in range(3):
            add(copy, t, 0)
    replay.cut(1, 1)
    for t in range(2):
        for copy in range(3):
            add(copy, t if copy == 1 else 3 + t, int(copy == 1))
    drawn = replay.sample((2000,), np.random.default_rng(0))
    np.testing.assert_array_equal(drawn.next_obs - drawn.obs, np.broadcast_to([0, 0, 1], drawn.obs.shape))
    assert len(np.unique(drawn.obs, axis=0)) == 15


class Naive:
    """A replay buffer as lists: of each copy all that ever happened, and what it sees now."""

    def __init__(self, copies: int, frames: int) -> None:
        self.frames = frames
        self.history: list[list[tuple]] = [[] for _ in range(copies)]
        self.seen: list[list[int]] = [[] for _ in range(copies)]
        self.made = 0

    def begin(self, copy: int) -> None:
        self.made += 1
        self.seen[copy] = [self.made]

    def stack(self, copy: int) -> tuple[int, ...]:
        newest = self.seen[copy][-self.frames :]
        return (self.seen[copy][0],) * (self.frames - len(newest)) + tuple(newest)

    def step(self, copy: int, terminated: bool, truncated: bool) -> tuple:
        self.made += 1
        obs, before = self.seen[copy][-1], self.stack(copy)
        self.seen[copy].append(self.made)
        row = (obs, before, self.made % 5, float(self.made), self.made, self.stack(copy), terminated, truncated)
        self.history[copy].append(row)
        if terminated or truncated:
            self.begin(copy)
        return row


SHORT = [(1, 20, 1), (2, 7, 3), (3, 40, 4), (5, 1, 2), (4, 3, 8), (9, 30, 2)]
#: Stacks of about as many frames as a byte can count.
LONG = [(255, 600, 2), (256, 600, 2), (257, 600, 2)]
HISTORIES = pytest.mark.parametrize(('frames', 'capacity', 'n'), SHORT)


def any_history(
    frames: int, capacity: int, n: int, rng: np.random.Generator, keep: bool = False, sampling: Sampling | None = None
) -> tuple[Naive, Replay]:
    """Steps of some copies, resets of others, cuts of a few, a restored copy of itself: all as it comes."""
    view = spaces.FrameStack(Box(0, 2**31 - 1, (1, 1, 1), np.int32), frames)
    space = Dict(x=Box(-(2**62), 2**62, (), np.int64), view=view)
    naive, replay = Naive(n, frames), Replay(space, ADAPTOR, capacity, n, sampling)
    if keep:
        replay.keep_episodes()
    length = 3 * capacity + 4 * frames
    for copy in range(n):
        naive.begin(copy)
    over = rng.random() * 0.3 if frames < 100 else 0.0003  # episodes that are longer than the stack
    nothing = (7, (7,) * frames, 1, 7.0, 7, (7,) * frames, True, True)
    for turn in range(length):
        first = int(rng.integers(n)) if rng.random() < 0.5 else 0
        count = int(rng.integers(1, n - first + 1))
        valid = rng.random(count) < 0.8
        ends = (rng.random((count, 2)) < over).tolist()
        rows = [naive.step(first + i, *ends[i]) if valid[i] else nothing for i in range(count)]
        obs, before, action, reward, next_obs, after, terminated, truncated = map(np.array, zip(*rows, strict=True))
        shape = (count, 1, 1, frames)
        transition = Transition(
            {'x': obs, 'view': before.reshape(shape).astype(np.int32)},
            action,
            reward,
            {'x': next_obs, 'view': after.reshape(shape).astype(np.int32)},
            terminated,
            truncated,
        )
        replay.add(transition, None if valid.all() else valid, first)
        if rng.random() < min(0.1, over):
            first = int(rng.integers(n))
            count = int(rng.integers(1, n - first + 1))
            replay.cut(first, count)
            for copy in range(first, first + count):
                naive.begin(copy)
        if turn in (5, length // 2):
            other = Replay(space, ADAPTOR, capacity, n, sampling)
            if keep:
                other.keep_episodes()
            other.restore(replay.state())
            replay = other
    return naive, replay


@pytest.mark.full(but='2-7-3')
@pytest.mark.parametrize(('frames', 'capacity', 'n'), SHORT + LONG)
def test_any_history_is_held_as_lists_would(frames: int, capacity: int, n: int):
    rng = np.random.default_rng(frames)
    naive, replay = any_history(frames, capacity, n, rng)
    assert replay.added == sum(map(len, naive.history))
    batch = replay.sample((20 * len(replay),), rng)
    fields = (
        batch.obs['x'],
        batch.obs['view'][:, 0, 0],
        batch.action,
        batch.reward,
        batch.next_obs['x'],
        batch.next_obs['view'][:, 0, 0],
        batch.terminated,
        batch.truncated,
    )
    held = {tuple(tuple(x.tolist()) if x.ndim else x.item() for x in row) for row in zip(*fields, strict=True)}
    assert len(held) == len(replay) > 0
    kept = [[row for row in history if row in held] for history in naive.history]
    assert sum(map(len, kept)) == len(held), 'something that never happened'
    for rows, history in zip(kept, naive.history, strict=True):
        assert rows == history[len(history) - len(rows) :], 'not the newest'


def following(history: list[tuple], k: int) -> list[tuple]:
    """The steps of one episode from the ``k``-th of a copy on, as far as they are there."""
    end = k + 1
    while end < len(history) and history[end][0] == history[end - 1][4]:
        end += 1
    return history[k:end]


@pytest.mark.parametrize('n_step', [1, 2, 3, 7])
@HISTORIES
def test_steps_in_a_row_are_drawn_as_one_as_lists_would(frames: int, capacity: int, n: int, n_step: int):
    """Never across an end, a cut or the seam; and each transition that is held begins one."""
    rng, gamma = np.random.default_rng(frames), 0.9
    naive, replay = any_history(frames, capacity, n, rng, sampling=Sampling(gamma, n_step))
    batch = replay.sample((20 * len(replay),), rng)
    expected = {}
    for history in naive.history:
        for k, (obs, before, *_) in enumerate(history):
            rows = following(history, k)[:n_step]
            _, _, _, _, x, after, terminated, truncated = rows[-1]
            returns = sum(gamma**i * row[3] for i, row in enumerate(rows))
            discount = 0.0 if terminated else gamma ** len(rows)
            expected[obs] = (before, x, after, terminated, truncated, returns, discount)
    seen = set(batch.obs['x'].tolist())
    assert len(seen) == len(replay)
    for k, obs in enumerate(batch.obs['x'].tolist()):
        before, x, after, terminated, truncated, returns, discount = expected[obs]
        assert batch.obs['view'][k, 0, 0].tolist() == list(before)
        assert (batch.next_obs['x'][k], batch.next_obs['view'][k, 0, 0].tolist()) == (x, list(after))
        assert (batch.terminated[k], batch.truncated[k]) == (terminated, truncated)
        assert batch.reward[k] == np.float32(returns)
        assert batch.discount[k] == np.float32(discount)


@HISTORIES
def test_where_episodes_begin_and_end_is_known(frames: int, capacity: int, n: int):
    naive, replay = any_history(frames, capacity, n, np.random.default_rng(frames), keep=True)
    rows = np.flatnonzero(replay.valid)
    held = replay.obs['x']
    begin, end = replay.episode_span(rows)
    expected = {}
    for history in naive.history:
        kept = [row for row in history if row[0] in set(held[rows].tolist())]
        for k in range(len(kept)):
            first = next(j for j in range(k + 1) if kept[k] in following(kept, j))
            expected[kept[k][0]] = (kept[first][0], following(kept, k)[-1][0], k - first, len(following(kept, k)) - 1)
    for row, first, last in zip(rows, begin, end, strict=True):
        back, on = replay.distance(first, row), replay.distance(row, last)
        assert (held[first], held[last], back, on) == expected[held[row]]
        assert replay.forward(row, -back) == first and replay.forward(row, on) == last


def one_episode(rewards: list[float], end: str | None, replay: Replay, start: float = 0.0) -> None:
    """An episode of one copy whose observations count on from ``start``."""
    for t, reward in enumerate(rewards):
        last = t == len(rewards) - 1
        obs, after = (np.array([start + i], np.float32) for i in (t, t + 1))
        ends = (np.array([last and end == kind]) for kind in ('terminated', 'truncated'))
        replay.add(Transition(obs, np.zeros(1, np.int32), np.array([reward], np.float32), after, *ends))


def drawn_by_obs(replay: Replay) -> dict[float, tuple[float, float, float, bool, bool]]:
    """Reward, discount, next observation, terminated, truncated of all that can be drawn."""
    batch = replay.sample((400,), np.random.default_rng(0))
    fields = (batch.reward, batch.discount, batch.next_obs, batch.terminated, batch.truncated)
    values = zip(*(field.tolist() for field in fields), strict=True)
    return dict(zip(batch.obs.tolist(), values, strict=True))


NUMBER = Box(-np.inf, np.inf, (), np.float32)


@pytest.mark.parametrize('end', ['terminated', 'truncated', 'cut', None])
def test_three_steps_as_one_by_hand(end: str | None):
    """γ = 1/2, so that every sum is exact: 1 + 2/2 + 4/4 and so on, and fewer where the episode ends."""
    replay = Replay(NUMBER, ADAPTOR, 20, sampling=Sampling(0.5, 3))
    one_episode([1, 2, 4, 8], end, replay)
    if end == 'cut':
        replay.cut()
    if end is not None:
        one_episode([16, 32], None, replay, start=100)
    over, cut = end == 'terminated', end == 'truncated'
    expected = {
        0: (1 + 1 + 1, 0.125, 3, False, False),
        1: (2 + 2 + 2, 0.0 if over else 0.125, 4, over, cut),
        2: (4 + 4, 0.0 if over else 0.25, 4, over, cut),
        3: (8, 0.0 if over else 0.5, 4, over, cut),
    }
    if end is not None:
        expected |= {100: (16 + 16, 0.25, 102, False, False), 101: (32, 0.5, 102, False, False)}
    assert drawn_by_obs(replay) == expected


def test_three_steps_as_one_at_the_seam_by_hand():
    """Four rows are held of a long episode that has written over its beginning."""
    replay = Replay(NUMBER, ADAPTOR, 4, sampling=Sampling(0.5, 3))
    for held in range(7, 13):
        replay = Replay(NUMBER, ADAPTOR, 4, sampling=Sampling(0.5, 3))
        one_episode([1.0] * held, None, replay)
        assert drawn_by_obs(replay) == {
            held - 4: (1.75, 0.125, held - 1, False, False),
            held - 3: (1.75, 0.125, held, False, False),
            held - 2: (1.5, 0.25, held, False, False),
            held - 1: (1.0, 0.5, held, False, False),
        }


def prioritized(capacity: int = 20, copies: int = 1, **given: Any) -> Replay:
    return Replay(NUMBER, ADAPTOR, capacity, copies, Sampling(0.5, 1, Priorities(**given)))


def give(replay: Replay, errors: dict[float, float]) -> None:
    """Set the priorities of all by their observations."""
    for _ in range(100):
        batch = replay.sample((len(errors) * 8,), np.random.default_rng(0))
        replay.prioritize(np.array([errors[obs] for obs in batch.obs.tolist()], np.float32))
        if set(batch.obs.tolist()) == errors.keys():
            return
        # What was not drawn has the highest priority still.
    raise AssertionError('not all were drawn')


def test_weights_by_hand():
    """Priorities 1, 4 and 16 with α = 1/2, β = 1/2: (1 / P)^β is as 1 : 1/√2 : 1/2 for P as 1 : 2 : 4."""
    replay = prioritized(exponent=0.5, correction=Linear(0.0, 1.0))
    one_episode([1, 1, 1], 'terminated', replay)
    give(replay, {0.0: 1.0, 1.0: 4.0, 2.0: 16.0})
    batch = replay.sample((5, 70), np.random.default_rng(1), 0.5)
    expected = np.array([1.0, 0.5**0.5, 0.5])[batch.obs.astype(int)]
    np.testing.assert_allclose(batch.weight, expected, rtol=1e-5)
    assert batch.weight.dtype == np.float32 and batch.weight.shape == (5, 70)
    counts = np.bincount(batch.obs.astype(int).ravel(), minlength=3)
    np.testing.assert_allclose(counts, np.array([1, 2, 4]) * 50, atol=5, err_msg='one of each 70th of 1 + 2 + 4')
    assert (replay.sample((70,), np.random.default_rng(1), 0.0).weight == 1.0).all()
    full = replay.sample((70,), np.random.default_rng(1), 1.0)
    np.testing.assert_allclose(full.weight, np.array([1.0, 0.5, 0.25])[full.obs.astype(int)], rtol=1e-5)


def test_weights_are_divided_by_the_highest_of_their_batch():
    replay = prioritized(exponent=1.0, correction=1.0)
    one_episode([1] * 3, None, replay)
    give(replay, {0.0: 1e-3, 1.0: 1.0, 2.0: 2.0})
    weight = {True: 1.0, False: 0.5}
    for seed in range(20):
        batch = replay.sample((2,), np.random.default_rng(seed), 0.0)
        assert batch.obs[1] == 2.0
        np.testing.assert_allclose(batch.weight, [1.0, weight[batch.obs[0] == 2.0]], rtol=1e-2)


def test_each_is_drawn_as_often_as_its_priority_says():
    """Unstratified, one at a time, so that the counts are binomial: Pearson's chi-square."""
    replay = prioritized(capacity=60, copies=3, exponent=0.7)
    rng = np.random.default_rng(0)
    for t in range(40):
        ends = rng.random((2, 3)) < 0.1
        obs = np.arange(3, dtype=np.float32) * 100 + t
        replay.add(Transition(obs, np.zeros(3, np.int32), obs, obs + 1, *ends))
    held = np.unique(replay.sample((3000,), rng).obs).tolist()
    errors = {obs: float(rng.random() * 3) for obs in held}
    give(replay, errors)
    share = np.array([(errors[obs] + 1e-6) ** 0.7 for obs in held])
    share /= share.sum()
    draws = 100_000
    obs, counts = np.unique(replay.sample((draws, 1), rng).obs, return_counts=True)
    assert obs.tolist() == held and len(held) == len(replay) > 40
    chi_square = ((counts - draws * share) ** 2 / (draws * share)).sum()
    degrees = len(held) - 1
    assert abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees)


def test_new_ones_have_the_highest_priority_that_there_has_been():
    replay = prioritized(exponent=0.5)
    one_episode([1, 1], None, replay)
    give(replay, {0.0: 9.0, 1.0: 1.0})
    give(replay, {0.0: 4.0, 1.0: 4.0})
    one_episode([1], 'terminated', replay, start=2)
    batch = replay.sample((7 * 40,), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(batch.obs.astype(int)), [80, 80, 120], atol=1, err_msg='as 2 : 2 : 3')


def test_the_latest_priority_of_a_call_stays():
    replay = prioritized(exponent=1.0)
    one_episode([1], None, replay)
    replay.sample((3, 2), np.random.default_rng(0))
    replay.prioritize(np.array([[1.0, 1.0], [5.0, 5.0], [0.25, 0.25]], np.float32))
    assert replay.tree.values.max() == 0.25 + 1e-6
    replay.prioritize(None)
    assert replay.tree.values.max() == 0.25 + 1e-6


@HISTORIES
def test_what_holds_no_transition_has_no_priority(frames: int, capacity: int, n: int):
    sampling = Sampling(0.9, 2, Priorities())
    naive, replay = any_history(frames, capacity, n, np.random.default_rng(frames), sampling=sampling)
    np.testing.assert_array_equal(replay.tree.values > 0.0, replay.valid)
    rows = replay.tree.find(np.random.default_rng(0).random(50 * len(replay)))
    assert set(rows) == set(np.flatnonzero(replay.valid))


def test_priorities_that_make_no_sense_are_refused():
    replay = prioritized()
    one_episode([1, 1], None, replay)
    with pytest.raises(ValueError, match=r'^priorities were given, but nothing has been drawn by priority'):
        replay.prioritize(np.ones(2))
    replay.sample((2,), np.random.default_rng(0))
    for value in (np.nan, np.inf):
        with pytest.raises(FloatingPointError, match=f'^a priority became {value}: a smaller learning rate'):
            replay.prioritize(np.array([1.0, value]))
    uniform = Replay(NUMBER, ADAPTOR, 5)
    with pytest.raises(ValueError, match='by priority'):
        uniform.prioritize(np.ones(2))
    with pytest.raises(ValueError, match=r'^the replay buffer holds no transition yet: add some before sampling\.$'):
        prioritized().sample((2,), np.random.default_rng(0))


def test_between_uniform_and_prioritized_a_saved_buffer_goes_both_ways():
    uniform, by_priority = Replay(NUMBER, ADAPTOR, 20), prioritized(exponent=1.0)
    one_episode([1, 1, 1], 'truncated', by_priority)
    give(by_priority, {0.0: 1.0, 1.0: 2.0, 2.0: 8.0})
    uniform.restore(by_priority.state())
    assert drawn_by_obs(uniform).keys() == {0.0, 1.0, 2.0}
    other = prioritized()
    one_episode([1] * 9, None, other)
    give(other, dict.fromkeys(map(float, range(9)), 50.0))
    other.restore(uniform.state())
    np.testing.assert_array_equal(other.tree.values, other.valid * 1.0)


KINDS: dict[str, dict[str, Any]] = {
    'uniform': {'sampling': Sampling(0.9)},
    'n-step': {'sampling': Sampling(0.9, 3)},
    'prioritized': {'sampling': Sampling(0.9, 1, Priorities())},
    'prioritized n-step': {'sampling': Sampling(0.9, 3, Priorities(0.5, 1.0))},
    'compressed': {'sampling': Sampling(0.9), 'compress': True},
    'compressed prioritized n-step': {'sampling': Sampling(0.9, 3, Priorities()), 'compress': True},
}
FORMS = ['box', 'discrete', 'picture', 'stack', 'dict', 'stack in dict', 'masked']
WITH_IMAGES = ('picture', 'stack', 'stack in dict')
PICTURE = Box(0, 255, (8, 8, 3), np.uint8)


@pytest.mark.full(but='compressed prioritized n-step-box')
@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('kind', KINDS)
def test_contract(kind: str, form: str):
    """Added, wrapped around, drawn, restored, gone on with: every kind of replay, of every kind of observation."""
    given, rng, copies = KINDS[kind], np.random.default_rng(0), 3
    sampling = given['sampling']
    own = {'masked': Dict(place=SPACES['box'], action_mask=MultiBinary(5)), 'picture': PICTURE}
    space = own.get(form) or SPACES[form]
    seen: dict[bytes, tuple] = {}
    if 'compress' in given and form not in WITH_IMAGES:
        with pytest.raises(ValueError, match=r'^compress=True is for images, and .* has none: leave it out\.$'):
            Replay(space, ADAPTOR, 50, copies, **given)
        return

    def made() -> Replay:
        return Replay(space, ADAPTOR, 50, copies, **given)

    def observation(episode: np.ndarray, t: np.ndarray) -> spaces.Flat:
        if form == 'masked':
            places = [np.array([i, *place], np.float32) for i, place in enumerate(zip(episode, t, strict=True))]
            masks = [np.arange(5) <= (i + place) % 5 for i, place in enumerate(t)]
            return {'place': np.stack(places), 'action_mask': np.stack(masks).astype(np.int8)}
        if form == 'picture':  # half of them noise, which cannot be packed
            pictures = np.zeros((copies, 8, 8, 3), np.uint8)
            for i, place in enumerate(zip(episode, t, strict=True)):
                if place[1] % 2:
                    pictures[i] = np.random.default_rng([i, *place]).integers(256, size=(8, 8, 3))
                else:
                    pictures[i, 0, 0] = i, *place
            return pictures
        flats = [expected(form, i, *place) for i, place in enumerate(zip(episode, t, strict=True))]
        items = [dict(spaces.tree_items(flat)) for flat in flats]
        stacked = {path: np.stack([np.asarray(item[path]) for item in items]) for path in items[0]}
        leaves = spaces.leaves(space)
        return spaces.from_items(space, {path: x.astype(leaves[path].dtype) for path, x in stacked.items()})

    def content(flat: spaces.Flat, k: Any) -> bytes:
        return b'|'.join(np.asarray(x[k]).tobytes() for _, x in sorted(spaces.tree_items(flat)))

    def check(batch: Any, replay: Replay) -> None:
        assert batch.reward.shape == batch.discount.shape == batch.weight.shape == (2, 200)
        assert {batch.reward.dtype, batch.discount.dtype, batch.weight.dtype} == {np.dtype(np.float32)}
        assert (batch.weight > 0).all() and (batch.weight.max(-1) == 1.0).all()
        for k in np.ndindex(2, 200):
            steps = following_bytes(content(batch.obs, k))
            last = steps[-1]
            assert content(batch.next_obs, k) == last[1] and batch.action[k] == steps[0][3]
            assert (batch.terminated[k], batch.truncated[k]) == last[4:]
            np.testing.assert_allclose(
                batch.reward[k], sum(0.9**i * step[2] for i, step in enumerate(steps)), rtol=1e-6
            )
            np.testing.assert_allclose(batch.discount[k], 0.9 ** len(steps) * (not last[4]), rtol=1e-6)

    def following_bytes(key: bytes) -> list[tuple]:
        steps = [seen[key]]
        while len(steps) < sampling.n_step and steps[-1][1] in seen and not any(steps[-1][4:]):
            steps.append(seen[steps[-1][1]])
        return steps

    replays = [made()]
    episode, t = np.zeros(copies, int), np.zeros(copies, int)
    for turn in range(60):
        obs, after = observation(episode, t), observation(episode, t + 1)
        action, reward = rng.integers(5, size=copies).astype(np.int32), rng.random(copies).astype(np.float32)
        terminated, truncated = rng.random((2, copies)) < 0.1
        valid = rng.random(copies) < 0.9
        for replay in replays:
            replay.add(Transition(obs, action, reward, after, terminated, truncated), valid)
        for i in np.flatnonzero(valid):
            fields = (reward[i], action[i], terminated[i], truncated[i])
            seen[content(obs, i)] = (content(obs, i), content(after, i), *fields)
        t += valid
        ended = valid & (terminated | truncated)
        if turn % 20 == 13:
            for replay in replays:
                replay.cut(1, 2)
            ended |= np.array([False, True, True])
        episode[ended], t[ended] = episode[ended] + 1, 0
        if turn % 10 != 9:
            continue
        if turn == 29:
            replays.append(made())
            replays[1].restore({name: x.copy() for name, x in replays[0].state().items()})
        seed, new = int(rng.integers(100)), rng.random((2, 200)).astype(np.float32)
        batches = [replay.sample((2, 200), np.random.default_rng(seed), turn / 60) for replay in replays]
        check(batches[0], replays[0])
        for replay, batch in zip(replays, batches, strict=True):
            for (_, x), (_, y) in zip(
                spaces.tree_items(batch._asdict()), spaces.tree_items(batches[0]._asdict()), strict=True
            ):
                for (_, a), (_, b) in zip(spaces.tree_items(x), spaces.tree_items(y), strict=True):
                    np.testing.assert_array_equal(a, b)
            replay.prioritize(new if sampling.priorities else None)
    assert len(replays[0]) == len(replays[1]) > 30


@pytest.mark.parametrize('form', WITH_IMAGES)
def test_saved_compressed_or_not_makes_no_difference(form: str):
    if form == 'picture':
        replays = [Replay(PICTURE, ADAPTOR, 30, 2, compress=compress) for compress in (False, True)]
        rng = np.random.default_rng(0)
        for t in range(40):
            obs, after = rng.integers(256, size=(2, 2, 8, 8, 3)).astype(np.uint8) * (t % 3 == 0)
            ends = rng.random((2, 2)) < 0.1
            for replay in replays:
                replay.add(Transition(obs, np.zeros(2, np.int32), np.full(2, t, np.float32), after, *ends))
    else:
        filled = Filled(copies(2, form), 30, form).play(20)
        replays = [filled.replay, Replay(SPACES[form], ADAPTOR, 30, 2, compress=True)]
        replays[1].restore(filled.replay.state())
    plain, packed = replays
    sampled = [replay.sample((300,), np.random.default_rng(1)) for replay in (plain, packed)]
    for source in replays:
        for compress in (False, True):
            other = Replay(plain.space, ADAPTOR, 30, 2, compress=compress)
            other.restore({name: x.copy() for name, x in source.state().items()})
            sampled.append(other.sample((300,), np.random.default_rng(1)))
            for name, x in source.state().items():
                if compress == bool(source.compressed):
                    np.testing.assert_array_equal(other.state()[name], x, err_msg=name)
    for batch in sampled:
        for field, first in zip(batch, sampled[0], strict=True):
            for (_, x), (_, y) in zip(spaces.tree_items(field), spaces.tree_items(first), strict=True):
                np.testing.assert_array_equal(x, y)
                assert x.dtype == y.dtype and x.flags.c_contiguous and x.flags.writeable


@pytest.mark.parametrize('frames', [1, 4])
def test_compressed_images_take_less_memory_and_in_a_checkpoint_too(frames: int):
    frame = Box(0, 255, (40, 40, 1), np.uint8)
    space = frame if frames == 1 else spaces.FrameStack(frame, frames)
    plain, packed = (Replay(space, ADAPTOR, 20, compress=compress) for compress in (False, True))
    past = [np.zeros((1, 40, 40, 1), np.uint8)] * (frames + 1)
    no = np.zeros(1, bool)
    for t in range(60):
        past = [*past[1:], past[-1].copy()]
        past[-1][0, t % 40, 3:9] = t
        obs, after = np.concatenate(past[:-1], -1), np.concatenate(past[1:], -1)
        for replay in (plain, packed):
            replay.add(Transition(obs, np.zeros(1, np.int32), np.zeros(1, np.float32), after, no, no))
    one, two = (replay.sample((200,), np.random.default_rng(0)) for replay in (plain, packed))
    np.testing.assert_array_equal(one.obs, two.obs)
    np.testing.assert_array_equal(one.next_obs, two.next_obs)
    assert len(np.unique(one.obs, axis=0)) == 20
    assert packed.nbytes == plain.nbytes
    assert packed.obs.nbytes < plain.obs.nbytes / 3
    sizes = [sum(x.nbytes for x in replay.state().values()) for replay in (plain, packed)]
    assert sizes[1] < sizes[0] / 3


def test_compression_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, 'lz4.block', None)
    with pytest.raises(ImportError, match=r"compressed by LZ4: pip install 'zoo-rl\[compress\]'"):
        Replay(PICTURE, ADAPTOR, 20, compress=True)


@pytest.mark.parametrize('form', ['box', 'stack in dict'])
@pytest.mark.parametrize('n', [1, 3])
def test_priorities_find_their_transitions_after_the_ring_has_turned(n: int, form: str):
    """Those that come late, as from another process: what has been written over keeps the priority of what is there."""
    env = Counting(form) if n == 1 else copies(n, form)
    filled = Filled(env, 12 * n, form)
    filled.replay = Replay(SPACES[form], ADAPTOR, 12 * n, n, Sampling(0.9, 2, Priorities(1.0)))
    replay, rng = filled.replay, np.random.default_rng(3)

    def known() -> dict[tuple[int, int, int], float]:
        rows = np.flatnonzero(replay.valid)
        batch = replay.gather(rows, rng)
        keys = [filled.key(batch.obs, k) for k in range(len(rows))]
        assert len(set(keys)) == len(rows)
        return dict(zip(keys, replay.priorities_of(rows), strict=True))

    filled.play(30)
    for turn, steps in enumerate([0, 1, 3, 5, 8, 14, 40]):
        rows = replay.rows_at(np.sort(rng.random(20)), rng)
        batch, places = replay.gather(rows, rng), replay.places(rows)
        drawn = {filled.key(batch.obs, k): 2.0 + turn + k / 100 for k in range(20)}  # the last one stays
        filled.play(steps)
        before = known()
        held = replay.prioritize_at(places, 2.0 + turn + np.arange(20) / 100, highest=3.0 + turn)
        assert known() == pytest.approx(before | {key: x for key, x in drawn.items() if key in before})
        assert held == sum(filled.key(batch.obs, k) in before for k in range(20))
        assert (held == 20) if steps == 0 else (held < 20 or steps < 5)
    assert held == 0, 'all of them were written over'
    assert replay.highest == 9.0, 'which new ones are given'


def test_a_transition_may_be_stored_with_its_priority():
    filled = Filled(copies(2), 20)
    filled.replay = Replay(SPACES['box'], ADAPTOR, 20, 2, Sampling(0.9, 1, Priorities(0.5)))
    c = filled.collector
    obs = c.obs
    c.step(ADAPTOR.random(2, filled.rng))
    step = Transition(obs, np.zeros(2, np.int64), c.reward, c.next_obs, c.terminated, c.truncated)
    filled.replay.add(step, np.array([False, True]), priority=np.float32([np.nan, 4.0]))
    assert filled.replay.mass == pytest.approx(2.0, abs=1e-5)
    filled.replay.add(step)  # as high as any that came from updates
    assert filled.replay.mass == pytest.approx(4.0, abs=1e-5)
    with pytest.raises(FloatingPointError, match='a priority became nan'):
        filled.replay.add(step, priority=np.float32([np.nan, 4.0]))
