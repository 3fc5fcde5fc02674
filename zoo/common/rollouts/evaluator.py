"""Perturbed parameters, and the whole episodes that are played with each of them: what evolution strategies learn from.

A perturbation is known by its seed: whoever has the seed and the parameters makes the same numbers of it, so that
processes send each other seeds and returns alone (Salimans et al. 2017, arXiv 1703.03864, section 2.1). Nothing here
imports TensorFlow where the policy is a chain of dense layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from zoo.common import spaces
from zoo.common.acting.greedy import Deterministic
from zoo.common.acting.perturbed import Population, direction, episode_seed, population
from zoo.common.maths.normalize import RunningMoments
from zoo.common.records import Episode, Evaluations
from zoo.common.rollouts.collector import Collector


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
            The fields ``returns``, ``lengths`` and ``observed`` of :class:`zoo.common.records.Evaluations`, each with
            the
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
        found: by path float64 ``[count, 2, size]``, see :class:`zoo.common.records.Evaluations`.
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
