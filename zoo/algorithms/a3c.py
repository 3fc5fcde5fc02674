"""A3C: asynchronous advantage actor-critic.

Mnih et al. 2016, *Asynchronous Methods for Deep Reinforcement Learning* (arXiv 1602.01783), section 4 and algorithm S3,
with RMSProp of shared statistics (their equation S2). Every actor plays a short rollout with its own copy of the
networks, computes the gradient, and goes on with the weights that follow from it. The learner holds the weights and the
optimizer and applies each gradient when it arrives. Nobody waits for a particular actor. A gradient belongs to older
weights than the ones it moves, and nothing corrects for that: ``roles/staleness`` counts the updates between.

Departures: the departures of A2C. Actors are processes with queues to the learner, so each gradient is applied whole;
the paper's are threads on common memory. An actor may step several copies of the environment.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
import tensorflow as tf

from zoo.algorithms.a2c import A2C
from zoo.algorithms.base import Algorithm, saving
from zoo.common import spaces
from zoo.common.records import Trajectories
from zoo.common.schedules import value_at
from zoo.common.tools.compilation import PackedCall
from zoo.common.tools.errors import InvalidValue
from zoo.common.training import loops


class A3C(A2C):
    """Asynchronous advantage actor-critic for every action space: gradients that actors compute, as they come.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso. ``roles=None``
    trains in this process, and is A2C.
    """

    loop = loops.asynchronous
    # The scale of rewards needs one process that sees all of them.
    unused: ClassVar[tuple[str, ...]] = ('normalize_reward',)
    learn_defaults = {'roles': {'learners': 1, 'actors': 2}}

    def gradient(self, rollout: Trajectories) -> dict[str, Any]:
        """Return gradient and metrics of a rollout ``[T, N, …]``, float32 vectors, and observations to normalize by."""
        now = {name: np.array(value_at(getattr(self, name), self.progress), np.float32) for name in self.scheduled}
        result = self._computed(rollout, now)
        count = len(self.metric_names)
        obs = spaces.tree_map(lambda x: x[rollout.valid], rollout.obs) if self.statistics else None
        return {'gradient': result[count:], 'metrics': result[:count], 'obs': obs}

    def take_gradient(self, found: dict[str, Any]) -> dict[str, float]:
        """Make one step of the optimizer by a `gradient` of an actor; return the metrics.

        Raises:
            ValueError: the gradient belongs to other networks.
        """
        optimizer = self.optimizers['all']
        size = sum(int(np.prod(variable.shape)) for variable in optimizer.variables)
        if found['gradient'].shape != (size,):
            raise InvalidValue(
                f'a gradient of {found["gradient"].size} weights for the {size} of this agent: make the same agent, '
                'for the same environment, in every rank.'
            )
        optimizer.set_progress(self.progress)
        self.forward.unpack(self._applied(found['gradient']))
        if found['obs'] is not None:
            self.observe(found['obs'])
        return dict(zip(self.metric_names, found['metrics'].tolist(), strict=True))

    @functools.cached_property
    def _computed(self) -> PackedCall:
        """Metrics and gradient of a rollout as one vector."""

        def computed(rollout: Trajectories, now: dict[str, tf.Tensor]) -> tf.Tensor:
            gradients, metrics = self.gradients(*self.weighed(rollout), now)
            variables = self.optimizers['all'].variables
            filled = [tf.zeros_like(v) if g is None else g for g, v in zip(gradients, variables, strict=True)]
            return tf.concat([self.stack_metrics(metrics), *(tf.reshape(g, [-1]) for g in filled)], 0)

        return self.compiled(computed)

    @functools.cached_property
    def _applied(self) -> PackedCall:
        """A step by a gradient, which returns the weights for acting."""

        def applied(gradient: tf.Tensor) -> tf.Tensor:
            optimizer = self.optimizers['all']
            pieces = tf.split(gradient, [int(np.prod(v.shape)) for v in optimizer.variables])
            optimizer.apply([tf.reshape(x, v.shape) for x, v in zip(pieces, optimizer.variables, strict=True)])
            return self.forward.pack()

        return self.compiled(applied)

    def _shared(self) -> dict[str, tf.Variable]:
        """Return what all ranks share: not the optimizer, which only the learner has, and no random numbers."""
        return {
            name: variable
            for name, variable in saving.variables(cast(Algorithm, self)).items()
            if '/random/' not in name and name != 'noise_seed'
        }

    def weights(self) -> dict[str, np.ndarray]:
        """Return the weights of all networks and the running statistics, for the actors."""
        found = {name: variable.numpy() for name, variable in self._shared().items()}
        for label, moments in self.moments().items():
            found |= {f'statistics/{label}/{name}': value for name, value in moments.state().items()}
        return found

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Act, and compute gradients, with the learner's `weights`."""
        for name, variable in self._shared().items():
            variable.assign(weights[name])
        for label, moments in self.moments().items():
            moments.restore({name: weights[f'statistics/{label}/{name}'] for name in moments.state()})
        self.forward.refresh()
