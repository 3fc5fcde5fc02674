"""Algorithms over several environments: normalized scores, their aggregates, and which algorithm is better.

Agarwal et al. 2021, *Deep Reinforcement Learning at the Edge of the Statistical Precipice* (arXiv 2108.13264);
:mod:`zoo.experiments.aggregates` has its statistics.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common.tools.errors import InvalidValue, unknown
from zoo.common.tools.files import as_path
from zoo.common.tools.printing import Table
from zoo.experiments import aggregates
from zoo.experiments.pages import picture
from zoo.experiments.references import Scale, given_scale, known_scale
from zoo.experiments.statistics import ENOUGH, interquartile_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The aggregates of normalized scores by their names.
AGGREGATES: Mapping[str, Callable[[aggregates.Scores], np.ndarray]] = {
    'IQM': aggregates.interquartile_mean,
    'median': aggregates.median,
    'mean': aggregates.mean,
    'optimality gap': aggregates.optimality_gap,
}

#: Text has at most this many pairs of algorithms; HTML has all.
_PAIRS = 28

Estimate = tuple[float, tuple[float, float] | None]


@dataclass(frozen=True)
class Summary:
    """What :func:`compare_scores` returns. It prints as tables; a notebook shows them with a picture.

    Attributes:
        scores: by algorithm and environment, the scores of its runs, each ``[R]``.
        scales: by environment, the scores that are 0 and 1 after normalization. The reference is None where no
            algorithm is better than a random policy.
    """

    scores: Mapping[str, Mapping[str, np.ndarray]]
    scales: Mapping[str, Scale]

    @property
    def environments(self) -> list[str]:
        """The environments whose scores can be normalized: only these count in aggregates."""
        return [name for name, scale in self.scales.items() if scale.reference is not None]

    @property
    def complete(self) -> list[str]:
        """The algorithms with scores in all :attr:`environments`: only these have aggregates."""
        wanted = set(self.environments)
        return [label for label, found in self.scores.items() if wanted and wanted <= found.keys()]

    def normalized(self, label: str) -> list[np.ndarray]:
        """Return the normalized scores of an algorithm, one array ``[R]`` for each of :attr:`environments`."""
        found = []
        for name in self.environments:
            scale = self.scales[name]
            assert scale.reference is not None
            found.append(aggregates.normalize(self.scores[label][name], scale.random, scale.reference))
        return found

    @cached_property
    def aggregates(self) -> dict[str, dict[str, Estimate]]:
        """By algorithm and name of the aggregate, its value and its 95% interval; the highest IQM first.

        The interval is None if the algorithm has a single run in an environment: nothing tells how runs differ.
        """
        found: dict[str, dict[str, Estimate]] = {}
        for label in self.complete:
            scores = self.normalized(label)
            found[label] = {name: _estimate(statistic, scores) for name, statistic in AGGREGATES.items()}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]['IQM'][0]))

    @cached_property
    def improvement(self) -> dict[tuple[str, str], Estimate]:
        """By pair of algorithms, the probability that a run of the first is better, and its 95% interval.

        It is averaged over the environments in which both have scores, also those without a reference.
        """
        order = [*self.aggregates, *(label for label in self.scores if label not in self.aggregates)]
        found = {}
        for pair in itertools.combinations(order, 2):
            first, second = (self.scores[label] for label in pair)
            shared = [name for name in self.scales if name in first and name in second]
            if shared:
                groups = [first[name] for name in shared], [second[name] for name in shared]
                found[pair] = _estimate(aggregates.probability_of_improvement, *groups)
        return found

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A row for each algorithm: the interquartile mean of its scores in each environment, not normalized."""
        order = [*self.aggregates, *(label for label in self.scores if label not in self.aggregates)]
        rows = []
        for label in order:
            found = self.scores[label]
            cells = (f'{interquartile_mean(found[name]):.4g}' if name in found else '-' for name in self.scales)
            rows.append((label, *cells, _counts(found.values())))
        return rows

    @property
    def tables(self) -> list[Table]:
        """Scores, scales, aggregates, and probabilities of improvement."""
        scales = []
        for name, scale in self.scales.items():
            reference = '-' if scale.reference is None else f'{scale.reference:.4g}'
            scales.append((name, f'{scale.random:.4g}', scale.random_source, reference, scale.source))
        sums = [(label, *map(_cell, found.values())) for label, found in self.aggregates.items()]
        pairs = [(*pair, _cell(found)) for pair, found in self.improvement.items()]
        return [
            Table('Scores: interquartile mean of the runs', ('algorithm', *self.scales, 'runs'), self.table),
            Table('Scale: 0 is the random policy, 1 is the reference', _SCALE, scales),
            Table('Normalized scores over all environments, with 95% intervals', ('algorithm', *AGGREGATES), sums),
            Table('Probability that a run of one is better than a run of the other', _PAIR, pairs),
        ]

    @property
    def notes(self) -> list[str]:
        """Sentences on what was left out, and on runs that are few."""
        without = [name for name in self.scales if name not in self.environments]
        notes = [f'{name} is left out of the aggregates: no algorithm is better than random there.' for name in without]
        for label, found in self.scores.items():
            missing = [name for name in self.environments if name not in found]
            if missing:
                notes.append(f'{label} is left out of the aggregates: it has no score in {", ".join(missing)}.')
        counts = {(label, name): x.size for label, own in self.scores.items() for name, x in own.items()}
        least, (label, name) = min((count, place) for place, count in counts.items())
        if least == 1:
            notes.append(f'An interval needs two runs in every environment: {label} has one in {name}.')
        if least < ENOUGH:
            few = f'{least} run is' if least == 1 else f'{least} runs are'
            notes.append(f'{few} few: intervals are too narrow with fewer than {ENOUGH} runs in an environment.')
        return notes

    def __repr__(self) -> str:
        found: list[str] = []
        for table in self.tables:
            if not table.rows:
                continue
            rows = table.rows[:_PAIRS] if table.columns == _PAIR else table.rows
            more = [f'and {len(table.rows) - len(rows)} more pairs'] if len(rows) < len(table.rows) else []
            found += [f'{table.title}:', *replace(table, rows=rows).lines(), *more, '']
        return '\n'.join([*found, *self.notes]).rstrip()

    def _repr_html_(self) -> str:
        drawn = picture(self.plot(), 'Aggregates and performance profiles') if self.aggregates else ''
        return self.body() + drawn

    def body(self) -> str:
        """Return the tables and the notes as HTML."""
        notes = Table('', (), (), ' '.join(self.notes)).html('') if self.notes else ''
        return ''.join(table.html('') for table in self.tables if table.rows) + notes

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the aggregates with their intervals, and performance profiles.

        Args:
            path: the PNG to write, its folder made if need be; None: only return the figure.

        Raises:
            ValueError: no algorithm has scores in all environments.
        """
        from zoo.experiments.summary_picture import draw

        if not self.aggregates:
            raise InvalidValue(f'there are no aggregates to draw: {" ".join(self.notes)}')
        scores = {label: self.normalized(label) for label in self.aggregates}
        return draw(self.aggregates, scores, self.environments, None if path is None else as_path(path, 'path'))

    def rows(self) -> list[tuple[Any, ...]]:
        """Return a row for each run: algorithm, environment, number, score, and normalized score or None."""
        found: list[tuple[Any, ...]] = []
        for label, own in self.scores.items():
            for name, scores in own.items():
                scale = self.scales[name]
                for i, score in enumerate(scores):
                    bound = scale.reference
                    scaled = None if bound is None else float(aggregates.normalize(score, scale.random, bound))
                    found.append((label, name, i, float(score), scaled))
        return found


_SCALE = ('environment', 'random', 'from', 'reference', 'from')
_PAIR = ('one', 'other', 'probability')


def compare_scores(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    references: Mapping[str, float] | None = None,
    random_scores: Mapping[str, float] | None = None,
) -> Summary:
    """Compare algorithms by scores that are there already, over several environments.

    Scores are normalized in each environment: 0 is a random policy, 1 is a reference. Both are known for common
    environments. Elsewhere ``random_scores`` gives the first, and the second is the highest mean among the algorithms.

    >>> made = zoo.compare_scores({'PPO': {'CartPole-v1': [500, 480], 'Acrobot-v1': [-80, -85]}, 'A2C': …})
    >>> made.plot('summary.png')

    Args:
        scores: by algorithm and environment, the scores of its runs. An algorithm without a score in one of the
            environments is left out of the aggregates.
        references: by environment, the score that counts as 1.
        random_scores: by environment, the score of a random policy, which counts as 0.

    Raises:
        ValueError: a score is not a finite number, an environment has no random score, or a reference is not above it.
    """
    found = _checked(scores)
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    given = {'references': references or {}, 'random_scores': random_scores or {}}
    for what, values in given.items():
        check_names(what, values, names)
    scales = {}
    for name in names:
        scale = known_scale(name)
        if name in given['random_scores']:
            own = given_scale(given['random_scores'][name], name)
            scale = own if scale is None else replace(scale, random=own.random, random_source=own.random_source)
        if scale is None:
            told = f'zoo does not know the score of a random policy in {name}'
            raise InvalidValue(f"{told}: give it, random_scores={{'{name}': …}}.")
        scales[name] = scale
    return summarize(found, scales, given['references'])


def summarize(
    scores: Mapping[str, Mapping[str, np.ndarray]], scales: Mapping[str, Scale], references: Mapping[str, float]
) -> Summary:
    """Return the summary of checked scores; ``references`` of the user replace the references in ``scales``."""
    settled = {}
    for name, scale in scales.items():
        if name in references:
            scale = scale.with_reference(references[name], name)
        elif scale.reference is None or scale.reference <= scale.random:
            highest = max(float(np.mean(own[name])) for own in scores.values() if name in own)
            scale = replace(scale, reference=highest if highest > scale.random else None, source='highest mean here')
        settled[name] = scale
    return Summary(scores, settled)


def check_names(what: str, values: Any, environments: Sequence[str]) -> None:
    """Refuse what is no mapping, and an environment that is not compared."""
    if not isinstance(values, Mapping):
        raise InvalidValue(f"{what} is {values!r}: give scores by environment, such as {{'CartPole-v1': 500}}.")
    for name in values:
        if name not in environments:
            raise InvalidValue(unknown(f'environment in {what}', name, environments))


def _checked(scores: Any) -> dict[str, dict[str, np.ndarray]]:
    """Return scores as arrays ``[R]``."""
    right = "give {'PPO': {'CartPole-v1': [500, 480]}, …}"
    if not isinstance(scores, Mapping) or not scores or not all(isinstance(own, Mapping) for own in scores.values()):
        raise InvalidValue(f'scores are by algorithm and environment: {right}.')
    found: dict[str, dict[str, np.ndarray]] = {}
    for label, own in scores.items():
        if not isinstance(label, str) or not own:
            raise InvalidValue(f'scores[{label!r}] has no environment: {right}.')
        found[label] = {}
        for name, values in own.items():
            try:
                array = np.asarray(values, np.float64)
            except (TypeError, ValueError):
                array = np.empty(0)
            if array.ndim != 1 or not array.size or not np.isfinite(array).all():
                told = f'the scores of {label} in {name} are {values!r}'
                raise InvalidValue(f'{told}: give a list of finite numbers, one for each run.')
            found[label][name] = array
    return found


def _estimate(statistic: Callable[..., np.ndarray], *groups: aggregates.Scores) -> Estimate:
    value = float(statistic(*groups))
    if any(own.size < 2 for scores in groups for own in scores):
        return value, None
    low, high = aggregates.stratified_interval(statistic, *groups)
    return value, (float(low), float(high))


def _cell(found: Estimate) -> str:
    value, ends = found
    return f'{value:.3f}' if ends is None else f'{value:.3f} ({ends[0]:.3f} to {ends[1]:.3f})'


def _counts(scores: Iterable[np.ndarray]) -> str:
    """Return how many runs there are in an environment: ``'5'``, or ``'3 to 5'``."""
    counts = [own.size for own in scores]
    return str(min(counts)) if min(counts) == max(counts) else f'{min(counts)} to {max(counts)}'
