"""``zoo.estimate_return``: how good the policy of an agent is, judged from recorded episodes alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.datasets.dataset import Dataset
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.opening import opened
from zoo.common.tools import params
from zoo.common.tools.checks import is_integer, whole
from zoo.common.tools.errors import InvalidValue, unknown
from zoo.experiments import importance_sampling
from zoo.experiments.statistics import bootstrap_interval

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm
    from zoo.experiments.fitted_q_evaluation import FQE

log = logging.getLogger('zoo')

#: The methods by name, and what each is called.
METHODS = {'fqe': 'fitted Q evaluation', **importance_sampling.METHODS}

#: Parameters of ``learn`` that fitted Q evaluation takes, with their defaults here.
_OF_LEARN = {'train_updates': 10_000, 'batch_size': 256, 'compress': False, 'verbose': 0}
#: Parameters of the network that a user may give.
_OF_NETWORK = ('net_list', 'optimizers_list', 'tau', 'normalize_obs')


#: With a smaller effective sample size an estimate says little.
FEW_SAMPLES = 10.0


@dataclass(frozen=True)
class EstimatedReturn:
    """What :func:`estimate_return` found.

    >>> found = zoo.estimate_return(agent, 'runs/pendulum.npz')
    >>> print(found.mean, found.low, found.high)

    Attributes:
        mean: the estimate of the policy's mean discounted return.
        low, high: its interval.
        confidence: the level of the interval.
        method: one of ``'fqe'``, ``'is'``, ``'wis'``, ``'pdis'``, ``'wpdis'``.
        episodes: the number of recorded episodes.
        gamma: the discount; with 1 returns are not discounted.
        dataset_return: the mean discounted return of the recorded episodes, to compare with.
        effective_sample_size: the number of the agent's own episodes that would say as much; None for ``'fqe'``.
        losses: the metrics of the last update; None but for ``'fqe'``.
    """

    mean: float
    low: float
    high: float
    confidence: float
    method: str
    episodes: int
    gamma: float
    dataset_return: float
    effective_sample_size: float | None = None
    losses: dict[str, float] | None = None

    def summary(self) -> str:
        """Return it as text for printing."""
        kind = 'return' if self.gamma == 1 else f'discounted return (gamma={self.gamma:g})'
        interval, source = (
            f'{self.confidence:.0%} interval {self.low:.6g} to {self.high:.6g}',
            f'{self.episodes:,} episodes',
        )
        if self.episodes == 1:
            interval, source = 'no interval from one episode', 'one episode'
        lines = [
            f'estimated {kind}: {self.mean:.6g}, {interval}',
            f'by {METHODS[self.method]} from {source}; the data have a mean discounted return of '
            f'{self.dataset_return:.6g}',
        ]
        if self.effective_sample_size is not None:
            lines.append(f'effective sample size: {self.effective_sample_size:.4g} of {self.episodes:,} episodes')
            if self.effective_sample_size < min(FEW_SAMPLES, self.episodes / 2):
                lines.append(
                    'The estimate says little, and its interval is too narrow: the agent would rarely act as in these '
                    "episodes. Method 'fqe' does not need that."
                )
        return '\n'.join(lines)


def estimate_return(
    agent: Algorithm,
    dataset: Any,
    method: str = 'fqe',
    behavior: Algorithm | Callable[[RecordedEpisode], Any] | None = None,
    deterministic: bool = False,
    gamma: float | None = None,
    confidence: float = 0.95,
    refits: int = 0,
    seed: int | None = None,
    **fqe_params: Any,
) -> EstimatedReturn:
    """Estimate the mean discounted return of an agent's policy from recorded episodes. No environment is needed.

    >>> data = zoo.open_dataset('runs/pendulum.npz')
    >>> print(zoo.estimate_return(agent, data, seed=0).summary())

    ===========  ============================================================================================
    method       estimate
    ===========  ============================================================================================
    ``'fqe'``    fitted Q evaluation (Le et al. 2019): a network learns the values of the policy's actions. The
                 values of truncated and cut episodes go on after their end
    ``'is'``     ordinary importance sampling (Precup et al. 2000): without bias, with much variance
    ``'wis'``    weighted importance sampling: some bias, less variance
    ``'pdis'``   per-decision importance sampling: a reward counts by the actions before it alone
    ``'wpdis'``  the same, weighted in every step: the least variance of these four
    ===========  ============================================================================================

    Args:
        agent: its policy is judged. The agent stays as it is.
        dataset: what :func:`zoo.open_dataset` takes, in the agent's spaces.
        method: see the table.
        behavior: for importance sampling, the policy that recorded the episodes. None: the episodes hold the
            log-probabilities of their actions, as ``record_episodes(agent, env, path, deterministic=False)`` writes
            them. An agent acts with its exploration. A function takes a :class:`zoo.RecordedEpisode` and returns what
            its field ``log_prob`` would be.
        deterministic: judge the best actions, which a test plays, in place of what the policy samples. Policies that
            sample nothing, such as DQN's and TD3's, are judged by their best actions anyway.
        gamma: the discount; None: the agent's own, or 1 if it has none.
        confidence: of the interval, a percentile bootstrap over episodes. For ``'fqe'`` without ``refits`` it says how
            first observations differ, and nothing of the error of the values.
        refits: for ``'fqe'``: learn the values so many times more, each time on episodes drawn with replacement. The
            interval is then normal with the standard deviation of these estimates (Hao et al. 2021, arXiv 2102.03607).
            Ten are enough.
        seed: of weights, batches and the bootstrap.
        fqe_params: of ``'fqe'`` alone: ``train_updates``, ``batch_size``, ``net_list`` (one entry), ``optimizers_list``
            (one entry), ``tau``, ``normalize_obs``, ``compress``, ``verbose``.

    Raises:
        ValueError: an unknown method or parameter, other spaces than the agent's, importance sampling without the
            probabilities that it needs, or fitted Q evaluation of a recurrent policy.
    """
    if not (hasattr(agent, 'act') and hasattr(agent, 'action_adaptor')):
        raise InvalidValue(f'estimate_return takes an agent, such as zoo.load(path), not {agent!r}.')
    if method not in METHODS:
        raise InvalidValue(unknown('method', method, METHODS))
    gamma, confidence, refits = _checked(agent, gamma, confidence, refits)
    if seed is not None and not is_integer(seed, 0):
        raise InvalidValue(f'seed is {seed!r}: give a whole number of at least 0, or None.')
    data = opened(agent, dataset)
    agent.forward.refresh()  # the weights may have been set since
    found = _facts(data, gamma)
    made = partial(
        EstimatedReturn,
        confidence=confidence,
        method=method,
        episodes=len(data),
        gamma=gamma,
        dataset_return=float(found.returns.mean()),
    )
    if method == 'fqe':
        if behavior is not None:
            raise InvalidValue("behavior is for importance sampling, and method='fqe' needs none: leave it out.")
        ends, losses = _by_fqe(agent, data, found, gamma, confidence, deterministic, refits, seed, fqe_params)
        return made(*ends, losses=losses)
    for name, given in {'refits': refits, **fqe_params}.items():
        if given:
            raise InvalidValue(f"{name} is for method='fqe', and {METHODS[method]} fits nothing: leave it out.")
    cut = int((~(data.terminated | data.truncated)).sum())
    if cut:
        log.warning('%d of %d episodes were cut before their end: what follows is not estimated.', cut, len(data))
    if hasattr(behavior, 'action_adaptor'):
        other: Any = behavior
        opened(other, data)  # in its spaces too
        other.forward.refresh()
    ratios = importance_sampling.log_ratios(agent, behavior, data, deterministic)
    mean, low, high, effective = importance_sampling.estimate(method, ratios, found.rewards, gamma, confidence, seed)
    return made(mean, low, high, effective_sample_size=effective)


def _checked(agent: Any, gamma: Any, confidence: Any, refits: Any) -> tuple[float, float, int]:
    """Return the numbers that a user gave, or refuse them."""
    gamma = getattr(agent, 'gamma', 1.0) if gamma is None else gamma
    ranges = {'gamma': (gamma, lambda x: 0 <= x <= 1), 'confidence': (confidence, lambda x: 0 < x < 1)}
    for name, (value, inside) in ranges.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not inside(value):
            ends = '0 to 1' if name == 'gamma' else 'between 0 and 1, such as 0.95'
            raise InvalidValue(f'{name} is {value!r}: give a number {ends}.')
    if refits != 0 or isinstance(refits, bool):
        refits = whole('refits', refits)
        if refits < 2:
            raise InvalidValue('refits=1 is one estimate more, which shows no spread: give 10, or 0.')
    return float(gamma), float(confidence), refits


class _Facts:
    """What one look at the episodes of a dataset finds.

    Attributes:
        first: flat first observations ``[E, …]``.
        rewards: of each episode ``[T]``.
        returns: discounted returns, float64 ``[E]``.
        center, scale: mean and standard deviation of the discounted rewards still to come, over all steps.
    """

    def __init__(self, first: spaces.Flat, rewards: list[np.ndarray], gamma: float) -> None:
        self.first, self.rewards = first, rewards
        to_come = [_to_come(reward, gamma) for reward in rewards]
        self.returns = np.array([x[0] for x in to_come])
        all_steps = np.concatenate(to_come)
        self.center = float(all_steps.mean())
        spread = float(all_steps.std())
        self.scale = spread if spread > 1e-6 * max(1.0, abs(self.center)) else max(abs(self.center), 1.0)


def _to_come(reward: np.ndarray, gamma: float) -> np.ndarray:
    """Return the discounted rewards from each step to the end of an episode, float64 ``[T]``."""
    found, total = np.zeros(len(reward)), 0.0
    for t in range(len(reward) - 1, -1, -1):
        found[t] = total = float(reward[t]) + gamma * total
    return found


def _facts(data: Dataset, gamma: float) -> _Facts:
    first, rewards = [], []
    for episode in data:
        first.append(spaces.tree_map(lambda x: np.array(x[0]), episode.obs))
        rewards.append(np.array(episode.reward))
    return _Facts(spaces.tree_map(lambda *x: np.stack(x), *first), rewards, gamma)


def _bounds(rewards: list[np.ndarray], gamma: float, terminates: bool) -> tuple[float | None, float | None]:
    """Return the least and the greatest sum of discounted rewards of at least one step, by the recorded rewards."""
    ends = float(min(r.min() for r in rewards)), float(max(r.max() for r in rewards))
    if gamma == 1:
        return None, None
    forever = [end / (1 - gamma) for end in ends]
    # An episode that may end at any step stops where each further reward would make the sum worse.
    return (
        min(ends[0], forever[0]) if terminates else forever[0],
        max(ends[1], forever[1]) if terminates else forever[1],
    )


def _by_fqe(
    agent: Any,
    data: Dataset,
    found: _Facts,
    gamma: float,
    confidence: float,
    deterministic: bool,
    refits: int,
    seed: int | None,
    given: dict[str, Any],
) -> tuple[tuple[float, float, float], dict[str, float]]:
    """Return the estimate by fitted Q evaluation with the ends of its interval, and the metrics of the last update."""
    from zoo.experiments.fitted_q_evaluation import FQE

    known = (*_OF_LEARN, *_OF_NETWORK)
    for name in given:
        if name not in known:
            raise InvalidValue(params.refusal('parameter of estimate_return', name, known, {}))
    if agent.behavior.state_size:
        raise InvalidValue(
            f'{type(agent).__name__} has a recurrent policy, whose actions depend on more than the observation that '
            "fitted Q evaluation values: use importance sampling, such as method='wpdis' with behavior=…."
        )
    if gamma == 1 and not data.terminated.any():
        raise InvalidValue(
            'no recorded episode terminates, so with gamma=1 the rewards of a policy add up without end: give '
            "gamma=0.99, or use importance sampling, such as method='wpdis', which stops where episodes stop."
        )
    low, high = _bounds(found.rewards, gamma, bool(data.terminated.any()))
    of_learn = _OF_LEARN | {name: given[name] for name in _OF_LEARN if name in given}
    of_network = {name: given[name] for name in _OF_NETWORK if name in given}

    def fitted(data: Dataset, fit: int) -> tuple[FQE, dict[str, float]]:
        seeds = None if seed is None else int(np.random.SeedSequence([seed, fit]).generate_state(1)[0] >> 1)
        net_list = of_network.get('net_list', [{}])
        if seeds is not None and isinstance(net_list, list | tuple):
            net_list = [{'seed': seeds, **entry} if isinstance(entry, dict) else entry for entry in net_list]
        model = FQE(
            data.observation_space,
            data.action_space,
            evaluated=agent,
            deterministic=deterministic,
            gamma=gamma,
            center=found.center,
            scale=found.scale,
            low=low,
            high=high,
            horizon=1 / (1 - gamma * (1 - data.terminated.sum() / data.steps)),
            **of_network | {'net_list': net_list},
        )
        result = model.learn(None, 'train', dataset=data, run_dir=False, seed=seeds, **of_learn)
        return model, result.losses

    model, losses = fitted(data, 0)
    values = model.values_of_first(found.first)
    mean = float(values.mean())
    if not refits:
        low, high = bootstrap_interval(values, np.mean, confidence)
        return (mean, float(low), float(high)), losses
    rng, others = np.random.default_rng(seed), []
    for fit in range(1, refits + 1):
        drawn = rng.integers(len(data), size=len(data))
        again, _ = fitted(Dataset(data.source, data.numbers[np.sort(drawn)]), fit)
        others.append(again.values_of_first(spaces.tree_map(lambda x, d=drawn: x[d], found.first)).mean())
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * float(np.std(others, ddof=1))
    return (mean, mean - reach, mean + reach), losses
