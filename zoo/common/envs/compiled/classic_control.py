"""Gymnasium's classic control tasks as pure functions in TensorFlow.

They follow the equations of Gymnasium 1.4 (``gymnasium/envs/classic_control``), in float64 as there, and give the same
steps to rounding. Only the random numbers of first states come from another generator.
"""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import gymnasium
import numpy as np
import tensorflow as tf

from zoo.common.maths.distributions import GENERATOR
from zoo.common.tools.errors import InvalidType, InvalidValue


class ClassicControl:
    """What the tasks share: Gymnasium's spaces, time limit and pictures. A state is float64 ``[n]``.

    Args:
        **kwargs: arguments of Gymnasium's environment.
    """

    #: Arguments of Gymnasium's environment that are honored.
    takes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, env_id: str, **kwargs: Any) -> None:
        unknown = sorted(kwargs.keys() - set(self.takes))
        if unknown:
            known = f'it takes {", ".join(self.takes)}' if self.takes else 'it takes none'
            raise InvalidType(
                f"{env_id} with vectorized='compiled' does not take {unknown[0]!r} ({known}): use vectorized='sync'."
            )
        self.name, self._arguments = env_id, kwargs
        env = gymnasium.make(env_id, **kwargs)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.spec = env.spec
        assert env.spec is not None  # it was made by its name
        self.max_episode_steps = env.spec.max_episode_steps
        self.task: Any = env.unwrapped

    @functools.cached_property
    def _drawn(self) -> Any:
        return gymnasium.make(self.name, render_mode='rgb_array', **self._arguments).unwrapped

    def render(self, state: np.ndarray) -> np.ndarray:
        """Return Gymnasium's picture of a state, uint8 ``[height, width, 3]``."""
        self._drawn.reset()
        self._drawn.state = np.array(state)
        return self._drawn.render()


def uniform(seed: tf.Tensor, low: Any, high: Any) -> tf.Tensor:
    """Return float64 numbers between two bounds of one shape ``[n]``."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    return tf.random.stateless_uniform(low.shape, seed, low, high, tf.float64, alg=GENERATOR)


def observed(*values: tf.Tensor) -> tf.Tensor:
    """Return an observation, float32 ``[n]``."""
    return tf.cast(tf.stack(values), tf.float32)


class CartPole(ClassicControl):
    """Barto, Sutton and Anderson 1983: balance a pole on a cart."""

    takes = ('sutton_barto_reward',)

    def reset(self, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        state = uniform(seed, [-0.05] * 4, [0.05] * 4)
        return state, tf.cast(state, tf.float32)

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        task = self.task
        x, x_dot, theta, theta_dot = tf.unstack(state)
        force = tf.cast(tf.where(action == 1, task.force_mag, -task.force_mag), tf.float64)
        cos, sin = tf.cos(theta), tf.sin(theta)
        # http://coneural.org/florian/papers/05_cart_pole.pdf
        push = (force + task.polemass_length * tf.square(theta_dot) * sin) / task.total_mass
        theta_acc = (task.gravity * sin - cos * push) / (
            task.length * (4.0 / 3.0 - task.masspole * tf.square(cos) / task.total_mass)
        )
        x_acc = push - task.polemass_length * theta_acc * cos / task.total_mass
        state = tf.stack(
            [
                x + task.tau * x_dot,
                x_dot + task.tau * x_acc,
                theta + task.tau * theta_dot,
                theta_dot + task.tau * theta_acc,
            ]
        )
        fell = (tf.abs(state[0]) > task.x_threshold) | (tf.abs(state[2]) > task.theta_threshold_radians)
        reward = tf.where(fell, -1.0, 0.0) if self._arguments.get('sutton_barto_reward') else tf.constant(1.0)
        return state, tf.cast(state, tf.float32), reward, fell, tf.constant(False)


class Pendulum(ClassicControl):
    """Swing a pendulum up and hold it there. The state is the angle and its speed."""

    takes = ('g',)

    def reset(self, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        state = uniform(seed, [-math.pi, -1.0], [math.pi, 1.0])
        return state, self.observe(state)

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """Return cosine and sine of the angle, and the speed."""
        return observed(tf.cos(state[0]), tf.sin(state[0]), state[1])

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        task, dt = self.task, self.task.dt
        theta, speed = tf.unstack(state)
        torque = tf.cast(tf.clip_by_value(action[0], -task.max_torque, task.max_torque), tf.float64)
        angle = tf.math.floormod(theta + math.pi, 2.0 * math.pi) - math.pi
        cost = tf.square(angle) + 0.1 * tf.square(speed) + 0.001 * tf.square(torque)
        gravity = 3.0 * task.g / (2.0 * task.l) * tf.sin(theta)
        speed += (gravity + 3.0 / (task.m * task.l**2) * torque) * dt
        speed = tf.clip_by_value(speed, -task.max_speed, task.max_speed)
        state = tf.stack([theta + speed * dt, speed])
        return state, self.observe(state), -cost, tf.constant(False), tf.constant(False)


class Acrobot(ClassicControl):
    """Sutton 1996: swing the tip of two links above a line. The state is two angles and their speeds."""

    def reset(self, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        state = uniform(seed, [-0.1] * 4, [0.1] * 4)
        return state, self.observe(state)

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """Return cosine and sine of both angles, and the speeds."""
        first, second, *speeds = tf.unstack(state)
        return observed(tf.cos(first), tf.sin(first), tf.cos(second), tf.sin(second), *speeds)

    def slope(self, state: tf.Tensor, torque: tf.Tensor) -> tf.Tensor:
        """Return the derivative of a state in time (Sutton and Barto's book, not the NIPS paper)."""
        task, g = self.task, 9.8
        m1, m2, l1 = task.LINK_MASS_1, task.LINK_MASS_2, task.LINK_LENGTH_1
        lc1, lc2 = task.LINK_COM_POS_1, task.LINK_COM_POS_2
        inertia = task.LINK_MOI
        first, second, v1, v2 = tf.unstack(state)
        cos, sin = tf.cos(second), tf.sin(second)
        d1 = m1 * lc1**2 + m2 * (l1**2 + lc2**2 + 2.0 * l1 * lc2 * cos) + 2.0 * inertia
        d2 = m2 * (lc2**2 + l1 * lc2 * cos) + inertia
        phi2 = m2 * lc2 * g * tf.cos(first + second - math.pi / 2.0)
        phi1 = -m2 * l1 * lc2 * tf.square(v2) * sin - 2.0 * m2 * l1 * lc2 * v2 * v1 * sin
        phi1 += (m1 * lc1 + m2 * l1) * g * tf.cos(first - math.pi / 2.0) + phi2
        a2 = torque + d2 / d1 * phi1 - m2 * l1 * lc2 * tf.square(v1) * sin - phi2
        a2 /= m2 * lc2**2 + inertia - tf.square(d2) / d1
        return tf.stack([v1, v2, -(d2 * a2 + phi1) / d1, a2])

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        task, dt = self.task, self.task.dt
        torque = tf.gather(tf.constant(task.AVAIL_TORQUE, tf.float64), action)
        # One step of Runge and Kutta's method of fourth order.
        k1 = self.slope(state, torque)
        k2 = self.slope(state + dt / 2.0 * k1, torque)
        k3 = self.slope(state + dt / 2.0 * k2, torque)
        k4 = self.slope(state + dt * k3, torque)
        first, second, v1, v2 = tf.unstack(state + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4))
        first, second = (tf.math.floormod(x + math.pi, 2.0 * math.pi) - math.pi for x in (first, second))
        v1 = tf.clip_by_value(v1, -task.MAX_VEL_1, task.MAX_VEL_1)
        v2 = tf.clip_by_value(v2, -task.MAX_VEL_2, task.MAX_VEL_2)
        state = tf.stack([first, second, v1, v2])
        up = -tf.cos(first) - tf.cos(second + first) > 1.0
        return state, self.observe(state), tf.where(up, 0.0, -1.0), up, tf.constant(False)


