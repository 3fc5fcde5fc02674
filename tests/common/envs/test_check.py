"""``check_env``: every fault is named in one sentence, and a sound environment has none."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Text, Tuple

import zoo
from zoo.common.env_wrappers import build_env
from zoo.common.envs.check import check_env


class Sentences(gymnasium.Space):
    """A space of sentences that is not Gymnasium's ``Text``, such as MiniGrid's."""

    def __init__(self) -> None:
        super().__init__(dtype=str)


class Good(gymnasium.Env):
    """Sound, with every kind of observation; the other environments here differ from it in one thing each."""

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 30}
    observation_space = Dict(
        camera=Box(0, 255, (8, 8, 3), np.uint8),
        pose=Tuple([Box(-10, 10, (2,), np.float32), Discrete(30)]),
        flags=MultiBinary(2),
        gears=MultiDiscrete([3, 4]),
    )
    action_space = Discrete(3)
    length = 25

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def observation(self) -> Any:
        return {
            'camera': np.full((8, 8, 3), 10 * self.t, np.uint8),
            'pose': (self.place.astype(np.float32), self.t),
            'flags': np.array([1, 0], np.int8),
            'gears': np.array([2, 3]),
        }

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.t, self.place = 0, self.np_random.uniform(-1, 1, 2)
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        self.t += 1
        self.place += self.np_random.uniform(-0.1, 0.1, 2)
        return self.observation(), float(self.place[0]), self.t == self.length, False, {}

    def render(self) -> np.ndarray:
        return np.zeros((4, 4, 3), np.uint8)


def problem(env: Any) -> str:
    """The one problem of an environment."""
    found = check_env(env)
    assert len(found) == 1, found
    assert '\n' not in found[0] and found[0].endswith('.')
    return found[0]


def advice(env: Any, capsys: Any) -> str:
    """The one piece of advice for an environment without problems."""
    capsys.readouterr()
    assert check_env(env) == []
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'no problem found' and len(lines) == 2 and lines[1].startswith('advice: ')
    return lines[1]


def with_step(change: Any) -> type:
    """``Good`` with ``change(values, t)`` applied to what its steps return."""

    class Changed(Good):
        def step(self, action: Any) -> tuple[Any, ...]:
            return change(super().step(action), self.t)

    return Changed


def with_part(key: str, value: Any, from_step: int = 0) -> type:
    """``Good`` whose observation has another value for a key from a step on."""

    class Changed(Good):
        def observation(self) -> Any:
            found = super().observation()
            if self.t >= from_step:
                found[key] = value
            return found

    return Changed


def with_spaces(observation_space: Any = None, action_space: Any = None, value: Any = None) -> type:
    """A one-observation environment with these spaces."""

    class Changed(Good):
        def observation(self) -> Any:
            return self.observation_space.sample() * 0 if value is None else value

    Changed.observation_space = Box(-1, 1, (1,), np.float32) if observation_space is None else observation_space
    Changed.action_space = Discrete(2) if action_space is None else action_space
    return Changed


# ---- sound environments ---------------------------------------------------------------------------------------------


@pytest.mark.full(but='Good')
@pytest.mark.parametrize('env', [Good, Good(), lambda: Good(), Good('rgb_array'), 'CartPole-v1', 'Pendulum-v1'])
def test_a_sound_environment_has_no_problem(env: Any, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert check_env(env) == []
    assert capsys.readouterr().out == 'no problem found\n'


@pytest.mark.parametrize(
    ('env_id', 'module'),
    [('LunarLander-v3', 'Box2D'), ('HalfCheetah-v5', 'mujoco'), ('Blackjack-v1', 'gymnasium')],
)
def test_registered_environments_have_no_problem(env_id: str, module: str, capsys):
    if find_spec(module) is None:
        pytest.skip(f'{module} is not installed')
    assert check_env(env_id, steps=200) == []


def test_what_build_env_returns_has_no_problem(capsys):
    assert zoo.check_env(build_env(Good, max_episode_steps=7)) == []
    assert zoo.check_env is check_env


def test_only_what_was_made_here_is_closed(capsys):
    class Closing(Good):
        closed = 0

        def close(self) -> None:
            type(self).closed += 1

    env = Closing()
    check_env(env)
    assert Closing.closed == 0
    check_env(Closing)
    assert Closing.closed == 1


def test_no_tensorflow_is_needed():
    code = "import sys, zoo; zoo.check_env('CartPole-v1'); print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ['no problem found', 'False'], done.stderr


# ---- what is printed ------------------------------------------------------------------------------------------------


def test_problems_are_printed_and_returned_once_each(capsys):
    def two_faults(values: tuple, t: int) -> tuple:
        return values[0], 'much', values[2], values[3], None

    found = check_env(with_step(two_faults))
    assert len(found) == 2
    assert capsys.readouterr().out.splitlines() == found
    assert found[0] == "step 1: the reward is 'much' (str), not a number: return float(reward)."
    assert found[1] == 'step 1: info is None, not a dictionary: return {} for none.'


# ---- reset ----------------------------------------------------------------------------------------------------------


def test_reset_without_info():
    class Changed(Good):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0]

    assert problem(Changed).startswith('reset() returned a dict, not the pair of observation and info')


def test_reset_without_arguments():
    class Changed(Good):
        def reset(self) -> Any:
            return super().reset()

    found = check_env(Changed)
    assert [sentence.split(':')[0] for sentence in found] == [
        'reset() does not take seed',
        'reset() does not take options',
    ]


def test_reset_that_raises():
    class Changed(Good):
        def reset(self, **kwargs: Any) -> Any:
            raise KeyError('start')

    assert problem(Changed) == "reset() raised KeyError: 'start'."


# ---- step -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ('change', 'named'),
    [
        (lambda v, t: (v[0], v[1], v[2], v[4]), r'four values.*OldGymEnv\(env\)'),
        (
            lambda v, t: v[:3],
            r'step\(\) returned a tuple of 3: return observation, reward, terminated, truncated, info',
        ),
        (lambda v, t: (v[0], None, *v[2:]), 'step 1: the reward is None'),
        (lambda v, t: (v[0], np.ones(1), *v[2:]), r'step 1: the reward is an array of shape \(1,\)'),
        (
            lambda v, t: (v[0], np.ones(2), *v[2:]),
            r'step 1: the reward is an array of shape \(2,\) .* a number for each of 2 objectives.*TransformReward',
        ),
        (lambda v, t: (v[0], np.nan if t == 4 else 0.0, *v[2:]), 'step 4: the reward is nan: make it a finite'),
        (lambda v, t: (*v[:2], int(v[2]), *v[3:]), r'step 1: terminated is 0 \(int\).*bool\(terminated\)'),
        (lambda v, t: (*v[:3], None, v[4]), 'step 1: truncated is None'),
        (lambda v, t: (*v[:2], np.array([t == 9]), *v[3:]), 'step 1: terminated is an array of shape'),
        (lambda v, t: (*v[:4], []), 'step 1: info is a list of 0, not a dictionary'),
    ],
)
def test_what_a_step_returns(change: Any, named: str):
    assert re.search(named, problem(with_step(change)))


@pytest.mark.full(but='True')
@pytest.mark.parametrize('reward', [1, 0.5, np.float32(2), np.int64(3), True])
def test_numbers_that_are_rewards(reward: Any, capsys):
    assert check_env(with_step(lambda v, t: (v[0], reward, *v[2:]))) == []


def test_a_step_that_raises_names_the_action():
    class Changed(Good):
        def step(self, action: int) -> tuple:
            if action == 2:
                raise RuntimeError('no such gear')
            return super().step(action)

    found = problem(Changed)
    assert 'raised RuntimeError for the action' in found and '2' in found and 'no such gear' in found


# ---- observations ---------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ('key', 'value', 'named'),
    [
        ('camera', np.zeros((8, 8), np.uint8), "reset(): the observation 'camera' has the shape (8, 8)"),
        ('camera', np.zeros((8, 8, 3)), "'camera' is of float64, but its space of uint8: return x.astype(np.uint8)"),
        ('pose', [np.zeros(2, np.float32)], "'pose' is a list of 1, but its space is a Tuple: return a tuple of 2"),
        ('pose', ([0.0, 0.0], 1), "'pose/0' is a list of 2, not an array"),
        ('pose', (np.array([0, np.inf], np.float32), 1), "'pose/0' contains inf"),
        ('pose', (np.array([0, 11], np.float32), 1), "'pose/0' has the value 11.0 at [1]"),
        ('pose', (np.zeros(2, np.float32), 30), "'pose/1' has the value 30, but its space reaches from 0 to 29"),
        ('pose', (np.zeros(2, np.float32), 1.0), "'pose/1' is 1.0 (float), but its space is Discrete(30)"),
        ('flags', np.array([0, 2], np.int8), "'flags' has the value 2 at [1], but its space reaches from 0 to 1"),
        ('gears', np.array([2, 4]), "'gears' has the value 4 at [1], but its space reaches from 0 to 3"),
        ('extra', 1, "has 'extra', which its space lacks"),
    ],
)
def test_a_part_outside_its_space(key: str, value: Any, named: str):
    assert named in problem(with_part(key, value))


def test_the_step_is_named():
    assert problem(with_part('flags', np.array([0, -1], np.int8), 6)).startswith("step 6: the observation 'flags' has")


def test_a_missing_part():
    class Changed(Good):
        def observation(self) -> Any:
            found = super().observation()
            del found['flags']
            return found

    assert "the observation lacks 'flags', which its space has" in problem(Changed)


def test_a_single_array():
    assert 'reset(): the observation is a list of 1' in problem(with_spaces(value=[0.0]))
    assert 'the observation is of float64' in problem(with_spaces(value=np.zeros(1)))


def test_bounds_overstepped_by_rounding_are_fine(capsys):
    assert check_env(with_spaces(value=np.array([1.000001], np.float32))) == []


def test_observations_that_are_one_array():
    class Changed(Good):
        observation_space = Box(-10, 10, (2,), np.float64)

        def observation(self) -> Any:
            return self.place

    assert problem(Changed).startswith('step 1: step() changed the observation that was returned before it')


def test_final_observations_that_reset_writes_over():
    class Changed(Good):
        observation_space = Box(-10, 10, (2,), np.float64)
        kept = np.zeros(2)

        def reset(self, **kwargs: Any) -> Any:
            super().reset(**kwargs)
            self.kept[:] = self.place
            return self.kept.copy(), {}

        def observation(self) -> Any:
            return self.kept if self.t == self.length else self.place.copy()

    assert 'reset() changed the observation that was returned before it' in problem(Changed)


# ---- seeds ----------------------------------------------------------------------------------------------------------


def test_a_first_observation_that_the_seed_does_not_fix():
    class Changed(Good):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            super().reset()
            return self.observation(), {}

    assert 'reset(seed=0) gave another first observation the second time' in problem(Changed)


@pytest.mark.parametrize('what', ['observation', 'reward'])
def test_an_episode_that_the_seed_does_not_fix(what: str):
    class Changed(Good):
        noise = 0.0

        def step(self, action: Any) -> tuple:
            observation, _, *rest = super().step(action)
            type(self).noise += 1e-6
            observation['pose'][0][0] += self.noise * (what == 'observation')
            return observation, self.noise * (what == 'reward'), *rest

    assert f'led to another {what} in step 1 the second time' in problem(Changed)


def test_another_seed(capsys):
    class Changed(Good):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            seeds.append(seed)
            return super().reset(seed=seed)

    seeds: list[int | None] = []
    check_env(Changed, seed=5, steps=3)
    assert seeds == [5, 5, 5, None, 5, None]


def test_a_reset_without_a_seed_that_is_unpredictable():
    class Changed(Good):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            super().reset(seed=seed)
            self.np_random, _ = gymnasium.utils.seeding.np_random(seed)  # a new one where there is no seed
            self.place = self.np_random.uniform(-1, 1, 2)
            return self.observation(), {}

    found = problem(Changed)
    assert found.startswith('reset(seed=0) and then reset() gave another observation the second time')
    assert 'super().reset(seed=seed)' in found and found.endswith('use self.np_random.')


def test_what_is_kept_from_reset_to_reset_is_no_matter_of_the_seed(capsys):
    class Changed(Good):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            self.rounds = 0 if seed is not None else self.rounds + 1  # a curriculum that begins anew with the seed
            observation, info = super().reset(seed=seed)
            self.place += self.rounds / 100
            return self.observation(), info

    assert check_env(Changed) == []


# ---- spaces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('observation_space', 'action_space', 'named'),
    [
        (Graph(Box(0, 1, (1,)), None), None, 'observation_space: the space Graph'),
        (Text(5), None, 'observation_space: the space is text, which no network reads: leave it out by a wrapper'),
        (
            Dict(image=Box(0, 255, (8, 8, 3), np.uint8), mission=Sentences()),
            None,
            "observation_space: the part 'mission' is text, which no network reads: leave it out by a "
            'wrapper (for MiniGrid minigrid.wrappers.ImgObsWrapper or FlatObsWrapper)',
        ),
        (Box(0, 1, (0,)), None, 'observation_space has the shape (0,), which holds no number'),
        (Dict(a=Box(0, 1, (2, 0))), None, "observation_space['a'] has the shape (2, 0)"),
        (3, None, 'observation_space is a builtins.int: set it in __init__'),
        (None, Box(1, 1, (2,)), 'action_space has entries whose low is not below their high'),
        (Dict({}), None, 'has no parts'),
    ],
)
def test_spaces_that_cannot_be_used(observation_space: Any, action_space: Any, named: str):
    assert named in problem(with_spaces(observation_space, action_space))


def test_missing_spaces():
    class Changed(gymnasium.Env):
        pass

    assert [sentence.split(':')[0] for sentence in check_env(Changed)] == [
        'observation_space is missing',
        'action_space is missing',
    ]


def test_what_is_no_environment():
    class Nothing:
        def step(self, action: Any) -> None:
            pass

    for thing in (Nothing, Nothing(), 3, None, np, ['CartPole-v1']):
        assert 'is not a Gymnasium environment' in problem(thing)
    with pytest.raises(ValueError, match="did you mean 'CartPole-v1'"):
        check_env('CartPol-v1')
    with pytest.raises(TypeError, match='a single environment'):
        check_env(gymnasium.make_vec('CartPole-v1', 2))
    with pytest.raises(TypeError, match='a single environment'):
        check_env(lambda: gymnasium.make_vec('CartPole-v1', 2))
    with pytest.raises(ValueError, match="did you mean 'CartPole-v1'"):
        check_env('CartPole')
    for arguments, text in (
        ({'steps': 0}, 'steps is an integer of at least 1, not 0'),
        ({'steps': 1.5}, 'not 1.5'),
        ({'seed': -1}, 'seed is an integer of at least 0, not -1'),
        ({'seed': None}, 'not None'),
    ):
        with pytest.raises(ValueError, match=text):
            check_env(Good, **arguments)


def test_what_makes_no_environment():
    class Needing(Good):
        def __init__(self, size: int) -> None:
            super().__init__()

    assert problem(Needing).startswith("'Needing' cannot be made without 'size': write build_env(Needing, size=…), or ")
    assert problem(lambda: None).startswith("'<lambda>' returned None: let it return")


def test_errors_of_the_making_are_the_makers():
    def broken() -> gymnasium.Env:
        raise TypeError('of its own')

    with pytest.raises(TypeError, match='^of its own$'):
        check_env(broken)


def test_advice_on_actions_without_bounds(capsys):
    text = advice(with_spaces(action_space=Box(-np.inf, 1, (2,))), capsys)
    assert 'action_space has infinite bounds' in text and 'SAC' in text


@pytest.mark.full
def test_advice_on_images(capsys):
    assert 'is an image of float32' in advice(with_spaces(Box(0, 1, (16, 16, 3), np.float32)), capsys)
    assert check_env(with_spaces(Box(0, 1, (16, 16, 3), np.bool_), value=np.ones((16, 16, 3), np.bool_))) == []
    assert 'advice' not in capsys.readouterr().out
    text = advice(with_spaces(Box(0, 255, (64, 32, 48), np.uint8)), capsys)
    assert 'taken as (height, width, channels) with 48 channels of 64x32 pixels' in text
    assert 'is taken for a vector' in advice(with_spaces(Box(0, 255, (4, 4, 3), np.uint8)), capsys)


# ---- ends -----------------------------------------------------------------------------------------------------------


def test_advice_on_episodes_that_do_not_end(capsys):
    class Endless(Good):
        length = -1

        def observation(self) -> Any:
            self.t %= 20
            return super().observation()

    assert 'no episode ended in 300 steps and there is no time limit' in advice_of(Endless, capsys)
    assert check_env(build_env(Endless, max_episode_steps=10**6), steps=300) == []
    assert 'advice' not in capsys.readouterr().out


def advice_of(env: Any, capsys: Any) -> str:
    assert check_env(env, steps=300) == []
    return capsys.readouterr().out


# ---- masks, rendering, the old interface ----------------------------------------------------------------------------


def with_mask(mask: Any, action_space: Any = None) -> type:
    class Changed(Good):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0], {'action_mask': mask}

        def step(self, action: Any) -> tuple:
            self.taken.append(action)
            return *super().step(action)[:4], {'action_mask': mask}

    Changed.action_space = Discrete(3) if action_space is None else action_space
    Changed.taken = []
    return Changed


def test_masks():
    assert 'the action_mask has 2 entries, 0 to 1, but Discrete(3) needs 3' in problem(with_mask(np.array([0, 1])))
    assert 'the action_mask forbids every action' in problem(with_mask(np.zeros(3)))
    assert 'only Discrete, MultiDiscrete and MultiBinary' in problem(with_mask(np.ones(2), Box(-1, 1, (2,))))


def test_masks_are_obeyed(capsys):
    allowed = with_mask(np.array([0, 1, 0]))
    assert check_env(allowed) == []
    assert set(allowed.taken) == {1}
    parts = with_mask((np.array([1, 0]), np.array([0, 0, 1])), MultiDiscrete([2, 3]))
    assert check_env(parts) == []
    assert {tuple(action) for action in parts.taken} == {(0, 2)}
    switches = with_mask(np.array([0, 1, 0]), MultiBinary(3))
    assert check_env(switches) == []
    assert {tuple(action) for action in switches.taken} == {(0, 0, 0), (0, 1, 0)}
    assert check_env(with_mask(np.zeros(3), MultiBinary(3))) == [], 'all off is an action too'


def test_rendering():
    class NoModes(Good):
        metadata = {'render_modes': 'rgb_array'}

    class Wrong(Good):
        def render(self) -> list:
            return [1]

    class Broken(Good):
        def render(self) -> None:
            raise OSError('no display')

    assert "the list 'render_modes'" in problem(NoModes)
    assert "render_mode is 'ansi', which metadata['render_modes'] = ['rgb_array'] lacks" in problem(Good('ansi'))
    assert 'render() returned a list of 1: return an array (height, width, 3) of uint8' in problem(Wrong('rgb_array'))
    assert problem(Broken('rgb_array')) == 'render() raised OSError: no display.'


class Old:
    """Of the old interface, and not derived from Gymnasium."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Discrete(2)

    def seed(self, seed: int | None = None) -> None:
        pass

    def reset(self) -> np.ndarray:
        self.t = 0
        return np.zeros(1)

    def step(self, action: int) -> tuple:
        self.t += 1
        return np.zeros(1), 1.0, self.t == 9, {}


