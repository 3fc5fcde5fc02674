"""Perturbed parameters, and the whole episodes that are played with each of them: what evolution strategies learn from.

A perturbation is known by its seed: whoever has the seed and the parameters makes the same numbers of it, so that
processes send each other seeds and returns alone (Salimans et al. 2017, arXiv 1703.03864, section 2.1). Nothing here
imports TensorFlow where the policy is a chain of dense layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np

from zoo.common import spaces
from zoo.common.acting import ACTIVATIONS, Deterministic, Forward, NumpyForward, assign
from zoo.common.collect import Collector
from zoo.common.normalize import RunningMoments
from zoo.common.types import Episode, Evaluations

#: Seeds of perturbations are below this.
SEEDS = 2**62


def direction(seed: int, size: int) -> np.ndarray:
    """The perturbation of a seed: standard normal numbers, float32 ``[size]``."""
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


def episode_seed(seed: int, sign: int, episode: int) -> int:
    """The environment's seed for an episode with the perturbation of ``seed``, added (1) or subtracted (−1)."""
    return int(np.random.SeedSequence([seed, sign > 0, episode]).generate_state(1)[0] >> 1)


class Population(Protocol):
    """Parameters of their own for each copy of the environment.

    Attributes:
        parameters: those that are perturbed, float32 ``[D]``.
    """

    parameters: np.ndarray

    def set(self, copy: int, vector: np.ndarray) -> None:
        """Act with this vector ``[D]`` in this copy from now on."""

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """Outputs ``[N, units]`` for flat observations ``[N, …]`` of all copies, each by its own parameters."""

    def close(self) -> None:
        """Leave the policy with the parameters that it had."""


class NumpyPopulation:
    """See :class:`Population`: a chain of dense layers with a batch of weights, one forward pass for all copies.

    Args:
        forward: the chain, whose packed vector holds the parameters.
        copies: how many.
    """

    def __init__(self, forward: NumpyForward, copies: int) -> None:
        self._forward = forward
        self.parameters = forward.packed
        self._kernels = [np.zeros((copies, *shape), np.float32) for shape, _, _ in forward.layers]
        self._biases = [
            np.zeros((copies, 1, shape[1]), np.float32) if has_bias else None for shape, has_bias, _ in forward.layers
        ]

    def set(self, copy: int, vector: np.ndarray) -> None:
        """See :class:`Population`; kernels first, then biases, as they are packed."""
        offset = 0
        for array in [*self._kernels, *(bias for bias in self._biases if bias is not None)]:
            target = array[copy]
            target[...] = vector[offset : offset + target.size].reshape(target.shape)
            offset += target.size

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """See :class:`Population`."""
        x = self._forward.preprocess.numpy(obs)[:, None]
        for kernel, bias, (_, _, activation) in zip(self._kernels, self._biases, self._forward.layers, strict=True):
            x = x @ kernel
            if bias is not None:
                x += bias
            x = ACTIVATIONS[activation](x)
        return x[:, 0]

    def close(self) -> None:
        """See :class:`Population`: the chain itself was not touched."""


class GraphPopulation:
    """See :class:`Population`: any network, with each copy's weights assigned before it is called for that copy.

    Args:
        forward: of the network.
        copies: how many.
    """

    def __init__(self, forward: Forward, copies: int) -> None:
        self._forward = forward
        self._variables = forward.trained
        self.parameters = np.concatenate([variable.numpy().ravel() for variable in self._variables])
        self._vectors = np.tile(self.parameters, (copies, 1))
        self._assigned = -1

    def set(self, copy: int, vector: np.ndarray) -> None:
        """See :class:`Population`."""
        self._vectors[copy] = vector
        if copy == self._assigned:
            self._assigned = -1

    def __call__(self, obs: spaces.Flat) -> np.ndarray:
        """See :class:`Population`."""
        outputs = []
        for copy, vector in enumerate(self._vectors):
            if copy != self._assigned:
                self._assign(vector)
                self._assigned = copy
            outputs.append(self._forward(spaces.tree_map(lambda x, i=copy: x[i : i + 1], obs)))
        return np.concatenate(outputs)

    def _assign(self, vector: np.ndarray) -> None:
        assign(self._variables, vector)
        self._forward.refresh()

    def close(self) -> None:
        """See :class:`Population`."""
        self._assign(self.parameters)


def population(forward: Forward | NumpyForward, copies: int) -> Population:
    """The population of a policy, by NumPy where it is a chain of dense layers that are all trained."""
    if isinstance(forward, NumpyForward):
        return NumpyPopulation(forward, copies)
    if forward.packs_trained and forward.numpy is not None:
        return NumpyPopulation(forward.numpy, copies)
    return GraphPopulation(forward, copies)