class MountainCar(ClassicControl):
    """Moore 1990: drive a weak car out of a valley. The state is its position and speed."""

    takes = ('goal_velocity',)

    def reset(self, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        state = uniform(seed, [-0.6, 0.0], [-0.4, 0.0])
        return state, tf.cast(state, tf.float32)

    def moved(self, state: tf.Tensor, push: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the state after a step with a push, float64, and whether the goal is reached."""
        task = self.task
        position, speed = tf.unstack(state)
        speed = tf.clip_by_value(speed + push - 0.0025 * tf.cos(3.0 * position), -task.max_speed, task.max_speed)
        position = tf.clip_by_value(position + speed, task.min_position, task.max_position)
        speed = tf.where((position == task.min_position) & (speed < 0.0), tf.zeros_like(speed), speed)
        state = tf.stack([position, speed])
        return state, (position >= task.goal_position) & (speed >= task.goal_velocity)

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        state, out = self.moved(state, (tf.cast(action, tf.float64) - 1.0) * self.task.force)
        return state, tf.cast(state, tf.float32), tf.constant(-1.0), out, tf.constant(False)


class MountainCarContinuous(MountainCar):
    """The same with a force between -1 and 1, and a reward for the goal less the cost of the force."""

    def step(self, state: tf.Tensor, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        given = tf.cast(action[0], tf.float64)
        state, out = self.moved(state, tf.clip_by_value(given, -1.0, 1.0) * self.task.power)
        reward = tf.where(out, 100.0, 0.0) - 0.1 * tf.cast(tf.square(given), tf.float32)
        return state, tf.cast(state, tf.float32), reward, out, tf.constant(False)


#: Names that Gymnasium registers -> their functions.
TASKS: dict[str, type[ClassicControl]] = {
    'Acrobot-v1': Acrobot,
    'CartPole-v0': CartPole,
    'CartPole-v1': CartPole,
    'MountainCar-v0': MountainCar,
    'MountainCarContinuous-v0': MountainCarContinuous,
    'Pendulum-v1': Pendulum,
}


def task(env_id: str, **kwargs: Any) -> ClassicControl:
    """Return the functions of a task.

    Raises:
        ValueError: there is no such task in TensorFlow.
        TypeError: the task does not take one of ``kwargs``.
    """
    if env_id not in TASKS:
        raise InvalidValue(
            f"vectorized='compiled' has {', '.join(TASKS)}, but not {env_id!r}: use vectorized='sync' or 'async', or "
            "give the environment's own pure functions, build_env(MyFunctions(), 'compiled')."
        )
    return _made(env_id, tuple(sorted(kwargs.items())))


@functools.cache
def _made(env_id: str, kwargs: tuple[tuple[str, Any], ...]) -> ClassicControl:
    """Make functions once: what is compiled for them is kept as long as they live."""
    return TASKS[env_id](env_id, **dict(kwargs))