def test_the_old_interface_without_a_seed():
    class Unseeded(Old):
        def reset(self) -> np.ndarray:
            super().reset()
            return np.random.default_rng().random(1)

    found = problem(Unseeded)
    assert found.startswith('reset(seed=0) gave another first observation') and 'a method seed(seed)' in found


def test_the_old_interface(capsys):
    assert 'the old gym interface' in advice(Old, capsys)
    assert 'the old gym interface' in advice(Old(), capsys)


class Masked(gymnasium.Env):
    """A mask in ``info`` for some steps."""

    observation_space = Box(0.0, 1.0, (2,), np.float32)
    action_space = Discrete(2)

    def __init__(self, steps: int = 10**9) -> None:
        self.steps = steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {'action_mask': np.array([1, 1], np.int8)}

    def step(self, action: Any) -> Any:
        self.t += 1
        info = {'action_mask': np.array([0, 1], np.int8)} if self.t <= self.steps else {}
        return np.zeros(2, np.float32), 0.0, self.t == 30, False, info


class WithMethod(Masked):
    """A mask in a method, as sb3-contrib takes it."""

    def action_masks(self) -> np.ndarray:
        return np.array([True, True])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], {}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {}


def test_a_mask_that_is_missing_later_is_a_problem():
    assert check_env(Masked()) == []
    (told,) = check_env(Masked(5))
    assert "info['action_mask'] is missing, but was there before" in told and 'step 6' in told


def test_a_method_that_gives_masks_is_told_of(capsys):
    assert check_env(WithMethod()) == []
    told = capsys.readouterr().out
    assert 'it has a method action_masks(), which nothing here calls' in told
