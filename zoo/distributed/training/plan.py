"""The plan of a training with roles: what every rank needs to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gymnasium.spaces import Space

from zoo.common.acting.behavior import Behavior
from zoo.common.rollouts.rollout_buffer import RolloutBuffer
from zoo.common.sampling import Sampling
from zoo.common.training.loops import updates_in_call
from zoo.distributed.layout import Layout, Role

#: Stands for the end of the training, in place of the version of the weights, in what learners publish and answer.
END = -1

#: Calls of update whose batches buffers draw ahead; and how many batches at least for a learner that waits for nothing,
#: as in Horgan et al. 2018.
DRAWN_AHEAD, FREE_DRAWN_AHEAD = 2, 16

#: Processes of one actor at most that die between two looks of its learner. Each takes half a second to begin.
DEATHS = 20

#: Bytes of an actor's message besides the rollout: for each step, in which an episode may end, and for the rest.
EPISODES, HEADER = 40, 1 << 16


class Stored(NamedTuple):
    """What a rank needs to know of the agent to hold its replay buffer, with spaces of one copy of the environment.

    ``normalized`` has the number of entries of each observation with running statistics, by path.
    """

    observation_space: Space
    action_space: Space
    sampling: Sampling
    normalized: Mapping[str, int] = {}


@dataclass(frozen=True)
class Plan:
    """What a rank needs to know of a training. It can be pickled, and read without TensorFlow.

    Attributes:
        experience: what ``update`` learns from (:class:`zoo.common.training.agent.Loop`).
        horizon: steps of each copy in one message of an actor; for ``'evaluations'`` the number of evaluations in it.
        max_bytes: the size of the largest message of an actor.
        ahead: messages that an actor may send before the first of them is answered.
        num_envs: copies of the environment in each actor.
        explore_steps: steps of uniformly random actions at the beginning of the agent's life.
        seed: the seed of the ranks' own randomness; None: from the operating system.
        start, train_steps: the steps at the beginning and at the end of the training.
        behavior: the behavior policy, without a forward pass if that needs TensorFlow.
        stored: what a replay buffer holds and how it is drawn from; None: the loop has none.
        rebuild: ``rebuild(seed=…)`` builds the environment; None: it cannot be built in another process.
        blueprint: the whole agent, pickled, for ranks in other processes that need it.
        has_gradients: whether actors send gradients, which they compute from their own steps.
        restarts: how often a dead actor is started again, where the engine can do that (``local``).
        sample_timeout: seconds that the environment of an actor may take for a step or a reset; None: any time.
        built: what this rank has built (:func:`zoo.distributed.training.built.record`).
    """

    layout: Layout
    experience: str
    horizon: int
    max_bytes: int
    ahead: int
    num_envs: int
    explore_steps: int
    seed: int | None
    start: int
    train_steps: int
    loop_params: dict[str, Any] = field(repr=False)
    behavior: Behavior = field(repr=False)
    stored: Stored | None = field(default=None, repr=False)
    rebuild: Callable[..., Any] | None = field(default=None, repr=False)
    blueprint: bytes | None = field(default=None, repr=False)
    has_gradients: bool = False
    restarts: int = 3
    sample_timeout: float | None = None
    built: dict[str, str] = field(default_factory=dict, repr=False)

    def storage(self, observation_space: Space, num_envs: int) -> RolloutBuffer:
        """Return storage for one message of an actor; with each step's recurrent state if a replay buffer stores it.

        The space is of one copy of the environment, as this rank has built it.
        """
        own, sizes = self.behavior, (self.behavior.state_size, self.behavior.param_size)
        return RolloutBuffer(observation_space, own.adaptor, self.horizon, num_envs, *sizes, self.stored is not None)

    @property
    def needs_goals(self) -> bool:
        """Whether every learner computes rewards by the environment, although it steps none."""
        return self.loop_params.get('her') is not None

    @property
    def is_free(self) -> bool:
        """Whether learners update without waiting for steps, which needs buffers in ranks of their own."""
        return self.layout.buffers > 0 and self.loop_params.get('update_every', 1) is None

    @property
    def updates(self) -> int:
        """Gradient updates in one call, in a loop over steps."""
        return updates_in_call(self.loop_params['update_every'], self.loop_params['updates'])

    @property
    def drawn_ahead(self) -> int:
        """Calls of update whose batches buffers draw ahead."""
        return max(DRAWN_AHEAD, -(-FREE_DRAWN_AHEAD // self.updates)) if self.is_free else DRAWN_AHEAD

    @property
    def answers(self) -> int:
        """Replies that may wait for an actor: to its messages, to messages of processes that died, and the last."""
        return self.unanswered + 1

    @property
    def unanswered(self) -> int:
        """Messages of an actor, and of its processes that died, that may wait for an answer."""
        return (self.ahead + 1) * (1 + min(self.restarts, DEATHS))

    def learner_of(self, actor: int) -> int:
        """Return the learner that answers an actor."""
        return actor % self.layout.learners

    def server_of(self, actor: int) -> int:
        """Return the server that an actor asks."""
        return actor % self.layout.servers

    def receiver_of(self, actor: int) -> tuple[Role, int]:
        """Return where an actor sends its steps: to a buffer of its learner, or to the learner."""
        if self.layout.buffers:
            return Role.BUFFER, actor % self.layout.buffers
        return Role.LEARNER, self.learner_of(actor)

    def actors_of(self, role: Role, number: int) -> list[int]:
        """Return the actors that a learner answers, or that ask a server."""
        of = self.learner_of if role == Role.LEARNER else self.server_of
        return [actor for actor in range(self.layout.actors) if of(actor) == number]

    def actors_to(self, role: Role, number: int) -> list[int]:
        """Return the actors that send their steps to this rank."""
        return [actor for actor in range(self.layout.actors) if self.receiver_of(actor) == (role, number)]

    def buffers_of(self, learner: int) -> list[int]:
        """Return the buffers that hold the replay of a learner, each an equal part."""
        return list(range(learner, self.layout.buffers, self.layout.learners))

    def is_light(self, role: Role) -> bool:
        """Return whether a rank of this role needs no TensorFlow."""
        has_policy = self.behavior.forward is not None
        if role == Role.ACTOR:
            return not self.has_gradients and (self.layout.servers > 0 or has_policy)
        return role == Role.BUFFER or (role == Role.SERVER and has_policy)