class Evaluator:
    """Plays whole episodes, in every copy of an environment those of another perturbation at the same time.

    What an episode gives is the sum of the rewards as training sees them, shaped if they are. Where the library's Atari
    games end with each life, it is that of the whole game.

    Args:
        collector: of the copies.
        behavior: the policy; its observations' statistics do not move meanwhile.
        episodes: of each evaluation.

    Attributes:
        finished: the episodes that ended in the last step, but for those of a copy that had nothing left to play.
    """

    def __init__(self, collector: Collector, behavior: Deterministic, episodes: int) -> None:
        self.collector = collector
        self.behavior = behavior
        self.episodes = episodes
        self.finished: list[Episode] = []

    def __call__(
        self, seeds: np.ndarray, signs: np.ndarray, std: float, stepped: Callable[[int], None]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Play ``K`` evaluations, from new episodes on.

        A single environment is seeded for every episode, by the evaluation alone, so that it does not matter who plays
        which of them. Copies, which begin episodes by themselves, are seeded once, by the first evaluation.

        Args:
            seeds: int64 ``[K]``, of the perturbations.
            signs: ``[K]``, 1 where the perturbation is added, −1 where it is subtracted.
            std: what it is multiplied by.
            stepped: called after every step with the collector's count of steps before it.

        Returns:
            The fields ``returns``, ``lengths`` and ``observed`` of :class:`zoo.common.types.Evaluations`, each with the
            axis ``[K, …]`` in place of its first two.
        """
        found = population(self.behavior.forward, self.collector.num_envs)
        try:
            return self._play(found, seeds, signs, std, stepped)
        finally:
            self.collector.next_seed = lambda: None
            found.close()

    def _play(
        self,
        found: Population,
        seeds: np.ndarray,
        signs: np.ndarray,
        std: float,
        stepped: Callable[[int], None],
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        collector, behavior = self.collector, self.behavior
        count, copies = len(seeds), collector.num_envs
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        tally = Tally(behavior.forward.preprocess.statistics, count, copies)
        waiting = iter(range(count))
        playing = [-1] * copies  # the evaluation of each copy
        left = [0] * copies  # its episodes to come

        def take(copy: int) -> None:
            playing[copy] = next(waiting, -1)
            left[copy] = self.episodes
            if playing[copy] >= 0:
                own = playing[copy]
                noise = direction(int(seeds[own]), found.parameters.size)
                found.set(copy, found.parameters + np.float32(signs[own] * std) * noise)

        for copy in range(copies):
            take(copy)
        env_seeds = self._env_seeds(seeds, signs)
        first = next(env_seeds)
        if not collector.vector:
            collector.next_seed = lambda: next(env_seeds, None)
        collector.reset(first)
        rewards, steps = np.zeros(copies), np.zeros(copies, np.int64)
        while max(playing) >= 0:
            obs, before = collector.obs, collector.steps
            collector.step(behavior.action(found(obs), obs))
            self.finished = [episode for episode in collector.finished if playing[episode.copy] >= 0]
            stepped(before)
            rewards += collector.reward  # 0 where a copy was only reset
            steps += collector.valid
            tally.add(obs, collector.valid)
            for episode in collector.finished:
                copy, own = episode.copy, playing[episode.copy]
                if own >= 0:
                    returns[own] += rewards[copy]
                    lengths[own] += steps[copy]
                    tally.credit(copy, own)
                    left[copy] -= 1
                    if not left[copy]:
                        take(copy)
                rewards[copy] = steps[copy] = 0
        return returns / self.episodes, lengths, tally.found

    def _env_seeds(self, seeds: np.ndarray, signs: np.ndarray) -> Iterator[int]:
        for seed, sign in zip(seeds.tolist(), signs.tolist(), strict=True):
            for episode in range(self.episodes):
                yield episode_seed(seed, sign, episode)


class Tally:
    """The sums of what is observed in each evaluation, for the running statistics to take in afterwards.

    Args:
        statistics: the running statistics, by path.
        count: evaluations.
        copies: of the environment.

    Attributes:
        found: by path float64 ``[count, 2, size]``, see :class:`zoo.common.types.Evaluations`.
    """

    def __init__(self, statistics: Mapping[str, RunningMoments], count: int, copies: int) -> None:
        self._statistics = statistics
        self.found = {path: np.zeros((count, 2, moments.mean.size)) for path, moments in statistics.items()}
        self._running = {path: np.zeros((copies, 2, moments.mean.size)) for path, moments in statistics.items()}

    def add(self, obs: spaces.Flat, valid: np.ndarray) -> None:
        """Take in what was acted on, ``[N, …]``, where it was (bool ``[N]``)."""
        for path, running in self._running.items():
            moments = self._statistics[path]
            x = (obs[path] if path else obs).reshape(len(valid), -1) - moments.mean
            x[~valid] = 0.0
            running[:, 0] += x
            running[:, 1] += np.square(x)

    def credit(self, copy: int, evaluation: int) -> None:
        """An episode of a copy has ended, which belongs to this evaluation."""
        for path, running in self._running.items():
            self.found[path][evaluation] += running[copy]
            running[copy] = 0.0


def both_ways(seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seeds and signs ``[2 P]`` of the evaluations of ``P`` perturbations: each is added, and then subtracted."""
    return np.repeat(seeds, 2), np.tile([1, -1], len(seeds))


def evaluations(
    seeds: np.ndarray, episodes: int, returns: np.ndarray, lengths: np.ndarray, observed: dict[str, np.ndarray]
) -> Evaluations:
    """What came of all evaluations of :func:`both_ways`, each ``[2 P, …]``, with an axis for the two ways."""
    pairs = {path: x.reshape(-1, 2, *x.shape[1:]) for path, x in observed.items()}
    return Evaluations(seeds, returns.reshape(-1, 2), lengths.reshape(-1, 2), pairs, episodes)
