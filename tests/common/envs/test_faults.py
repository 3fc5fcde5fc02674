"""An environment that breaks its promises while training is named with the step and the field, single and in copies."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.env_wrappers import build_env
from zoo.common.rollouts.collector import Collector

GOOD = {'pose': np.zeros(2, np.float32), 'room': 1}
FAULTS: dict[str, tuple[dict[str, Any], Any, str]] = {
    'shape': ({'pose': np.zeros(3, np.float32)}, 0.0, r"'pose' .*shape \(3,\)"),
    'dtype': ({'pose': np.full(2, 1e39)}, 0.0, r"'pose' .*the value 1e\+39"),
    'kind': ({'room': 0.5}, 0.0, "'room' .*the value 0.5"),
    'missing': ({'pose': None}, 0.0, "'pose' is missing|'pose' .*object"),
    'nan': ({'pose': np.array([0, np.nan], np.float32)}, 0.0, "'pose' .*nan"),
    'reward nan': ({}, float('inf'), 'reward .*inf'),
    'reward none': ({}, None, 'reward'),
    'reward array': ({}, np.zeros(2), 'reward'),
}


class Faulty(gymnasium.Env):
    """The third step of its first episode has the fault; its episodes have five."""

    observation_space = Dict(pose=Box(-1, 1, (2,), np.float32), room=Discrete(3))
    action_space = Discrete(2)

    def __init__(self, fault: str) -> None:
        self.changes, self.reward, _ = FAULTS[fault]
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return GOOD, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t += 1
        faulty = self.t == 3
        return GOOD | (self.changes if faulty else {}), self.reward if faulty else 1.0, self.t == 5, False, {}


@pytest.mark.full(but='dtype-1-False')
@pytest.mark.parametrize('nenv, vectorized', [(1, False), (2, 'sync'), (2, 'async')])
@pytest.mark.parametrize('fault', FAULTS)
def test_the_step_and_the_field_are_named(fault: str, nenv: int, vectorized: str | bool):
    env = build_env(Faulty, 'gymnasium', vectorized, nenv=nenv, fault=fault)
    collector = Collector(env, ActionAdaptor(Faulty.action_space))
    collector.reset(0)
    action = np.zeros(nenv, np.int32)
    for _ in range(2):
        collector.step(action)
    with pytest.raises((ValueError, TypeError, FloatingPointError, RuntimeError), match=FAULTS[fault][2]) as caught:
        collector.step(action)
    assert 'step' in str(caught.value).splitlines()[0] or 'step 3' in str(caught.value)
    env.close()


class Plain(gymnasium.Env):
    """An array is observed; the parts below break one promise each."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (2,), np.float32), Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 0.0, False, False, {}


class WithoutSeed(Plain):
    def reset(self) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        return np.zeros(2, np.float32), {}


class WithoutOptions(Plain):
    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        return np.zeros(2, np.float32), {}


class WithoutActions(Plain):
    def __init__(self) -> None:
        self.observation_space = Box(-1, 1, (2,), np.float32)


class Numbered(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = 2  # type: ignore[assignment]


class DictAtFirst(Plain):
    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return {'x': np.zeros(2, np.float32)}, {}


class DictLater(Plain):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return {'x': np.zeros(2, np.float32)}, 0.0, False, False, {}


DICT = (
    r'gave an observation that is a dict, but its space declares an array of shape \(2,\) and float32: correct one of '
)


@pytest.mark.parametrize('nenv', [1, 2])
@pytest.mark.parametrize(
    ('made', 'error', 'told'),
    [
        (
            WithoutSeed,
            TypeError,
            r'^WithoutSeed: reset\(\) does not take seed: write def reset\(self, \*, seed=None, opt',
        ),
        (WithoutActions, TypeError, r'^WithoutActions: action_space is missing: set it in __init__ to a space of '),
        (Numbered, TypeError, r'^Numbered: observation_space is a builtins.int: set it in __init__ to a space of '),
        (DictAtFirst, ValueError, f'^DictAtFirst {DICT}'),
        (DictLater, ValueError, f'^step 1: (the environment|DictLater) {DICT}'),
    ],
)
def test_what_an_environment_lacks_is_said_in_a_sentence(made, error, told, nenv: int):
    with pytest.raises(error, match=told):
        env = build_env(made, 'gymnasium', nenv=nenv, vectorized=nenv > 1 and 'sync')
        collector = Collector(env, ActionAdaptor(Discrete(2)))
        collector.reset(0)
        collector.step(np.zeros(nenv, np.int32))


def test_copies_need_a_reset_that_takes_options():
    Collector(build_env(WithoutOptions, 'gymnasium'), ActionAdaptor(Discrete(2))).reset(0)
    copies = build_env(WithoutOptions, 'gymnasium', 'sync', nenv=2)
    with pytest.raises(TypeError, match=r'^WithoutOptions: reset\(\) does not take options: write def reset'):
        Collector(copies, ActionAdaptor(Discrete(2))).reset(0)
