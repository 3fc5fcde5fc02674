"""The mean of an agent's weights over the last part of a training: what ``average_window`` of ``learn`` asks for.

The last weights are one draw: a single update may spoil them. Their mean over many updates loses that noise (Polyak and
Juditsky 1992, *Acceleration of Stochastic Approximation by Averaging*).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from zoo.common.tools.errors import InvalidValue
from zoo.common.training.agent import Agent

#: How often the weights may enter the mean in each window. More often costs time and changes nothing.
SAMPLES = 40


class Average:
    """An exponential mean of an agent's weights: after one window, 1 / e of it is older.

    The agent learns with its own weights. While callbacks run, in files, and after the training it has the mean. Its
    own weights are then in ``agent.learned``, from where a resumed training goes on. Before the first sample there is
    no mean, and the agent keeps its own weights.

    Args:
        agent: a loaded agent with ``learned`` goes on with these weights and with its mean.
        window: the part of the training that the mean reaches back; 0: no mean.
        train_steps: at the end of the training.
        start: the steps that a resumed training has behind it.
    """

    def __init__(self, agent: Agent, window: float, train_steps: int, start: int) -> None:
        self._agent = agent
        self._every = max(1, int(window * train_steps) // SAMPLES)
        self._means = agent.network_weights() if window else None
        self._ticks = self._first = start // self._every
        held, agent.learned = agent.learned, None
        self._held, self._steps = held, agent.steps
        self._held_mean = None if held is None else agent.network_weights()
        self._has_samples = self._is_shown = False
        if held is not None and start:
            agent.set_network_weights(held)
            self._first, self._has_samples = 0, True

    @property
    def every(self) -> int | None:
        """How many steps lie between two samples of the weights; None: there is no mean."""
        return None if self._means is None else self._every

    @contextlib.contextmanager
    def kept_if_nothing_is_learned(self) -> Iterator[None]:
        """Give a loaded agent its mean and its own weights back if the block fails before the first step."""
        try:
            yield
        except BaseException:
            if self._held_mean is not None and self._agent.steps == self._steps:
                self._agent.set_network_weights(self._held_mean)
                self._agent.learned = self._held
            raise

    def stepped(self, steps: int) -> None:
        """Take the weights into the mean, if a sample is due after so many steps of the training."""
        ticks = steps // self._every
        passed, self._ticks = ticks - self._ticks, ticks
        if self._means is None or not passed:
            return
        self._has_samples = True
        # All samples so far count equally in the first window: otherwise the weights at the beginning would count most.
        part = max(1 - (1 - 1 / SAMPLES) ** passed, passed / (ticks - self._first))
        for name, value in self._agent.network_weights().items():
            self._means[name] += np.asarray(part, value.dtype) * (value - self._means[name])

    def show(self) -> None:
        """Give the agent the mean, and keep its own weights in ``learned``."""
        if self._means is not None and self._has_samples and not self._is_shown:
            self._is_shown = True
            self._agent.learned = self._agent.network_weights()
            self._agent.set_network_weights(self._means)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Give the agent the mean inside a ``with`` block.

        Raises:
            ValueError: the block has changed the weights, which would be lost.
        """
        if self._means is None or not self._has_samples or self._is_shown:
            yield
            return
        own = self._agent.network_weights()
        self.show()
        try:
            yield
            for name, value in self._agent.network_weights().items():
                if not np.array_equal(value, self._means[name], equal_nan=True):
                    raise InvalidValue(
                        'a callback has changed the weights, but with average_window it is given their mean, and the '
                        'change would be lost: give average_window=0.'
                    )
        finally:
            self._agent.learned, self._is_shown = None, False
            self._agent.set_network_weights(own)  # not from the agent: the block may have restored another state
