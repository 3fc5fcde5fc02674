"""A replay buffer that draws from a mapped folder: the same draws as from one in memory, without the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from counting import SPACES
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from recorded import random_episodes

import zoo
from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.replaying import replay_of
from zoo.common.maths.normalize import Collected
from zoo.common.sampling import Priorities, Sampling, SequenceSampling
from zoo.common.tools.errors import InvalidValue

BOX = Box(np.float32([-1.0, 0.0]), np.float32([3.0, 10.0]))
DEEP = Dict(
    a=Discrete(4, start=-1), b=Tuple((Box(0.0, 10.0, (2,), np.float64), MultiBinary(3))), c=MultiDiscrete([3, 2])
)

SAMPLINGS = {
    'one step': Sampling(0.9),
    'n steps': Sampling(0.9, 3),
    'prioritized': Sampling(0.9, 2, Priorities()),
    'sequences': Sampling(0.9, 2, None, SequenceSampling(4, 2, 5)),
    'prioritized sequences': Sampling(0.9, 1, Priorities(), SequenceSampling(4, 2, 5)),
}


def same(one: Any, other: Any) -> None:
    for field in one._fields:
        left, right = (dict(spaces.tree_items(getattr(x, field))) for x in (one, other))
        assert left.keys() == right.keys()
        for path, x in left.items():
            np.testing.assert_array_equal(x, right[path], err_msg=f'{field} {path}')
            assert x.dtype == right[path].dtype


def agent_of(space: Any, action_space: Any) -> Any:
    return SimpleNamespace(observation_space=space, action_space=action_space)


@pytest.mark.parametrize('part', [slice(None), slice(3, 11), slice(4, None), slice(0, 1)], ids=str)
@pytest.mark.parametrize('sampling', SAMPLINGS)
@pytest.mark.parametrize('form', ['box', 'dict', 'stack', 'stack in dict'])
def test_draw_for_draw(tmp_path, form, sampling, part):
    rng, wanted = np.random.default_rng(1), SAMPLINGS[sampling]
    action_space = DEEP if form == 'dict' else BOX
    made = zoo.open_dataset(random_episodes(rng, SPACES[form], action_space, 14), SPACES[form], action_space)
    agent, adaptor = agent_of(SPACES[form], action_space), ActionAdaptor(action_space)
    folder = made.save(tmp_path / 'folder')
    mapped, filled = (replay_of(agent, x[part], adaptor, wanted) for x in (folder, made))
    assert mapped.nbytes < 0.2 * filled.nbytes or wanted.priorities
    assert len(mapped) == len(filled) == made[part].steps == mapped.added == mapped.recorded
    mapped.keep_episodes()
    filled.keep_episodes()
    rows = np.flatnonzero(filled.valid)
    np.testing.assert_array_equal(np.flatnonzero(mapped.valid), rows)
    np.testing.assert_array_equal(mapped.episode_span(rows), filled.episode_span(rows))
    for _ in range(3):
        state = rng.bit_generator.state
        found = []
        for replay in (mapped, filled):
            rng.bit_generator.state = state
            found.append(replay.sample((2, 30), rng))
            if wanted.priorities:
                shape = found[-1].weight.shape
                replay.prioritize(np.linspace(0.1, 3.0, int(np.prod(shape))).reshape(shape))
        same(*found)


def test_to_the_end_of_the_episode(tmp_path):
    made = zoo.open_dataset(random_episodes(np.random.default_rng(0), SPACES['box'], BOX, 9), SPACES['box'], BOX)
    agent, adaptor = agent_of(SPACES['box'], BOX), ActionAdaptor(BOX)
    both = [replay_of(agent, x, adaptor, Sampling(0.9, to_the_end=True)) for x in (made.save(tmp_path / 'a'), made)]
    for replay in both:
        replay.sum_to_the_end()
    batches = [replay.sample((500,), np.random.default_rng(3)) for replay in both]
    same(*batches)
    returns = [np.polyval(episode.reward[t:][::-1], 0.9) for episode in made for t in range(len(episode.reward))]
    np.testing.assert_allclose(np.unique(batches[0].reward), np.unique(np.float32(returns)), rtol=1e-5)


def test_every_transition_is_drawn_and_nothing_can_be_added(tmp_path):
    made = zoo.open_dataset(random_episodes(np.random.default_rng(0), SPACES['box'], BOX, 9), SPACES['box'], BOX)
    replay = replay_of(agent_of(SPACES['box'], BOX), made.save(tmp_path / 'a'), ActionAdaptor(BOX), Sampling(0.9))
    batch = replay.sample((20, 100), np.random.default_rng(0))
    drawn = zip(batch.obs.reshape(-1, 3), batch.next_obs.reshape(-1, 3), strict=True)
    pairs = {(x.tobytes(), y.tobytes()) for x, y in drawn}
    assert pairs == {(x.tobytes(), y.tobytes()) for e in made for x, y in zip(e.obs[:-1], e.obs[1:], strict=True)}
    with pytest.raises(ValueError, match='read-only'):
        replay.add_episode(0, *made[0][:5])


def test_observations_are_counted_once(tmp_path):
    made = zoo.open_dataset(random_episodes(np.random.default_rng(0), SPACES['box'], BOX, 30), SPACES['box'], BOX)
    agent, adaptor = agent_of(SPACES['box'], BOX), ActionAdaptor(BOX)
    found = []
    for dataset in (made.save(tmp_path / 'a'), made):
        collected = Collected({'': 3})
        replay_of(agent, dataset[2:20], adaptor, Sampling(0.9), collected=collected)
        count, mean, _ = np.moveaxis(collected.take()[''], 1, 0)
        found.append((count.sum(0), (count * mean).sum(0) / count.sum(0)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    assert found[0][0][0] == made[2:20].steps


@pytest.mark.parametrize('at', [0, 20])
def test_values_are_checked_in_the_part_that_is_learned_from(tmp_path, at):
    from zoo.common.datasets.writing import written

    episodes = random_episodes(np.random.default_rng(0), SPACES['box'], BOX, 25)
    episodes[20].action[0, 1] = 11.0
    written(tmp_path / 'a', SPACES['box'], BOX, None, episodes)
    agent, adaptor, dataset = agent_of(SPACES['box'], BOX), ActionAdaptor(BOX), zoo.open_dataset(tmp_path / 'a')
    assert len(replay_of(agent, dataset[:20], adaptor, Sampling(0.9))) == dataset[:20].steps
    with pytest.raises(ValueError, match=r'the action has the value 11\.0, .* in episode 20\.$'):
        replay_of(agent, dataset[at:], adaptor, Sampling(0.9))


def test_compressed_images_are_held_in_memory(tmp_path):
    pytest.importorskip('lz4')
    space = Box(0, 255, (9, 9), np.uint8)
    made = zoo.open_dataset(random_episodes(np.random.default_rng(0), space, Discrete(3), 5), space, Discrete(3))
    replay = replay_of(
        agent_of(space, Discrete(3)),
        made.save(tmp_path / 'a'),
        ActionAdaptor(Discrete(3)),
        Sampling(0.9),
        compress=True,
    )
    assert replay.compressed == {''} and len(replay) == made.steps


MEMORY = """
import sys
import numpy as np
from types import SimpleNamespace
from gymnasium.spaces import Box
import zoo
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.replaying import replay_of
from zoo.common.datasets.writing import written
from zoo.common.sampling import Sampling

