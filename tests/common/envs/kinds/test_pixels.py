"""Pixel observations: what is seen, from where, how far away, across episode ends, and without a renderer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from zoo.common.env_wrappers import build_env
from zoo.common.envs.kinds import pixels, registered, rendering
from zoo.common.spaces import FrameStack

#: A floor 3 m below a camera that looks down, with a box 0.5 m high in the upper left quarter of its picture.
SCENE = """
<mujoco>
  <visual><map znear="0.01" zfar="100"/><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <statistic extent="1" center="0 0 0"/>
  <worldbody>
    <camera name="above" pos="0 0 3" xyaxes="1 0 0 0 1 0" fovy="60"/>
    <camera pos="0 0 6" xyaxes="1 0 0 0 1 0" fovy="60"/>
    <geom type="plane" size="50 50 1" rgba="0 0 1 1"/>
    <geom name="box" type="box" size=".5 .5 .25" pos="-.7 .7 .25" rgba="{} 1"/>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope='module')
def renderer() -> None:
    """Skips what has to be drawn where nothing can draw it."""
    pytest.importorskip('mujoco', reason='MuJoCo is not installed')
    try:
        rendering._gl_context(16, 16).free()
    except RuntimeError as error:
        pytest.skip(str(error))


class Scene(gymnasium.Env):
    """The scene; every step moves the box 1 cm to the right, and three of them are an episode."""

    observation_space = Box(-1, 1, (1,), np.float64)
    action_space = Discrete(2)

    def __init__(self, colour: str = '1 0 0') -> None:
        import mujoco

        self._forward = mujoco.mj_forward
        self.model = mujoco.MjModel.from_xml_string(SCENE.format(colour))
        self.data = mujoco.MjData(self.model)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count = 0
        return self._move(float(self.np_random.uniform(-0.75, -0.65))), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        return self._move(self.model.geom('box').pos[0] + 0.01), 1.0, self.count == 3, False, {}

    def _move(self, x: float) -> np.ndarray:
        self.model.geom('box').pos[0] = x
        self._forward(self.model, self.data)
        return np.array([x])


@pytest.fixture
def scene(renderer: None) -> Iterator[pixels.PixelObservations]:
    env = pixels.PixelObservations(Scene(), 'both', cameras=('above', 1), depth=True, frame_size=(60, 80))
    yield env
    env.close()


def test_colours_and_distances_are_those_of_the_scene(scene: pixels.PixelObservations) -> None:
    observation, _ = scene.reset(seed=0)
    image, depth = observation['above'], observation['above_depth']
    assert image.shape == (60, 80, 3) and image.dtype == np.uint8
    assert depth.shape == (60, 80, 1) and depth.dtype == np.float32
    # 1 m on the floor is 30 / (3 tan 30°) = 17.3 pixels: the box is left of and above the middle, which is (30, 40).
    red, blue = image[..., 0] > image[..., 2], image[..., 0] < image[..., 2]
    assert red[16, 26] and blue[44, 26] and blue[16, 54] and blue[44, 54]
    np.testing.assert_allclose(depth[44, 54], 3.0, rtol=1e-5)
    np.testing.assert_allclose(depth[14, 26], 2.5, rtol=1e-5)
    np.testing.assert_allclose(observation['camera_1_depth'][44, 54], 6.0, rtol=1e-5)
    assert observation['state'].dtype == np.float64 and scene.observation_space.contains(observation)


def test_what_is_farther_than_the_limit_is_seen_at_the_limit(renderer: None) -> None:
    env = pixels.PixelObservations(Scene(), cameras='above', depth=2.75, frame_size=60)
    observation, _ = env.reset(seed=0)
    assert env.observation_space['depth'] == Box(0.0, 2.75, (60, 60, 1), np.float32)
    assert observation['depth'].max() == np.float32(2.75) and abs(observation['depth'].min() - 2.5) < 1e-4
    env.close()


