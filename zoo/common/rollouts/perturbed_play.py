"""Whole episodes with perturbed parameters: what evolution strategies learn from.

A perturbation is drawn from its seed, so that processes exchange only seeds and returns (Salimans et al. 2017,
arXiv 1703.03864, section 2.1). Nothing here imports TensorFlow where the policy is a chain of dense layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from zoo.common import spaces
from zoo.common.acting.greedy import Deterministic
from zoo.common.acting.perturbed import Population, direction, episode_seed, population
from zoo.common.maths.normalize import RunningMoments, grown, joined
from zoo.common.records import Episode, Evaluations
from zoo.common.rollouts.collector import Collector


class PerturbedPlay:
    """Plays whole episodes, with another perturbation in each copy of an environment.

    The return of an episode is the sum of the rewards that training sees, shaped if they are shaped. Where Atari games
    end with each life, it is the return of the whole game.

    Args:
        collector: steps the copies.
        behavior: the policy; the running statistics of its observations stay fixed.
        episodes: the number of episodes of each evaluation.

    Attributes:
        finished: the episodes that ended in the last step, without copies that had nothing left to play.
    """

    def __init__(self, collector: Collector, behavior: Deterministic, episodes: int) -> None:
        self.collector = collector
        self.behavior = behavior
        self.episodes = episodes
        self.finished: list[Episode] = []

    def __call__(
        self, seeds: np.ndarray, signs: np.ndarray, std: float, stepped: Callable[[int], None]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Play ``K`` evaluations, beginning with new episodes.

        A single environment is seeded for every episode from its evaluation, so that any process may play it with the
        same result. Copies begin episodes by themselves and are seeded once, from the first evaluation.

        Args:
            seeds, std: of the perturbations, int64 ``[K]``, and their standard deviation.
            signs: ``[K]``, 1 where the perturbation is added, −1 where it is subtracted.
            stepped: is called after every step with the collector's step count before it.

        Returns:
            The fields ``returns``, ``lengths`` and ``observed`` of :class:`zoo.common.records.Evaluations`, with one
            axis ``[K, …]`` in place of their first two.
        """
        found = population(self.behavior.forward, self.collector.num_envs)
        try:
            return self._play(found, seeds, signs, std, stepped)
        finally:
            self.collector.next_seed = lambda: None
            found.close()

    def _play(
        self, found: Population, seeds: np.ndarray, signs: np.ndarray, std: float, stepped: Callable[[int], None]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        collector, behavior = self.collector, self.behavior
        count, copies = len(seeds), collector.num_envs
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        tally = Tally(behavior.forward.preprocess.statistics, count, copies)
        waiting = iter(range(count))
        playing = [-1] * copies  # the evaluation of each copy
        left = [0] * copies  # its episodes to come

        def take(copy: int) -> None:
            playing[copy] = own = next(waiting, -1)
            left[copy] = self.episodes
            if own >= 0:
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
    """Moments of the observations in each evaluation, which the running statistics take in afterwards.

    Args:
        statistics: the running statistics, by path.
        count, copies: the numbers of evaluations, and of copies of the environment.

    Attributes:
        found: by path float64 ``[count, 3, size]`` (:func:`zoo.common.maths.normalize.moments_of`).
    """

    def __init__(self, statistics: Mapping[str, RunningMoments], count: int, copies: int) -> None:
        self.found = {path: np.zeros((count, 3, moments.mean.size)) for path, moments in statistics.items()}
        self._running = {path: np.zeros((copies, 3, moments.mean.size)) for path, moments in statistics.items()}

    def add(self, obs: spaces.Flat, valid: np.ndarray) -> None:
        """Add the observations ``[N, …]`` that were acted on, where ``valid``, bool ``[N]``."""
        for path, running in self._running.items():
            x = np.asarray(obs[path] if path else obs, np.float64).reshape(len(valid), -1)
            running[valid] = np.stack(grown(np.moveaxis(running[valid], 1, 0), x[valid]), 1)

    def credit(self, copy: int, evaluation: int) -> None:
        """Add the episode that a copy has ended to an evaluation."""
        for path, running in self._running.items():
            self.found[path][evaluation] = joined(np.stack([self.found[path][evaluation], running[copy]]))
            running[copy] = 0.0


def both_ways(seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return seeds and signs ``[2 P]`` of the evaluations of ``P`` perturbations: each is added, then subtracted."""
    return np.repeat(seeds, 2), np.tile([1, -1], len(seeds))


def evaluations(
    seeds: np.ndarray, episodes: int, returns: np.ndarray, lengths: np.ndarray, observed: dict[str, np.ndarray]
) -> Evaluations:
    """Return the results ``[2 P, …]`` of the evaluations of :func:`both_ways` with an axis for the signs."""
    pairs = {path: x.reshape(-1, 2, *x.shape[1:]) for path, x in observed.items()}
    return Evaluations(seeds, returns.reshape(-1, 2), lengths.reshape(-1, 2), pairs, episodes)
