"""What the evolution strategies share: a deterministic policy whose parameters are perturbed and judged.

A subclass is its paper: `weigh` says how much each perturbation counts by the returns of its episodes. The update is a
gradient step against the weighted sum of the perturbations, which are drawn again from their seeds.
:mod:`zoo.common.acting.perturbed` plays them.
"""

from __future__ import annotations

import functools
from typing import Annotated, ClassVar

import numpy as np
import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import spaces
from zoo.common.acting.forward import Forward
from zoo.common.acting.greedy import Deterministic
from zoo.common.acting.perturbed import direction
from zoo.common.maths.normalize import joined
from zoo.common.networks.heads import best_action_head
from zoo.common.parameters import NormalizeObs
from zoo.common.records import Evaluations
from zoo.common.tools.compilation import PackedCall
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import above, at_least
from zoo.common.training import loops


class Evolution(Algorithm):
    """A deterministic policy for every action space, learned from the returns of whole episodes alone.

    The network is always in inference mode, since it has no loss.
    """

    loop = loops.evolution
    acts_in = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple')
    network_names = ('policy',)
    optimizer_names = ('policy',)
    metric_names = ('return_mean', 'return_max', 'gradient_norm')
    #: Gain of the orthogonal initializer of the network's head.
    gain: ClassVar[float]

    num_directions: Annotated[int, at_least(1), 'perturbations of the parameters in an update, each both ways'] = 32
    noise_std: Annotated[float, above(0), 'standard deviation of the perturbations'] = 0.05
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make the network, its optimizer, and the deterministic policy."""
        head = best_action_head(self.action_adaptor, type(self).gain)
        self.build_networks([head])
        self.network = self.networks['policy']
        self._check_mask(head.units)
        self._check_network()
        forward = Forward(self.network)
        self.build_optimizers([forward.trained])
        self.behavior = Deterministic(forward, self.action_adaptor, self.mask_path)
        #: Part of the weights that is added to the gradient.
        self.decay = 0.0

    def _check_mask(self, actions: int) -> None:
        if self.mask_path is None:
            return
        entries = int(np.prod(spaces.shape_of(spaces.leaves(self.observation_space)[self.mask_path])))
        if entries != actions:
            raise InvalidValue(
                f"the observation's {self.mask_path!r} has {entries} entries, but there are {actions} actions: give it "
                'one entry for each.'
            )

    def _check_network(self) -> None:
        """Refuse a network with parts that only losses and batches teach."""
        if self.network.moving_variables:
            raise InvalidValue(
                f'net_list[0] (policy) has statistics that are learned from batches, but {type(self).__name__} trains '
                'on none: leave out batch normalization; normalize_obs=True normalizes observations.'
            )
        self.network(spaces.tree_map(tf.convert_to_tensor, spaces.zeros(self.observation_space, (1,))), training=True)
        if self.network.penalties():
            raise InvalidValue(
                f'net_list[0] (policy) adds terms to a loss, as regularizers do, but {type(self).__name__} '
                'has no loss: leave them out.'
            )

    @property
    def perturbations(self) -> tuple[int, float]:
        return self.num_directions, self.noise_std

    def weigh(self, evaluations: Evaluations) -> np.ndarray:
        """Return how much each perturbation adds to the step, ``[P]``: an estimate of the ascent along it."""
        raise NotImplementedError

    def ascent(self, evaluations: Evaluations) -> np.ndarray:
        """Return the weighted sum of the perturbations, drawn again from their seeds: float32 ``[D]``."""
        total = np.zeros(sum(int(np.prod(v.shape)) for v in self.trainable_variables), np.float32)
        for seed, weight in zip(evaluations.seeds, self.weigh(evaluations).astype(np.float32), strict=True):
            if weight:
                total += weight * direction(int(seed), total.size)
        return total

    @functools.cached_property
    def fused(self) -> PackedCall:
        """The compiled step."""
        return self.compiled(self._step)

    def _step(self, gradient: tf.Tensor) -> tf.Tensor:
        """Make a step of the optimizer by a gradient ``[D]``; return the weights for acting."""
        optimizer = self.optimizers['policy']
        pieces = tf.split(gradient, [int(np.prod(v.shape)) for v in optimizer.variables])
        optimizer.apply(
            [tf.reshape(x, v.shape) + self.decay * v for x, v in zip(pieces, optimizer.variables, strict=True)]
        )
        return self.forward.pack()

    def update(self, evaluations: Evaluations) -> dict[str, float]:
        """Make a step by the returns of whole episodes; then the running statistics take in the observations."""
        optimizer = self.optimizers['policy']
        optimizer.set_progress(self.progress)
        gradient = -self.ascent(evaluations)
        self.forward.unpack(self.fused(gradient))
        for path, moments in self.statistics.items():
            count, mean, squares = joined(evaluations.observed[path].reshape(-1, 3, moments.mean.size))
            moments.merge(float(count[0]), mean, squares)
        return {
            'return_mean': float(evaluations.returns.mean()),
            'return_max': float(evaluations.returns.max()),
            'gradient_norm': float(np.linalg.norm(gradient)),
        }
