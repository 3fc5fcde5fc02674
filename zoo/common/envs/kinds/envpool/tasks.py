"""One of EnvPool's tasks by name: its arguments, its time limit, its type in the tables of default parameters."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
from typing import Any

import numpy as np

from zoo.common.envs.kinds.envpool.forms import NamedForm
from zoo.common.envs.kinds.envpool.game import Game
from zoo.common.envs.kinds.envpool.pools import BEYOND, cannot_make, is_installed, names
from zoo.common.tools.checks import is_integer
from zoo.common.tools.errors import Failure, InvalidType, InvalidValue, MissingPackage, article, unknown

#: The module of EnvPool that runs a task -> the type of environment whose default hyper-parameters it gets.
TABLES = {
    'atari': 'atari',
    'procgen': 'atari',
    'vizdoom': 'atari',
    'box2d': 'box2d',
    'classic_control': 'classic_control',
    'mujoco.dmc': 'dm_control',
    'mujoco.gym': 'mujoco',
    'mujoco.metaworld': 'mujoco',
    'mujoco.myosuite': 'mujoco',
    'mujoco.playground': 'mujoco',
    'mujoco.robotics': 'robotics',
}
#: Values that differ from EnvPool's own: lives and clipped rewards as for the type ``'atari'``, whose defaults are used
#: here too; in Doom one action for each combination of buttons instead of a number for each button.
CHANGED: dict[str, dict[str, Any]] = {
    'atari': {'episodic_life': True, 'reward_clip': True},
    'vizdoom': {'use_combined_action': True},
}
#: The modules whose tasks compute with their time limit: rewards in MiniGrid, the length of a match in football, ….
_OWN_LIMIT = ('minigrid', 'gfootball', 'mujoco.playground', 'procgen')
#: Arguments of EnvPool that ``build_env`` decides.
_DECIDED = (
    'num_envs', 'batch_size', 'max_num_players', 'base_path', 'seed', 'env_seed', 'gym_reset_return_info'
)  # fmt: skip
#: Arguments of MuJoCo's tasks that EnvPool takes beside its config.
_DRAWN = {'from_pixels': False, 'render_width': 84, 'render_height': 84, 'render_camera_id': -1}
#: Integers that are at least 1; EnvPool ends the process for some that are not.
_POSITIVE = (
    'num_threads', 'stack_num', 'frame_stack', 'frame_skip', 'img_height', 'img_width', 'render_width', 'render_height'
)  # fmt: skip
#: Doom for several players, which ends the process when it is made for one.
_FOR_SEVERAL = ('Cig-v1', 'MultiDuel-v1')


def check_name(env_id: str) -> None:
    """Refuse a name that EnvPool does not have (ValueError), or any if EnvPool is not installed (ImportError)."""
    if env_id in _FOR_SEVERAL:
        raise InvalidValue(f'{env_id!r} of EnvPool is for several players: zoo trains one agent, so take another task.')
    if env_id not in all_names():
        raise InvalidValue(unknown('envpool environment', env_id, all_names()))


def all_names() -> list[str]:
    """Return the names of all tasks but those that end the process, sorted.

    An ImportError has the ``pip install`` line.
    """
    if not is_installed():
        raise MissingPackage(
            "envpool environments need a package that is not installed: pip install 'zoo-rl[envpool]'."
        )
    return sorted(set(names()) - set(_FOR_SEVERAL))


def family(env_id: str) -> str:
    """Return the module of EnvPool that runs a task, such as ``'atari'`` or ``'mujoco.dmc'``."""
    from envpool.registration import registry

    return registry.specs[env_id][0].removeprefix('envpool.')


def table_type(env_id: str) -> str:
    """Return the type of environment whose default hyper-parameters a task gets, ``'gymnasium'`` for no special one."""
    if not is_installed() or env_id not in names():
        return 'gymnasium'
    return TABLES.get(family(env_id), 'gymnasium')


def takes(env_id: Any, key: str) -> bool:
    """Whether a task has an argument of this name, or another name for it."""
    if not isinstance(env_id, str) or not is_installed() or env_id not in names():
        return False
    known = _defaults(env_id)
    return key in known or (key == 'frame_stack' and 'stack_num' in known)


class Task:
    """One of EnvPool's tasks with the caller's arguments.

    Attributes:
        env_id: its name.
        limit: steps after which an episode is truncated; None for no limit.
        reward_threshold: the mean return at which it counts as solved; None where EnvPool does not say.
        observation_space, action_space: of one copy.

    Raises:
        ValueError: a value that makes no sense; several players; EnvPool cannot make the task.
        TypeError: an argument that the task does not take.
        ImportError: EnvPool needs a library of the system that is not there.
    """

    def __init__(self, env_id: str, max_episode_steps: int | None, render_mode: str | None, **kwargs: Any) -> None:
        self.env_id, self._family = env_id, family(env_id)
        _check_arguments(env_id, self._family, render_mode, kwargs)
        self._kwargs = {**CHANGED.get(self._family, {}), **kwargs}
        spec = make_spec(env_id, self._kwargs)
        config = spec.config._asdict()
        if config['max_num_players'] > 1:
            raise InvalidValue(
                f'{env_id!r} has {config["max_num_players"]} players: zoo trains one agent, see examples/self_play.py.'
            )
        own = config['max_episode_steps'] if config['max_episode_steps'] < BEYOND else None
        longest = config['duration'] * config['policy_frequency'] if self._family == 'highway' else None
        if max_episode_steps is not None and longest is not None and max_episode_steps > longest:
            raise InvalidValue(
                f'{env_id!r} ends after {longest} steps, so max_episode_steps={max_episode_steps} is never reached: '
                'give a longer duration too, in seconds.'
            )
        self.limit = own if max_episode_steps is None else max_episode_steps
        self.reward_threshold = spec.reward_threshold
        #: EnvPool stacks frames with the channels first, and after a lost life on top of older ones.
        self._frames = config.get('stack_num')
        if self._frames is not None:
            self._kwargs['stack_num'] = 1
            spec = make_spec(env_id, self._kwargs)
        self._spec = spec
        kept = self.limit if self._family in _OWN_LIMIT else None
        self._kwargs |= {'max_episode_steps': kept or BEYOND} if self._family != 'highway' else {}
        if render_mode is not None:
            self._kwargs['render_mode'] = render_mode
        form = self._form()
        self.observation_space, self.action_space = form.observation_space, form.action_space

    def game(self, nenv: int) -> Game:
        """Return a game of ``nenv`` copies, which makes its pool when it starts."""
        limit = np.inf if self.limit is None else self.limit
        return Game(self.env_id, nenv, limit, self._kwargs, self._form(), self._family == 'atari')

    def _form(self) -> NamedForm:
        return NamedForm(self._spec, self._frames)


def make_spec(env_id: str, kwargs: dict[str, Any]) -> Any:
    """Return EnvPool's spec of a task; errors are sentences."""
    import envpool

    try:
        return envpool.make_spec(env_id, **kwargs)
    except Exception as error:
        raise cannot_make(env_id, error) from error