@pytest.mark.full(but='True-cameras1-False-None')
@pytest.mark.parametrize(
    ('pixels_', 'cameras', 'depth', 'keys'),
    [
        (True, 'above', False, None),
        (True, ['above'], False, None),
        (True, 'above', True, {'pixels', 'depth'}),
        (True, ('above', 1), False, {'above', 'camera_1'}),
        (True, (0, -1), True, {'above', 'above_depth', 'free', 'free_depth'}),
        ('both', None, False, {'state', 'pixels'}),
        ('both', 1, True, {'state', 'pixels', 'depth'}),
    ],
)
def test_keys(renderer: None, pixels_: Any, cameras: Any, depth: bool, keys: set[str] | None) -> None:
    env = pixels.PixelObservations(Scene(), pixels_, cameras, depth)
    observation, _ = env.reset(seed=0)
    if keys is None:
        assert env.observation_space == Box(0, 255, (84, 84, 3), np.uint8)
    else:
        assert isinstance(env.observation_space, Dict) and set(env.observation_space.spaces) == keys
    assert env.observation_space.contains(observation)
    env.close()


def test_environments_do_not_draw_into_each_other(renderer: None) -> None:
    red, green = (pixels.PixelObservations(Scene(colour), cameras='above') for colour in ('1 0 0', '0 1 0'))
    first, _ = red.reset(seed=0)
    red_channels = first[22, 22].argmax()
    other, _ = green.reset(seed=0)
    again, _ = red.reset(seed=0)
    assert red_channels == 0 and other[22, 22].argmax() == 1
    np.testing.assert_array_equal(first, again)
    green.close()
    np.testing.assert_array_equal(red.reset(seed=0)[0], first)
    red.close()


