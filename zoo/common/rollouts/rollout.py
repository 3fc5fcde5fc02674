"""The rollout that a user holds: what ``agent.rollout`` has played, to compute with and to learn from by hand.

The library's own loops work on the bare record :class:`zoo.common.records.Trajectories`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.records import Episode, Trajectories
from zoo.common.rollouts import estimates
from zoo.common.rollouts.estimates import Critic, Values
from zoo.common.tools.errors import InvalidValue

#: The fields that every rollout has, in this order; ``log_prob`` and ``state`` may be None.
FIELDS = tuple('obs action reward next_obs terminated truncated valid begins cut log_prob state'.split())
#: The fields that `Rollout.with_fields` may replace.
REPLACEABLE = ('reward', 'log_prob')


@dataclass(frozen=True, eq=False)
class Player:
    """The agent that played, None after a rollout was pickled, and the spaces of one copy of its environment."""

    observation_space: Space
    action_space: Space
    agent: Critic | None = None


class Span(NamedTuple):
    """The place of a rollout in a play: rows ``begin`` to ``end`` of these copies."""

    play: object
    begin: int
    end: int
    copies: tuple[int, ...]


class Rollout:
    """Steps that an agent has played: named NumPy arrays with leading axes ``[T, N]`` or ``[B]``.

    A new rollout and its slices are *ordered*: ``T`` successive steps of ``N`` copies of the environment. :meth:`flat`,
    :meth:`shuffle` and :meth:`minibatches` give *loose* transitions ``[B, …]``. A rollout does not change: every method
    returns a new rollout or an array. Fields added by :meth:`with_fields` are attributes too.

    Observations and actions are flat structures: one array, or for a ``Dict`` or ``Tuple`` a dict of arrays by path.
    A ``tf.function`` takes a rollout and sees its fields as tensors. Rollouts of equal shapes share a graph.

    Attributes:
        obs: the observation before the step, ``[…, *shape]`` in the environment's dtype.
        action: in the policy's own units, as :mod:`zoo.common.adaptors.action` describes.
        reward: float32, as the environment gave it.
        next_obs: the observation after the step, the true final one at an episode's end.
        terminated: bool, the task ended: nothing of value follows.
        truncated: bool, the episode was cut by a time limit: the value of ``next_obs`` still counts.
        valid: bool, False where there is no transition: a copy was only reset, or had played its share of the episodes.
        begins: bool, an episode begins with this step.
        cut: bool, the episode goes on after this step, but not in the next row: two rollouts were joined here.
        log_prob: float32, the log-probability of the action under the stochastic policy that drew it; None for
            ε-greedy actions and deterministic policies.
        state: float32 ``[…, S]``, the recurrent state before the step, zero where an episode begins; None where the
            policy has none. A recurrent agent evaluates only ordered rollouts.
        player: the agent that played, and its spaces.
    """

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any
    valid: Any
    begins: Any
    cut: Any
    log_prob: Any
    state: Any
    player: Player

    def __init__(
        self,
        fields: dict[str, Any],
        player: Player,
        span: Span | None = None,
        ends: Sequence[tuple[int, int, Episode]] = (),
    ) -> None:
        self.__dict__.update(fields)
        self.__dict__.update(player=player, _names=tuple(fields), _span=span, _ends=tuple(ends))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f'a rollout does not change: make a new one by rollout.with_fields({name}=…).')

    if TYPE_CHECKING:  # the fields that a program adds

        def __getattr__(self, name: str) -> Any: ...

    # Properties

    @property
    def fields(self) -> dict[str, Any]:
        """All fields by name."""
        return {name: self.__dict__[name] for name in self.__dict__['_names']}

    @property
    def ordered(self) -> bool:
        """Whether these are successive steps ``[T, N]`` rather than loose transitions ``[B]``."""
        return len(self.reward.shape) == 2

    @property
    def steps(self) -> int:
        """The number of transitions: the valid rows."""
        return int(np.count_nonzero(self.valid))

    @property
    def finished(self) -> list[Episode]:
        """The episodes that ended in these steps, in the order of their ends; empty for loose transitions."""
        return [episode for _, _, episode in self.__dict__['_ends']]

    @property
    def mean_return(self) -> float:
        """The mean return of the episodes that ended in these steps; NaN if none did."""
        return float(np.mean([x.episode_return for x in self.finished])) if self.finished else float('nan')

    def __len__(self) -> int:
        """Return the length of the first axis, ``T`` or ``B``."""
        return int(self.reward.shape[0])

    def __repr__(self) -> str:
        shape = ' x '.join(map(str, self.reward.shape))
        ended = f'; {len(self.finished)} episodes ended, mean return {self.mean_return:g}' if self.finished else ''
        return f'<Rollout {shape}: {", ".join(self.fields)}{ended}>'

    # New rollouts

    def with_fields(self, **fields: Any) -> Rollout:
        """Return the rollout with more fields, such as advantages, which its slices and minibatches have too.

        They are arrays with the rollout's leading axes. ``reward`` and ``log_prob`` replace the present ones.

        Raises:
            ValueError: a name is taken, or the leading axes differ.
        """
        lead, found = tuple(self.reward.shape), self.fields
        for name, value in fields.items():
            if name not in REPLACEABLE and (name in FIELDS or hasattr(type(self), name) or name.startswith('_')):
                raise InvalidValue(f'a rollout has {name!r} already: give the field another name.')
            array = np.asarray(value)
            if array.shape[: len(lead)] != lead:
                wrong = f'the field {name!r} has shape {array.shape}'
                raise InvalidValue(f'{wrong}: it needs the leading axes {lead} of the rollout.')
            found[name] = array
        return self._with(found)

    def __getitem__(self, index: Any) -> Rollout:
        """Return some of the steps.

        An ordered rollout takes ``[begin:end]`` or ``[begin:end, copies]``, with ``copies`` a slice or a list of
        numbers. The axes stay, and the last step counts as cut where its episode goes on. A bool array ``[T, N]`` picks
        valid rows as loose transitions. Loose transitions take a slice, or an array of numbers or bools.

        Raises:
            ValueError: an index that would break the order of the steps, or remove an axis.
        """
        if not self.ordered:
            if isinstance(index, slice):
                return self._loose(np.arange(len(self))[index])
            rows = np.asarray(index)
            if rows.ndim != 1 or (rows.dtype == bool and len(rows) != len(self)) or rows.dtype.kind not in 'biu':
                raise InvalidValue(
                    f'loose transitions are picked by a slice or a list, such as [3:8] or [[1, 4]], not by {index!r}.'
                )
            return self._loose(np.flatnonzero(rows) if rows.dtype == bool else rows)
        if isinstance(index, np.ndarray) and index.dtype == bool and index.shape == self.reward.shape:
            return self._loose(np.flatnonzero(index & self.valid))
        time, copies = index if isinstance(index, tuple) and len(index) == 2 else (index, slice(None))
        if not isinstance(time, slice) or time.step not in (None, 1):
            raise InvalidValue(
                f'steps are picked in their order by a slice, such as rollout[10:20] or rollout[10:20, [0, 2]], not '
                f'by {index!r}.'
            )
        begin, end, _ = time.indices(len(self))
        end = max(begin, end)
        numbers = np.arange(self.reward.shape[1])
        if not isinstance(copies, slice) and np.ndim(copies) != 1:
            raise InvalidValue(f'copies are picked by a slice or a list, like rollout[:, [0, 2]], not by {copies!r}.')
        columns = numbers[copies]
        pick = slice(None) if np.array_equal(columns, numbers) else columns
        if (span := self.__dict__['_span']) is not None:
            held = tuple(span.copies[column] for column in columns)
            span = Span(span.play, span.begin + begin, span.begin + end, held)
        place = {int(column): i for i, column in enumerate(columns)}
        ends = [(t - begin, place[i], x) for t, i, x in self.__dict__['_ends'] if begin <= t < end and i in place]
        return self._with(self._mapped(lambda x: x[begin:end][:, pick]), span, ends)

    def __add__(self, other: Rollout) -> Rollout:
        return Rollout.concatenate([self, other]) if isinstance(other, Rollout) else NotImplemented

    @classmethod
    def concatenate(cls, rollouts: Sequence[Rollout]) -> Rollout:
        """Join rollouts, one after the other.

        Ordered rollouts are joined along time, copy by copy. Episodes go on from one to the next where the environment
        did, as in successive calls of ``agent.rollout``. Otherwise the episodes under way are marked as cut.

        >>> both = Rollout.concatenate([agent.rollout(env, 128), agent.rollout(env, 128)])

        Raises:
            ValueError: an empty list; other spaces, fields or numbers of copies; ordered and loose ones together.
        """
        rollouts = list(rollouts)
        if not rollouts:
            raise InvalidValue('there is no rollout to concatenate: give at least one.')
        first = rollouts[0]
        for other in rollouts[1:]:
            first._check_joins(other)
        fields: dict[str, Any] = {
            name: None if values[0] is None else spaces.tree_map(lambda *x: np.concatenate(x), *values)
            for name, values in ((name, [x.__dict__[name] for x in rollouts]) for name in first.fields)
        }
        if not first.ordered:
            return cls(fields, first.player)
        span, before, row, ends = first.__dict__['_span'], first.__dict__['_span'], 0, []
        for i, rollout in enumerate(rollouts):
            own = rollout.__dict__['_span']
            if i and len(rollout):
                joins = own is not None and before is not None and own == before._replace(begin=before.end, end=own.end)
                if row and not joins:
                    if rollout.state is not None and not (rollout.begins[0] | ~rollout.valid[0]).all():
                        raise InvalidValue(
                            'rollouts of a recurrent policy follow one another only where the next one goes on as the '
                            'environment did or begins new episodes: evaluate each by itself.'
                        )
                    fields['cut'][row - 1] |= ~(fields['terminated'][row - 1] | fields['truncated'][row - 1])
                if not row:
                    span = own
                else:
                    span = span._replace(end=own.end) if joins and span is not None else None
                before = own
            ends += [(t + row, column, x) for t, column, x in rollout.__dict__['_ends']]
            row += len(rollout)
        return cls(fields, first.player, span, ends)

    def flat(self) -> Rollout:
        """Return the valid rows as loose transitions ``[B, …]``."""
        return self._loose(np.flatnonzero(self.valid))

    def shuffle(self, seed: int | np.random.Generator | None = None) -> Rollout:
        """Return the valid rows in a random order, by a seed, a generator or (None) the agent's own generator."""
        return self._loose(self._generator(seed).permutation(np.flatnonzero(self.valid)))

    def minibatches(self, n: int, seed: int | np.random.Generator | None = None) -> Iterator[Rollout]:
        """Iterate over ``n`` random minibatches of loose transitions, which cover every valid row: one epoch.

        Their size is the number of rows divided by ``n``, rounded up. The last ones are filled up with transitions from
        the first. So rollouts of one shape give minibatches of one shape, which a ``tf.function`` compiles once.
        ``seed`` is a seed or a generator; None: the agent's own generator.

        Raises:
            ValueError: ``n`` is less than 1 or more than the rows, or there is no transition.
        """
        rows = int(np.prod(self.reward.shape))
        valid = np.flatnonzero(self.valid)
        if not valid.size:
            raise InvalidValue('this rollout holds no transition to draw minibatches from: play more steps.')
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= rows:
            raise InvalidValue(f'n is {n!r}: give a number of minibatches from 1 to {rows}, the number of rows.')
        order = np.resize(self._generator(seed).permutation(valid), (int(n), -(-rows // int(n))))
        return (self._loose(chosen) for chosen in order)

    def episodes(self, whole: bool = True) -> list[Rollout]:
        """Return the episodes in the order in which they ended: ordered rollouts ``[L, 1, …]`` of valid rows.

        ``whole``: only episodes that begin and end in this rollout; False: parts of episodes too.

        Raises:
            ValueError: loose transitions.
        """
        self._check_ordered('episodes')
        done, pieces = self.terminated | self.truncated, []
        for copy in range(self.reward.shape[1]):
            begin = None
            for t in np.flatnonzero(self.valid[:, copy]).tolist():
                begin = t if begin is None else begin
                # Before a row that is not valid, the copy has ended an episode.
                if done[t, copy] or self.cut[t, copy] or t == len(self) - 1:
                    if not whole or (self.begins[begin, copy] and done[t, copy]):
                        pieces.append((t, copy, begin))
                    begin = None
        return [self[begin : t + 1, [copy]] for t, copy, begin in sorted(pieces)]

    # Estimates

    def returns(self, gamma: float, values: Values = None) -> np.ndarray:
        """Return the discounted return of every step, float32 ``[T, N]``; 0 where a row is not valid.

        The return is the sum of the rewards to the end of the episode
        (:func:`zoo.common.maths.returns.discounted_returns`). Where the episode was
        truncated or cut or the rollout ends, the value of the next observation stands for the rest.

        Args:
            gamma: discount, in [0, 1].
            values: V of states, in a form that :meth:`advantages` takes. None: the agent's critic; without a critic 0,
                so that only the rewards seen count.

        Raises:
            ValueError: loose transitions, or values of another shape.
        """
        self._check_ordered('returns')
        return estimates.returns(self.trajectories, gamma, values, self.player.agent)

    def advantages(self, gamma: float, lam: float, values: Values = None) -> np.ndarray:
        """Return generalized advantage estimates, float32 ``[T, N]``; 0 where a row is not valid.

        Schulman et al. (arXiv 1506.02438), computed by :func:`zoo.common.maths.returns.gae`. An advantage plus the
        value of its state is the λ-return, which a critic learns.

        Args:
            gamma: discount, in [0, 1].
            lam: λ, in [0, 1]: 0 trusts the values, 1 the rewards.
            values: V of states: a function from flat observations ``[B, …]`` to ``[B]`` or ``[B, 1]``, such as a Keras
                model; or the pair of arrays ``[T, N]`` of the values before and after each step; or one number, the
                value of every state. None: the agent's critic as it is now.

        Raises:
            ValueError: loose transitions, values of another shape, or None where the agent has no critic.
        """
        self._check_ordered('advantages')
        return estimates.advantages(self.trajectories, gamma, lam, values, self.player.agent)

    @property
    def trajectories(self) -> Trajectories:
        """The steps as the record that the library's loops work on, where a cut counts as truncated."""
        self._check_ordered('trajectories')
        first, begins = (None, None) if self.state is None else (self.state[0], self.begins)
        truncated = self.truncated | self.cut
        steps = (self.obs, self.action, self.reward, self.next_obs, self.terminated, truncated, self.valid)
        return Trajectories(*steps, state=first, begins=begins)

    # Inside

    def _with(
        self, fields: dict[str, Any], span: Span | None = None, ends: Sequence[tuple[int, int, Episode]] | None = None
    ) -> Rollout:
        if ends is None:
            span, ends = self.__dict__['_span'], self.__dict__['_ends']
        return Rollout(fields, self.player, span, ends)

    def _mapped(self, function: Callable[[Any], Any]) -> dict[str, Any]:
        """Apply a function to the arrays of all fields."""
        return {name: None if x is None else spaces.tree_map(function, x) for name, x in self.fields.items()}

    def _loose(self, rows: np.ndarray) -> Rollout:
        """Return loose transitions, by their numbers in the flattened leading axes."""
        lead = len(self.reward.shape)
        return Rollout(self._mapped(lambda x: x.reshape(-1, *x.shape[lead:])[rows]), self.player)

    def _generator(self, seed: int | np.random.Generator | None) -> np.random.Generator:
        if seed is None and self.player.agent is not None:
            return self.player.agent.rng
        return np.random.default_rng(seed)

    def _check_ordered(self, what: str) -> None:
        if not self.ordered:
            advice = 'call it before flat, shuffle or minibatches, and keep the result by with_fields'
            raise InvalidValue(f'{what} needs the steps in their order, which loose transitions have lost: {advice}.')

    def _check_joins(self, other: Rollout) -> None:
        one, two = self.player, other.player
        for kind in ('observation_space', 'action_space'):
            own, found = getattr(one, kind), getattr(two, kind)
            if own is not found and not spaces.same(own, found):
                both = f'an {kind} {spaces.describe(own)} and one {spaces.describe(found)}'
                raise InvalidValue(f'the rollouts have other spaces, {both}: concatenate rollouts of one environment.')
        mine, its = ({name for name, x in rollout.fields.items() if x is not None} for rollout in (self, other))
        if mine != its:
            lacking = ', '.join(sorted(mine ^ its))
            raise InvalidValue(
                f'of two rollouts to join only one has {lacking}: give both the same fields by with_fields.'
            )
        if self.reward.shape[1:] != other.reward.shape[1:]:
            shapes = f'{tuple(self.reward.shape)} and {tuple(other.reward.shape)}'
            raise InvalidValue(f'rollouts of shapes {shapes} cannot follow one another: concatenate their flat().')

    def __getstate__(self) -> dict[str, Any]:  # the arrays and the spaces, without the agent
        player = Player(self.player.observation_space, self.player.action_space)
        return {**self.__dict__, 'player': player, '_span': None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __tf_flatten__(self) -> tuple[Any, tuple[Any, ...]]:
        return (self.player, self.__dict__['_names']), tuple(self.fields.values())

    @classmethod
    def __tf_unflatten__(cls, metadata: Any, components: tuple[Any, ...]) -> Rollout:
        player, names = metadata
        return cls(dict(zip(names, components, strict=True)), player)