def _defaults(env_id: str) -> dict[str, Any]:
    """The arguments of a task with their defaults."""
    import importlib

    from envpool.registration import registry

    path, name, own = registry.specs[env_id]
    try:
        config = getattr(importlib.import_module(path), name).gen_config
    except ImportError as error:
        raise cannot_make(env_id, error) from error
    found = {**config._field_defaults, **own}
    found = {key: value for key, value in found.items() if key not in _DECIDED}
    return found | (_DRAWN if path.startswith('envpool.mujoco.') else {})


def _check_arguments(env_id: str, module: str, render_mode: Any, kwargs: dict[str, Any]) -> None:
    defaults = _defaults(env_id)
    if 'frame_stack' in kwargs and 'stack_num' in defaults:
        raise InvalidType(f'unknown argument of {env_id!r} frame_stack: EnvPool calls it stack_num.')
    for key, value in kwargs.items():
        if key not in defaults:
            raise InvalidType(unknown(f'argument of {env_id!r}', key, [*defaults, 'render_mode']))
        wrong = _wrong(key, value, defaults[key])
        if wrong:
            raise InvalidValue(f'{key} of {env_id!r} is {value!r}: give {wrong}.')
    if render_mode not in (None, 'rgb_array'):
        raise InvalidValue(f"render_mode of {env_id!r} is None or 'rgb_array', not {render_mode!r}.")
    if module.startswith('mujoco.') and (render_mode is not None or kwargs.get('from_pixels')):
        check_drawing(env_id)


def _wrong(key: str, value: Any, default: Any) -> str | None:
    """What to give instead of a value of another type than the default's; None if the value is right."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else 'True or False'
    if isinstance(default, int):
        if key in _POSITIVE:
            return None if is_integer(value, 1) else 'an integer of at least 1'
        return None if isinstance(value, int) and not isinstance(value, bool) else 'an integer'
    if isinstance(default, float):
        return None if isinstance(value, int | float) and not isinstance(value, bool) else 'a number'
    return None if isinstance(value, type(default)) else article(type(default).__name__)


@functools.cache
def _can_draw() -> bool:
    probe = (
        'import warnings; warnings.simplefilter("ignore")\n'
        f'from {__name__} import load_opengl; load_opengl()\n'
        'import envpool\n'
        'pool = envpool.make_gymnasium("HalfCheetah-v4", num_envs=1, render_mode="rgb_array", render_width=8, '
        'render_height=8)\n'
        'pool.reset(); pool.render()'
    )
    return subprocess.run([sys.executable, '-c', probe], capture_output=True, timeout=120).returncode == 0


def check_drawing(env_id: str) -> None:
    """Refuse pictures of MuJoCo's tasks where EnvPool cannot draw: it would end the process (RuntimeError)."""
    if not _can_draw():
        raise Failure(
            f'EnvPool cannot draw {env_id!r} on this machine: install the libraries EGL and OpenGL '
            '(apt install libegl1 libgl1), or leave out render_mode and from_pixels.'
        )
    load_opengl()


def load_opengl() -> None:
    """Load OpenGL for the whole process, where EnvPool's MuJoCo looks for it."""
    if sys.platform == 'linux':
        for library in ('libEGL.so.1', 'libGL.so.1'):
            try:
                ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                return