def anonymous():  # what the process holds itself, without pages of files, which the system takes back at will
    lines = open('/proc/self/status').read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith('RssAnon')) / 1024

space, action_space = Box(-np.inf, np.inf, (250,)), Box(-2, 2, (3,))
rng, before = np.random.default_rng(0), anonymous()
def episodes():
    for k in range(300):
        yield RecordedEpisode(
            rng.standard_normal((1001, 250), np.float32), rng.uniform(-2, 2, (1000, 3)).astype(np.float32),
            np.ones(1000, np.float32), False, True)
source = written('big', space, action_space, None, episodes())
most = [anonymous()]
dataset = zoo.open_dataset('big')
agent = SimpleNamespace(observation_space=space, action_space=action_space)
replay = replay_of(agent, dataset, ActionAdaptor(action_space), Sampling(0.99, 3))
most.append(anonymous())
for _ in range(50):
    replay.sample((4, 256), rng)
    most.append(anonymous())
for episode in dataset:
    pass
most.append(anonymous())
print(max(most) - before, sum(x.nbytes for x in source.rows.values()) / 2**20, len(replay))
"""


@pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')
def test_memory_stays_small(tmp_path):
    """Written, opened, checked and drawn from: 290 MB on disk, and a few in memory."""
    root = str(Path(zoo.__file__).parents[1])
    command, env = [sys.executable, '-c', MEMORY], os.environ | {'PYTHONPATH': root}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    held, on_disk, steps = map(float, done.stdout.split())
    assert on_disk > 280 and steps == 300_000
    assert held < 30, f'{held:.0f} MB for {on_disk:.0f} MB on disk'


@pytest.mark.parametrize('form', ['memory', 'folder'])
@pytest.mark.parametrize(
    ('action_space', 'allowed', 'wrong'),
    [
        (Discrete(3), [(1, 0, 1), (0, 0, 0)], [(1, 1, 0)]),
        (MultiDiscrete([2, 2]), [(1, 0, 0, 1), (0, 0, 0, 1)], [(0, 1, 0, 1)]),
        (MultiBinary(2), [(1, 1), (1, 0)], [(0, 1)]),
    ],
)
def test_actions_that_their_mask_forbids_are_refused(tmp_path, form, action_space, allowed, wrong):
    action: Any = {Discrete: 2, MultiDiscrete: [0, 1], MultiBinary: [1, 0]}[type(action_space)]
    space = Dict({'action_mask': Box(0, 1, (len(allowed[0]),), np.int8), 'x': Box(-1, 1, (2,), np.float32)})

    def opened_with(masks: Any) -> Any:
        steps = len(masks)
        final = np.zeros((1, len(masks[0])), np.int8)  # of an observation without an action
        obs = {
            'action_mask': np.concatenate([np.array(masks, np.int8), final]),
            'x': np.zeros((steps + 1, 2), np.float32),
        }
        episode = RecordedEpisode(obs, np.array([action] * steps), np.ones(steps, np.float32), True, False)
        found = zoo.open_dataset([episode], space, action_space)
        if form == 'folder':
            found.save(tmp_path / f'{steps}{masks[-1]}')
            found = zoo.open_dataset(tmp_path / f'{steps}{masks[-1]}')
        return found

    agent, adaptor = agent_of(space, action_space), ActionAdaptor(action_space)
    assert len(replay_of(agent, opened_with(allowed), adaptor, Sampling(0.99))) == len(allowed)
    with pytest.raises(InvalidValue, match='which the action_mask of its observation forbids'):
        replay_of(agent, opened_with(allowed + wrong), adaptor, Sampling(0.99))