@pytest.mark.full
def test_small_pictures_are_those_of_gymnasiums_viewer(renderer: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.envs.mujoco.mujoco_rendering import OffScreenViewer

    env = pixels.PixelObservations(gymnasium.make('HalfCheetah-v5', disable_env_checker=True), cameras='track')
    env.reset(seed=0)
    for _ in range(5):
        image, *_ = env.step(np.ones(6, np.float32))
    monkeypatch.setenv('MUJOCO_GL', type(env._renderer._gl).__module__.rpartition('.')[2])
    viewer = OffScreenViewer(env.unwrapped.model, env.unwrapped.data, 84, 84)
    expected = viewer.render('rgb_array', 0).astype(int)
    viewer.con.free()
    viewer.free()
    assert np.abs(image - expected).mean() < 0.5  # the edges of shadows
    assert np.abs(np.roll(image, 4, 0) - expected).mean() > 2
    env.close()


def test_every_observation_is_a_new_array(scene: pixels.PixelObservations) -> None:
    first, _ = scene.reset(seed=0)
    kept = {key: value.copy() for key, value in first.items()}
    second, *_ = scene.step(0)
    for key in first:
        assert not np.shares_memory(first[key], second[key])
        np.testing.assert_array_equal(first[key], kept[key])
    assert (first['above'] != second['above']).any()


def test_stacks_hold_no_frame_of_the_old_episode(renderer: None) -> None:
    env = pixels.add_pixels(Scene(), frame_stack=3, pixels=True, cameras='above', depth=True, frame_size=40)
    plain = pixels.PixelObservations(Scene(), cameras='above', depth=True, frame_size=40)
    assert isinstance(env.observation_space['pixels'], FrameStack)
    assert env.observation_space['depth'].shape == (40, 40, 3)
    for seed in (0, 1):
        stack, _ = env.reset(seed=seed)
        seen = [plain.reset(seed=seed)[0]] * 3
        for step in range(4):
            for key, size in (('pixels', 3), ('depth', 1)):
                for i in range(3):
                    np.testing.assert_array_equal(stack[key][..., size * i : size * (i + 1)], seen[-3 + i][key])
            assert env.observation_space.contains(stack)
            if step < 3:
                stack, _, terminated, _, _ = env.step(0)
                seen.append(plain.step(0)[0])
        assert terminated
    env.close(), plain.close()


@pytest.mark.full
def test_the_state_is_that_of_the_environment_without_pixels(renderer: None) -> None:
    arguments = {'env_type': 'mujoco', 'max_episode_steps': 4, 'seed': 3}
    env = build_env('HalfCheetah-v5', pixels='both', cameras=('track', -1), frame_size=32, **arguments)
    plain = build_env('HalfCheetah-v5', **arguments)
    assert env.spec.id == 'HalfCheetah-v5' and env.render_mode == 'rgb_array'
    for _ in range(2):
        observation, expected = env.reset()[0], plain.reset()[0]
        truncated = False
        while not truncated:
            np.testing.assert_array_equal(observation['state'], expected)
            assert env.observation_space.contains(observation)
            action = plain.action_space.sample()
            observation, reward, _, truncated, _ = env.step(action)
            expected, *rest = plain.step(action)
            assert [reward, truncated] == [rest[0], rest[2]]
    assert env.render().shape == (480, 480, 3)
    env.close()


@pytest.mark.full
def test_copies_in_processes_see_what_copies_here_see(renderer: None) -> None:
    arguments = {'env_type': 'mujoco', 'pixels': True, 'frame_size': 24, 'max_episode_steps': 2, 'nenv': 2, 'seed': 5}
    here, there = (build_env('Hopper-v5', vectorized=kind, **arguments) for kind in ('sync', 'async'))
    np.testing.assert_array_equal(here.reset()[0], there.reset()[0])
    for step in range(4):
        action = here.action_space.sample()
        (a, *_, first), (b, *_, second) = here.step(action), there.step(action)
        np.testing.assert_array_equal(a, b)
        assert ('final_obs' in first) == (step % 2 == 1)
        if step % 2:
            for i in range(2):
                np.testing.assert_array_equal(first['final_obs'][i], second['final_obs'][i])
                assert (first['final_obs'][i] != a[i]).any()
    here.close(), there.close()


def test_any_environment_that_renders() -> None:
    pytest.importorskip('pygame', reason='CartPole is drawn by pygame')
    pytest.importorskip('cv2', reason='OpenCV is not installed')
    env = build_env('CartPole-v1', pixels='both', frame_size=(40, 60), frame_stack=2)
    observation, _ = env.reset(seed=0)
    assert observation['pixels'].shape == (40, 60, 6) and observation['state'].shape == (4,)
    expected = env.unwrapped.render()
    # Mean grey is kept by averaging over areas, whatever the size.
    assert abs(float(observation['pixels'].mean()) - float(expected.mean())) < 1
    assert observation['pixels'].min() < 60 and env.observation_space.contains(observation)
    assert (env.render() == expected).all()


@pytest.mark.full
def test_goals_stay_beside_the_picture(renderer: None) -> None:
    pytest.importorskip('gymnasium_robotics', reason='gymnasium-robotics is not installed')
    env = build_env('FetchReach-v4', 'robotics', pixels='both')
    observation, _ = env.reset(seed=0)
    assert set(observation) == {'observation', 'achieved_goal', 'desired_goal', 'pixels'}
    # The environment moves the goal's marker only when it is drawn.
    before = env.render()
    env.unwrapped.goal = env.unwrapped.goal + [0.0, 0.1, 0.1]
    assert (env.render() != before).any()
    env.close()


def test_the_factory_can_be_pickled() -> None:
    factory = registered.find('CartPole-v1', 'classic_control')
    assert cloudpickle.loads(cloudpickle.dumps(factory))(pixels=False).observation_space.shape == (4,)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'cameras': 'abov'}, "camera 'abov': did you mean 'above'"),
        ({'cameras': 7}, 'no camera 7: give an id from -1, the free camera, to 1, or a name: above'),
        ({'cameras': ('above', 0)}, 'each once'),
        ({'cameras': ()}, 'at least one'),
        ({'pixels': 'yes'}, "'both' for images and the state, not 'yes'"),
        ({'pixels': 'Both'}, "'both' for images and the state, not 'Both'"),
        ({'cameras': 1.5}, 'by its name or its id, not by 1.5'),
        ({'cameras': (0, True)}, 'by its name or its id, not by True'),
        ({'frame_size': 4}, 'at least 8 pixels'),
        ({'frame_size': 84.0}, 'frame_size is 84.0: give integers of at least 8 pixels'),
        ({'frame_size': (84, 84.5)}, 'give integers of at least 8 pixels'),
        ({'frame_size': (84, 84, 3)}, 'at least 8 pixels'),
        ({'frame_size': '84'}, 'at least 8 pixels'),
        ({'depth': -1.0}, 'distance in meters'),
        ({'depth': 'far'}, "distance in meters at which it is cut off, not 'far'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    pytest.importorskip('mujoco', reason='MuJoCo is not installed')
    with pytest.raises(ValueError, match=message):
        pixels.PixelObservations(Scene(), **options)


def test_environments_that_cannot_be_seen() -> None:
    with pytest.raises(ValueError, match='need a MuJoCo scene'):
        build_env('CartPole-v1', pixels=True, depth=True)
    with pytest.raises(ValueError, match="need render_mode='rgb_array', but it is None"):
        pixels.PixelObservations(gymnasium.make('CartPole-v1'))
    with pytest.raises(TypeError, match="does not take the argument 'frame_size'"):
        build_env('CartPole-v1', pixels=False, frame_size=42)


@pytest.mark.parametrize('wanted', [None, 'egl', 'osmesa', 'glfw'])
def test_a_missing_renderer_is_named(monkeypatch: pytest.MonkeyPatch, wanted: str | None) -> None:
    pytest.importorskip('mujoco', reason='MuJoCo is not installed')
    if sys.platform != 'linux':
        pytest.skip('elsewhere the renderer belongs to the system')
    for name in ('DISPLAY', 'WAYLAND_DISPLAY', 'MUJOCO_GL'):
        monkeypatch.delenv(name, raising=False)
    if wanted:
        monkeypatch.setenv('MUJOCO_GL', wanted)
    monkeypatch.setattr(rendering, 'LIBRARIES', {'egl': ('libnone.so',), 'osmesa': ('libnone.so.8', 'libnone.so.6')})
    env = pixels.PixelObservations(Scene())
    with pytest.raises(RuntimeError, match='libegl1 or libosmesa6.*MUJOCO_GL') as caught:
        env.reset(seed=0)
    assert repr(wanted) in str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize('first', ['tensorflow', 'zoo'])
def test_tensorflow_and_the_renderer_get_along(renderer: None, first: str) -> None:
    """Both have an LLVM, and the one calling the other's ends the process; nothing is printed when Python ends."""
    see = [
        'from zoo import build_env',
        "kept = [build_env('HalfCheetah-v5', 'mujoco', pixels=True, frame_size=16) for _ in range(2)]",
        'kept[0].render()',
        'kept.pop().close()',
    ]
    learn = ['import tensorflow as tf', 'assert int(tf.function(lambda x: x + 1)(tf.constant(1))) == 2']
    again = ['kept[0].step(kept[0].action_space.sample())']
    program = (learn + see if first == 'tensorflow' else see + learn) + again
    run = subprocess.run([sys.executable, '-c', '\n'.join(program)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert 'Exception ignored' not in run.stderr and 'Traceback' not in run.stderr, run.stderr


@pytest.mark.full
@pytest.mark.parametrize('env_type', ['mujoco', 'dm_control'])
def test_a_renderer_that_is_named_and_missing(env_type: str) -> None:
    """MuJoCo and dm_control load it when they are imported."""
    if sys.platform != 'linux':
        pytest.skip('elsewhere the renderer belongs to the system')
    pytest.importorskip({'mujoco': 'mujoco'}.get(env_type, env_type), reason=f'{env_type} is not installed')
    env_id = {'mujoco': 'HalfCheetah-v5', 'dm_control': 'cheetah-run'}[env_type]
    program = (
        'import ctypes\n'
        'load = ctypes.CDLL.__init__\n'
        'def refuse(self, name, *args, **kwargs):\n'
        "    if name and 'OSMesa' in str(name):\n"
        "        raise OSError(f'{name}: cannot open shared object file')\n"
        '    load(self, name, *args, **kwargs)\n'
        'ctypes.CDLL.__init__ = refuse\n'
        'from zoo import build_env\n'
        'try:\n'
        f'    build_env({env_id!r}, {env_type!r})\n'
        'except RuntimeError as error:\n'
        '    print(error)\n'
    )
    environment = {**os.environ, 'MUJOCO_GL': 'osmesa'}
    environment.pop('PYOPENGL_PLATFORM', None)
    run = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=120, env=environment)
    assert 'libegl1 or libosmesa6' in run.stdout and "it is 'osmesa' now" in run.stdout, run.stdout + run.stderr
