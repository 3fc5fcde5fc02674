"""A stochastic policy: a network, and the distribution that its output parametrizes."""

from __future__ import annotations

import logging

import tensorflow as tf

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.masks import masked
from zoo.common.adaptors.observation import mask_path
from zoo.common.adaptors.parts import SDE_EPSILON
from zoo.common.networks.network import Network, announces, encoded_width
from zoo.common.tools.errors import InvalidValue

log = logging.getLogger('zoo')


class StochasticPolicy:
    """A network whose output is completed to the parameters of the action's distribution.

    A Gaussian's log standard deviation may be free, a separate variable (PPO). An action mask sets the logits of
    forbidden actions to −1e9.

    With state-dependent exploration (Raffin et al. 2020, arXiv 2005.05719) the noise on an action is the head's input,
    the features, times a matrix ``[L, n]`` of normal numbers. Each entry of the matrix has its own standard deviation
    σ, which is the free variable. For an unknown matrix the action is Gaussian with the variance ``Σ_l features_l²
    σ_la²`` (their equation 9). As in the authors' code, no gradient reaches the features through the variance, and 1e-6
    is added to it.

    Args:
        network: gives the means and logits, or all parameters.
        log_std_init: initial value of a free log standard deviation.
        sde: explore in a state-dependent way.

    Attributes:
        log_std: the free log standard deviation, ``[n]``; with state-dependent exploration log σ, ``[L, n]``.

    Raises:
        ValueError: state-dependent exploration with actions that are no ``Box``, or with a network that is recurrent or
            has no head.
    """

    def __init__(self, network: Network, adaptor: ActionAdaptor, log_std_init: float = 0.0, sde: bool = False) -> None:
        self.network = network
        self.adaptor = adaptor
        self.sde = sde
        self.mask_path = mask_path(network.preprocess.space) if adaptor.maskable else None
        features = encoded_width(network)
        width = network.from_torso(tf.zeros([1, features])).shape[-1]
        self.log_std: tf.Variable | None = None
        if sde:
            self._check_sde()
            self.log_std = tf.Variable(tf.fill([features, width], float(log_std_init)), name='log_std')
            return
        gaussians = sum(part.size for part in adaptor.parts if 'gaussian' in part.kind)
        if width != adaptor.param_size:
            self.log_std = tf.Variable(tf.fill([gaussians], float(log_std_init)), name='log_std')
        elif gaussians and log_std_init and announces.get():
            message = '%s gives the log standard deviations itself, so log_std_init=%g changes nothing.'
            log.warning(message, network.name, log_std_init)

    def _check_sde(self) -> None:
        name, network = self.network.name, self.network
        if not spaces.is_leaf(self.adaptor.space) or 'gaussian' not in self.adaptor.parts[0].kind:
            raise InvalidValue(
                'use_sde=True adds noise to the actions of a Box, but these are '
                f'{spaces.describe(self.adaptor.space)}: leave it out.'
            )
        if network.state_size:
            raise InvalidValue(
                f'{name} is recurrent, but use_sde=True needs a network that is not: give one, or leave out use_sde.'
            )
        if network.head is None:
            raise InvalidValue(
                f'{name} is a complete network, but use_sde=True makes noise from the features before a head: give a '
                'torso, without its last layer, or a spec.'
            )

    def __call__(self, obs: spaces.Flat, training: bool = False) -> tf.Tensor:
        """Parameters ``[B, param_size]`` for flat observations ``[B, …]``."""
        if not self.sde:
            return self.complete(self.network(obs, training=training), obs)
        encoded = self.network.encode(obs, training=training)
        return self.complete(self.network.from_torso(encoded), obs, encoded)

    def perturbed(self, obs: spaces.Flat, noise: tf.Tensor) -> tf.Tensor:
        """Parameters and the noise on the action, ``[B, 3 n]``, with state-dependent exploration, in inference mode.

        ``noise`` is standard normal numbers ``[B, L n]``, a matrix for each row, which σ scales.
        """
        assert self.log_std is not None  # that is σ
        encoded = self.network.encode(obs)
        params = self.complete(self.network.from_torso(encoded), obs, encoded)
        matrix = tf.reshape(noise, [-1, *self.log_std.shape]) * tf.exp(self.log_std)
        return tf.concat([params, tf.einsum('bl,bln->bn', encoded, matrix)], -1)

    def step(self, obs: spaces.Flat, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Parameters ``[N, param_size]`` and the state after a step of a recurrent network; see `Network.step`."""
        output, after = self.network.step(obs, state)
        return self.complete(output, obs), after

    def complete(self, output: tf.Tensor, obs: spaces.Flat, encoded: tf.Tensor | None = None) -> tf.Tensor:
        """The distribution's parameters for the network's output; ``encoded`` is its head's input."""
        if self.sde:
            assert encoded is not None and self.log_std is not None
            variance = tf.square(tf.stop_gradient(encoded)) @ tf.exp(2.0 * self.log_std)
            return tf.concat([output, 0.5 * tf.math.log(variance + SDE_EPSILON)], -1)
        if self.mask_path is not None:
            return masked(output, obs[self.mask_path], self.adaptor.parts[0].counts)
        if self.log_std is None:
            bounds = self.adaptor.param_bounds
            return output if bounds is None else tf.clip_by_value(output, *bounds)
        pieces, offset, drawn = [], 0, 0
        for part in self.adaptor.parts:
            piece = output[:, offset : offset + part.outputs]
            offset += part.outputs
            pieces.append(piece)
            if 'gaussian' in part.kind:
                pieces.append(tf.broadcast_to(self.log_std[drawn : drawn + part.size], tf.shape(piece)))
                drawn += part.size
        return pieces[0] if len(pieces) == 1 else tf.concat(pieces, -1)

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The network's weights and the free log standard deviation."""
        return self.network.trainable_variables + ([] if self.log_std is None else [self.log_std])
