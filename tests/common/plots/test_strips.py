"""Strips of frames: which moments are shown, and what is written under them."""

from __future__ import annotations

import struct
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import zoo
from zoo.common.envs.answers import LIFE_LOST
from zoo.common.plots import evaluation_strip


class Steps(gymnasium.Env):
    """Ends after ``length`` steps; its picture is the number of the step, in the same array every time."""

    observation_space = Box(0, 1e6, (1,))
    action_space = Discrete(2)
    metadata = {'render_modes': ['rgb_array']}

    def __init__(self, length: int, render_mode: str | None = 'rgb_array', lives: tuple[int, ...] = ()) -> None:
        self.length, self.render_mode, self.lives = length, render_mode, lives
        self.picture: Any = np.zeros((20, 30, 3), np.uint8)
        self.t = 0
        self.resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.resets += 1
        if self.resets == 1:
            self.t = 0
        return np.array([self.t], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert action == 1
        self.t += 1
        lost = self.t in self.lives
        return np.array([self.t], np.float32), 0.5, self.t == self.length or lost, False, {LIFE_LOST: lost}

    def render(self) -> Any:
        self.picture[:] = self.t % 256
        return self.picture


class One:
    """Always does the same; counts the steps of an episode in its state."""

    def initial_state(self, count: int = 1) -> np.ndarray:
        return np.zeros((count, 1))

    def predict(self, obs: np.ndarray, deterministic: bool = True, state: Any = None) -> Any:
        assert deterministic
        self.remembered = state + 1
        return 1, self.remembered


def shown(figure: Any) -> list[tuple[int, str]]:
    """What is in each picture, and under it."""
    return [(int(axes.images[0].get_array()[0, 0, 0]), axes.get_xlabel()) for axes in figure.axes]


def test_moments_from_the_first_to_the_last(tmp_path):
    figure = evaluation_strip(tmp_path / 'new' / 'strip.png', One(), Steps(10), pictures=6)
    assert shown(figure) == [
        (0, 'start\n'),
        (2, 'step 2\nreturn 1'),
        (4, 'step 4\nreturn 2'),
        (6, 'step 6\nreturn 3'),
        (8, 'step 8\nreturn 4'),
        (10, 'step 10\nreturn 5'),
    ]
    assert figure.texts[0].get_text() == 'One on Steps: return 5 in 10 steps'
    content = (tmp_path / 'new/strip.png').read_bytes()
    assert struct.unpack('>I', content[16:20])[0] == 1050


def test_returns_are_the_environments_own():
    env = zoo.build_env(Steps, length=4, reward_shaping=lambda reward: -10.0 * reward)
    figure = evaluation_strip(None, One(), env, pictures=3)
    assert [text for _, text in shown(figure)] == ['start\n', 'step 2\nreturn 1', 'step 4\nreturn 2']


def test_a_long_episode_is_spread_evenly_and_not_kept_as_a_whole():
    figure = evaluation_strip(None, One(), Steps(1001), pictures=6)
    steps = [int(text.split('\n')[0].replace('step ', '').replace(',', '')) for _, text in shown(figure)[1:]]
    assert steps[-1] == 1001
    np.testing.assert_allclose(steps, [200, 400, 600, 801, 1001], atol=17)
    assert [value for value, _ in shown(figure)[1:]] == [step % 256 for step in steps]


def test_more_pictures_stand_in_rows_and_fewer_steps_give_fewer():
    figure = evaluation_strip(None, One(), Steps(20), pictures=8)
    rows = {round(axes.get_position().y0, 6) for axes in figure.axes}
    assert len(figure.axes) == 8 and len(rows) == 2
    assert [value for value, _ in shown(evaluation_strip(None, One(), Steps(2), pictures=6))] == [0, 1, 2]


def test_it_is_cut_and_says_so():
    figure = evaluation_strip(None, One(), Steps(50), pictures=2, max_steps=7, title=None)
    assert [value for value, _ in shown(figure)] == [0, 7]
    assert figure.texts[0].get_text() == 'One on Steps: return 3.5 in 7 steps, cut there'


def test_a_lost_life_is_no_end():
    agent = One()
    figure = evaluation_strip(None, agent, Steps(9, lives=(4,)), pictures=3)
    assert shown(figure)[-1][0] == 9
    assert agent.remembered[0, 0] == 5, 'a memory begins anew with each life, as in training'


def test_nothing_lies_on_anything_else():
    figure = evaluation_strip(
        None, One(), Steps(30), pictures=12, title='A title that is so long that it is broken ' * 3
    )
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [figure.texts[0].get_window_extent()]
    for i, box in enumerate(boxes):
        assert 0 <= box.x0 and box.x1 <= figure.bbox.x1 and 0 <= box.y0 and box.y1 <= figure.bbox.y1
        assert not any(box.shrunk(0.98, 0.98).overlaps(other.shrunk(0.98, 0.98)) for other in boxes[:i])


def test_what_cannot_be_shown_is_said():
    with pytest.raises(ValueError, match='has render_mode=None: build it with build_env'):
        evaluation_strip(None, One(), Steps(3, render_mode=None))
    with pytest.raises(ValueError, match='2 copies cannot be drawn'):
        evaluation_strip(None, One(), gymnasium.vector.SyncVectorEnv([lambda: Steps(3)] * 2))
    with pytest.raises(ValueError, match='pictures is 1: give an integer of at least 2'):
        evaluation_strip(None, One(), Steps(3), pictures=1)
    env = Steps(3)
    env.render = lambda: None
    with pytest.raises(ValueError, match='the environment draws NoneType instead of a picture'):
        evaluation_strip(None, One(), env)
