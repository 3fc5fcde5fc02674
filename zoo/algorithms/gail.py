"""GAIL: generative adversarial imitation learning, over PPO.

Ho and Ermon 2016, *Generative Adversarial Imitation Learning* (arXiv 1606.03476), algorithm 1. A discriminator D(s, a)
learns to tell the expert's recorded actions from the policy's. The policy is rewarded where D takes it for the expert.
So it comes to visit what the expert visits. That needs fewer episodes of the expert than behavior cloning, and many
steps in the environment. The environment's rewards are not read: they are only logged.

Here D is 1 for the expert. ``reward_form`` is the reward:

* ``'positive'``, −log(1 − D): every step is rewarded, so episodes become long. For tasks where the expert stays alive.
* ``'negative'``, log D: every step costs, so episodes become short. For tasks that end when a goal is reached.
* ``'logit'``, log D − log(1 − D): either sign. For episodes of one length.

The first two say something about an episode's length whatever the expert does (Kostrikov et al. 2019,
*Discriminator-Actor-Critic*, arXiv 1809.02925, section 4.1).

Departures: PPO in place of TRPO, which :class:`GAILTRPO` has. In the paper D is 1 for the policy. The discriminator has
a gradient penalty (Gulrajani et al. 2017, arXiv 1704.00028, equation 3, between expert and policy), as in Kostrikov et
al. It sees actions as the environment takes them: clipped to the bounds.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from zoo.algorithms.actor_critic import ActorCritic, flattened
from zoo.algorithms.ppo import PPO
from zoo.common import spaces
from zoo.common.datasets.opening import check_sources
from zoo.common.datasets.replaying import replay_of
from zoo.common.maths.chunks import in_chunks
from zoo.common.networks.heads import Head, value_head
from zoo.common.networks.network import penalized
from zoo.common.records import Trajectories
from zoo.common.replay.replay import Replay
from zoo.common.sampling import Sampling
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import at_least


class Adversarial(ActorCritic):
    """A discriminator whose judgment is the reward; in front of an on-policy algorithm, such as PPO."""

    needed = {'dataset': 'recorded episodes of an expert'}
    unused: ClassVar[tuple[str, ...]] = ('normalize_reward',)

    gradient_penalty: Annotated[float, at_least(0), "weight of the discriminator's gradient penalty"] = 10.0
    reward_form: Annotated[
        Literal['positive', 'negative', 'logit'],
        'reward of a step: −log(1 − D), which makes episodes long; log D, which makes them short; or their difference',
    ] = 'positive'

    def build(self) -> None:
        super().build()
        self.discriminator = self.networks['discriminator']
        if self.discriminator.state_size:
            raise InvalidValue(
                'net_list[2] (discriminator) is recurrent, but it judges single steps: give one that is not.'
            )
        self.experts: tuple[Any, Replay] | None = None
        self.drawn_expert: tuple[Any, ...] = ()
        self.judged: dict[str, tf.Tensor] = {}

    def heads(self) -> dict[str, Head]:
        return super().heads() | {'discriminator': value_head(action_size=self.action_adaptor.encoded_size)}

    def groups(self) -> list[list[tf.Variable]]:
        return [*super().groups(), self.networks['discriminator'].trainable_variables]

    # The discriminator

    def bce(self, expert: tuple[Any, tf.Tensor], policy: tuple[Any, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Return −mean log D(expert) − mean log(1 − D(policy)), algorithm 1 line 4; and the part that D gets right.

        Args:
            expert, policy: pairs of preprocessed observations by path and encoded actions, ``[B, …]``.
        """
        obs, action = tf.nest.map_structure(lambda x, y: tf.concat([x, y], 0), expert, policy)
        logit = self.logit(obs, action, training=True)
        of_expert, of_policy = tf.split(logit, 2)
        right = tf.concat([of_expert > 0.0, of_policy < 0.0], 0)
        loss = tf.reduce_mean(tf.math.softplus(-of_expert)) + tf.reduce_mean(tf.math.softplus(of_policy))
        return penalized(loss, self.discriminator), tf.reduce_mean(tf.cast(right, tf.float32))

    def penalty(self, expert: tuple[Any, tf.Tensor], policy: tuple[Any, tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        """Return mean (‖∇ logit‖ − 1)² at random points between expert and policy, ``[B, …]`` each."""
        part = tf.random.stateless_uniform([policy[1].shape[0]], seed)

        def between(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            share = tf.reshape(part, [-1] + [1] * (len(x.shape) - 1))
            # Nothing lies between two indices of an embedding.
            return share * x + (1.0 - share) * y if x.dtype.is_floating else tf.where(share > 0.5, x, y)

        points = tf.nest.map_structure(between, expert, policy)
        watched = [x for x in tf.nest.flatten(points) if x.dtype.is_floating]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            logit = self.logit(*points)
        slopes = tape.gradient(logit, watched, unconnected_gradients='zero')
        squares = tf.add_n([tf.reduce_sum(tf.square(x), list(range(1, len(x.shape)))) for x in slopes])
        return tf.reduce_mean(tf.square(tf.sqrt(squares + 1e-12) - 1.0))

    def logit(self, found: dict[str, tf.Tensor], action: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return log D − log(1 − D) ``[B]`` for preprocessed observations by path and encoded actions ``[B, n]``."""
        network = self.discriminator
        return network.from_torso(network.encode_features(found, action, training), action)[:, 0]

    def update_discriminator(
        self, obs: spaces.Flat, action: tf.Tensor, rows: tf.Tensor, expert: tuple[Any, tf.Tensor], seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Make ``K`` gradient steps; return the loss without penalty, and the part that D gets right, of the last one.

        Args:
            obs, action: of the rollout, ``[T N, …]``, actions encoded.
            rows: int32 ``[K, B]``, which of them a step takes.
            expert: observations and encoded actions ``[K, B, …]``.
            seed: of the points between both.
        """
        optimizer, preprocess = self.optimizers['discriminator'], self.discriminator.preprocess

        def step(i: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
            taken = tf.nest.map_structure(lambda x: tf.gather(x, rows[i]), (obs, action))
            given = tf.nest.map_structure(lambda x: x[i], expert)
            policy, shown = ((preprocess(seen), act) for seen, act in (taken, given))
            found: list[tf.Tensor] = []

            def loss() -> tf.Tensor:
                found.extend(self.bce(shown, policy))
                if not self.gradient_penalty:
                    return found[0]
                return found[0] + self.gradient_penalty * self.penalty(shown, policy, seed + [i, 0])

            optimizer.minimize(loss)
            return i + 1, *found

        start = (tf.constant(0), tf.zeros([]), tf.zeros([]))
        _, loss, right = tf.while_loop(lambda i, *_: i < rows.shape[0], step, start, parallel_iterations=1)
        return loss, right

    def reward(self, obs: spaces.Flat, action: tf.Tensor) -> tf.Tensor:
        """Return the reward of steps ``[B]`` by ``reward_form``, for observations and encoded actions ``[B, …]``."""

        def judged(seen: Any, _: Any) -> tuple[tf.Tensor, tuple[()]]:
            return self.logit(self.discriminator.preprocess(seen[0]), seen[1]), ()

        logit, _ = in_chunks(judged, (obs, action), self.rows_at_once)
        if self.reward_form == 'positive':
            return tf.math.softplus(logit)
        return -tf.math.softplus(-logit) if self.reward_form == 'negative' else logit

    # An iteration

    def improve(self, rollout: Trajectories, now: dict[str, tf.Tensor], *arrays: Any) -> tf.Tensor:
        """Make a whole iteration in one compiled call: the discriminator's steps, the rewards, the policy's steps.

        Args:
            rollout: fields ``[T, N, …]``.
            now: as the algorithm takes it.
            arrays: what the algorithm takes, and the last four: encoded actions of the rollout ``[T N, n]``; int32
                ``[K, B]``, which of them are compared; observations and encoded actions of the expert ``[K, B, …]``.
        """
        *own, action, rows, expert_obs, expert_action = arrays
        obs = flattened(rollout.obs)
        self.noise_seed.assign_add([0, 2])
        loss, right = self.update_discriminator(obs, action, rows, (expert_obs, expert_action), self.noise_seed + 0)
        with tf.control_dependencies([loss]):
            reward = self.reward(obs, action)
        self.judged = {'discriminator': loss, 'accuracy': right, 'reward': tf.reduce_mean(reward)}
        return super().improve(rollout._replace(reward=tf.reshape(reward, rollout.reward.shape)), now, *own)

    def stack_metrics(self, metrics: dict[str, tf.Tensor]) -> tf.Tensor:
        return super().stack_metrics(metrics | self.judged)

    def iterate(self, rollout: Trajectories, *arrays: Any, fresh: Trajectories | None = None) -> dict[str, float]:
        return super().iterate(rollout, *arrays, *self.drawn_expert, fresh=fresh)

    def expert_steps(self, dataset: Any) -> Replay:
        """Return the steps of a dataset, which is read once."""
        if self.experts is None or self.experts[0] is not dataset:
            self.experts = dataset, replay_of(self, dataset, self.action_adaptor, Sampling(self.gamma))
        return self.experts[1]

    def update(
        self,
        rollout: Trajectories,
        *,
        dataset: Annotated[
            Any, check_sources, 'recorded episodes of the expert: what zoo.open_dataset takes or gave, or a list'
        ] = None,
        discriminator_updates: Annotated[int, at_least(1), "the discriminator's gradient steps in an iteration"] = 10,
        discriminator_batch: Annotated[
            int, at_least(1), 'steps of the policy, and as many of the expert, in one of them'
        ] = 256,
        **others: Any,
    ) -> dict[str, float] | None:
        """Make one iteration on a rollout of the current policy, with fields ``[T, N, …]``."""
        lead, encoded = (discriminator_updates, discriminator_batch), self.action_adaptor.encoded
        valid = np.flatnonzero(rollout.valid)
        if valid.size:
            expert = self.expert_steps(dataset).sample(lead, self.rng)
            flat = spaces.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), expert.action)
            taken = spaces.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.action)
            rows = self.rng.choice(valid, lead).astype(np.int32)
            self.drawn_expert = encoded(taken), rows, expert.obs, encoded(flat).reshape(*lead, -1)
        return super().update(rollout, **others)


class GAIL(Adversarial, PPO):
    """Generative adversarial imitation learning for every action space, by PPO.

    ``'actor'`` in place of the critic in ``net_list`` puts the critic's head on the actor's torso.
    """

    network_names = ('actor', 'critic', 'discriminator')
    optimizer_names = ('all', 'discriminator')
    metric_names = (*PPO.metric_names, 'discriminator', 'accuracy', 'reward')
