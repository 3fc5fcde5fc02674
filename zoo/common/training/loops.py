"""The training loops: on policy, streamed, asynchronous, off policy, on a dataset, evolution.

A loop takes a training, which counts and logs, and experience. It runs until the training is done.
"""

from __future__ import annotations

from typing import Annotated, Any

from zoo.common.acting.perturbed import SEEDS
from zoo.common.datasets.opening import check_sources, opened
from zoo.common.datasets.replaying import ADDED, TOO_SMALL, fill, replay_of
from zoo.common.parameters import BatchSize
from zoo.common.replay.hindsight import Hindsight
from zoo.common.replay.mixed import MixedReplay
from zoo.common.replay.replay import Replay
from zoo.common.schedules import value_at
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import at_least, between
from zoo.common.training.agent import Agent, Loop
from zoo.common.training.collection import Collection
from zoo.common.training.experience import Gradients, PerturbedEpisodes, ReplayBuffer, Rollouts, Steps, Streams
from zoo.common.training.experience_of import IN_PYTHON
from zoo.common.training.interactive import learn_from_labels
from zoo.common.training.offline_loop import Compress, Hindsights, learn_from_data, observe_recorded
from zoo.common.training.training import Training


def _on_policy(
    training: Training,
    experience: Rollouts,
    *,
    horizon: Annotated[int, at_least(1), 'steps of each copy in one iteration'] = 2048,
    **update_params: Any,
) -> None:
    """Collect ``horizon`` steps of every copy, update on them with the other parameters, and drop them."""
    agent = training.agent
    if isinstance(experience, Collection) and experience.is_compiled and agent.improves_in_graph:
        from zoo.common.training.compiled_on_policy import learn_compiled  # which needs TensorFlow

        return learn_compiled(training, experience, horizon, update_params)
    while not training.done:
        agent.progress = training.progress
        rollout = experience.rollout(training, horizon)
        # All learners update or none, since each waits for the gradients of the others.
        learns = experience.least(bool(rollout.valid.any()))
        training.updated(agent.update(rollout, **update_params) if learns else None)


def _streamed(
    training: Training,
    experience: Streams,
    *,
    horizon: Annotated[int, at_least(1), 'steps of each copy in one rollout'] = 20,
    rollouts: Annotated[int, at_least(1), 'rollouts in one update, in the order in which actors send them'] = 4,
    ahead: Annotated[
        int, at_least(1), 'rollouts that an actor may be ahead of the learner; without meaning in one process'
    ] = 1,
    **update_params: Any,
) -> None:
    """Update on rollouts as they come in, with the other parameters."""
    agent = training.agent
    while not training.done:
        agent.progress = training.progress
        rollout = experience.stream(training, horizon, rollouts)
        learns = experience.least(bool(rollout.valid.any()))  # as in `_on_policy`
        training.updated(agent.update(rollout, **update_params) if learns else None)


def _asynchronous(
    training: Training,
    experience: Gradients,
    *,
    horizon: Annotated[int, at_least(1), 'steps of each copy in one gradient'] = 5,
) -> None:
    """Update by gradients as they come in."""
    while not training.done:
        training.agent.progress = training.progress
        training.updated(experience.improve(training, horizon))


#: The probability of a random action from which on a warning says that an agent forgets to act as the data do.
MUCH_AT_RANDOM = 0.2


def _tell_of_random_actions(training: Training) -> None:
    """Warn of an agent that has learned from data, and begins in the environment with random actions."""
    agent = training.agent
    epsilon = getattr(agent.behavior, 'epsilon', 0.0)
    if agent.data_steps and agent.steps == agent.data_steps and value_at(epsilon, 0.0) >= MUCH_AT_RANDOM:
        training.warn(
            'epsilon=%s begins with random actions, although the agent has learned from data: make the agent with '
            'epsilon=0.05 if it shall begin with what it has learned.',
            epsilon,
        )


def _off_policy(
    training: Training,
    experience: Steps,
    *,
    batch_size: BatchSize = 256,
    buffer_size: Annotated[int, at_least(1), 'transitions that the replay buffer holds'] = 1_000_000,
    explore_steps: Annotated[
        int, at_least(0), "steps of uniformly random actions before the first update, in the agent's life"
    ] = 1000,
    update_every: Annotated[
        int | None,
        at_least(1),
        'environment steps, summed over copies, between calls of update; None: a call after every step or message of '
        'an actor, and with the role buffer without waiting for one',
    ] = 1,
    updates: Annotated[
        int | None,
        at_least(1),
        'gradient updates in one call; None: update_every, one for each environment step, or one if that is None',
    ] = None,
    compress: Compress = False,
    her: Hindsights = None,
    recorded: Annotated[
        Any,
        check_sources,
        'None, or what the replay buffer is filled with before training: what zoo.open_dataset takes or '
        'gave, or a list',
    ] = None,
    recorded_share: Annotated[
        float | None,
        between(0, 1),
        'part of each batch that is drawn from what was recorded, kept in a buffer of its own; None: both are in one '
        'buffer',
    ] = None,
) -> None:
    """Take steps, store them, and update on samples of the replay buffer."""
    agent = training.agent
    _tell_of_random_actions(training)
    updates = updates_in_call(update_every, updates)
    _check_share(experience, recorded, recorded_share, her, batch_size)
    if isinstance(experience, Collection) and experience.is_compiled:
        given = {'her': her, 'recorded': recorded, 'compress': compress, 'update_every': update_every}
        why = _why_not_compiled(agent, given | {'checkpoint_buffer': training.saves_buffer})
        if why is None:
            assert update_every is not None
            return _off_policy_compiled(
                training, experience, batch_size, buffer_size, explore_steps, update_every, updates
            )
        training.warn(IN_PYTHON, why)
    replay: ReplayBuffer
    own = hindsight = None
    if experience.replay is not None:  # the processes that hold the transitions relabel them
        replay = experience.replay
    elif recorded_share is not None:
        own = _replay_here(training, experience, buffer_size, compress, None, None)
        replay = MixedReplay(own, _data_beside(training, experience, recorded, compress), recorded_share)
    else:
        if her is not None:
            assert training.goals is not None  # learn has looked for them
            hindsight = Hindsight(training.goals, **her)
        replay = own = _replay_here(training, experience, buffer_size, compress, hindsight, recorded)
    held = (replay.added - replay.recorded) * experience.learners
    needed, began = _needed(training, held, explore_steps, own is not None), agent.updates
    ready = 0
    while not training.done:
        agent.progress = training.progress
        before = training.steps
        for step in experience.steps(training, explore_steps, wait=not ready or update_every is not None):
            assert own is not None  # processes that store steps give none
            if step.begins:
                own.cut(step.first, len(step.valid))
            own.add(step.transition, step.valid, step.first, step.state, step.priority)
        agent.observe_moments(experience.observed())
        metrics = None
        held = (replay.added - replay.recorded) * experience.learners
        ready = experience.least(replay.added >= batch_size and held >= needed)
        if ready:
            # Counted from the steps alone, so that a resumed call updates at the same steps.
            due = 1 if update_every is None else training.steps // update_every - before // update_every
            for _ in range(due):
                batches = replay.sample((updates, batch_size), agent.rng, training.progress, hindsight)
                metrics = agent.update_on(batches)
                replay.prioritize(agent.priorities)
        training.updated(metrics)
    if agent.updates == began:
        _say_nothing_learned(training, ready > 0, max(needed, batch_size), update_every, explore_steps, batch_size)


def _why_not_compiled(agent: Agent, given: dict[str, Any]) -> str | None:
    """Return why steps and updates cannot be compiled into one call, or None.

    ``given`` are parameters of the loop, and ``checkpoint_buffer``.
    """
    sampling = agent.sampling
    for name in ('her', 'recorded', 'compress', 'checkpoint_buffer'):
        if given[name] is not None and given[name] is not False:
            return f'{name} needs the replay buffer in Python'
    if given['update_every'] is None:
        return 'update_every=None counts no steps'
    if sampling.priorities is not None:
        return 'priorities are kept in Python'
    if sampling.sequences is not None:
        return 'sequences for recurrent networks are drawn in Python'
    if agent.moments():
        return 'normalize_obs counts every observation in Python'
    return None


def _off_policy_compiled(
    training: Training,
    experience: Collection,
    batch_size: int,
    buffer_size: int,
    explore_steps: int,
    update_every: int,
    updates: int,
) -> None:
    """Do the same in an environment that is compiled together with the updates."""
    from zoo.common.training.compiled_off_policy import learn_compiled  # which needs TensorFlow

    agent = training.agent
    ring = agent.ring_for(buffer_size, experience.num_envs)
    needed, began = _needed(training, ring.added, explore_steps, False), agent.updates
    ready = learn_compiled(
        training,
        experience,
        ring,
        batch_size=batch_size,
        needed=needed,
        explore_steps=explore_steps,
        update_every=update_every,
        updates=updates,
    )
    if agent.updates == began:
        _say_nothing_learned(training, ready, max(needed, batch_size), update_every, explore_steps, batch_size)


def _say_nothing_learned(
    training: Training, ready: bool, needed: int, update_every: int | None, explore_steps: int, batch_size: int
) -> None:
    """Warn that no update was made."""
    told = 'Nothing was learned: no update was due in the %d steps of this training. '
    if ready:
        assert update_every is not None
        told += 'Updates come every update_every=%d steps, the next one at step %d.'
        why: tuple[int, ...] = update_every, (training.steps // update_every + 1) * update_every
    else:
        told += 'The first one needs %d transitions in the replay buffer (explore_steps=%d, batch_size=%d).'
        why = needed, explore_steps, batch_size
    training.warn(told, training.steps, *why)


def _check_share(experience: Steps, recorded: Any, share: float | None, her: Any, batch_size: int) -> None:
    """Refuse ``recorded_share`` where it cannot be honored."""
    if share is None:
        return
    if recorded is None:
        raise InvalidValue(f'recorded_share={share:g} needs what it is a share of: give recorded=….')
    if her is not None:
        raise InvalidValue('recorded_share cannot be used with her, which relabels what the agent collects: her=None.')
    if share and not round(share * batch_size):
        raise InvalidValue(
            f'recorded_share={share:g} of batch_size={batch_size} is less than half a transition, so that '
            'none would be drawn from what was recorded: give more, or 0.'
        )
    if experience.replay is not None:
        raise InvalidValue('recorded_share needs the replay buffer in the learner: leave out the role buffers.')


def _data_beside(training: Training, experience: Steps, recorded: Any, compress: bool) -> Replay:
    """Return a replay buffer that holds the recorded episodes and nothing else."""
    agent = training.agent
    collected = agent.collected()
    data = replay_of(agent, recorded, agent.action_adaptor, agent.sampling, compress, collected)
    if agent.sampling.priorities is not None and training.steps:
        training.warn('No checkpoint holds the priorities of recorded episodes that are kept beside: they begin anew.')
    observe_recorded(training, collected.take(1 / experience.learners))
    return data


def updates_in_call(update_every: int | None, updates: int | None) -> int:
    """Return the number of gradient updates in one call of :data:`off_policy`."""
    return updates or update_every or 1


def _replay_here(
    training: Training,
    experience: Steps,
    buffer_size: int,
    compress: bool,
    hindsight: Hindsight | None,
    recorded: Any,
) -> Replay:
    """Make the replay buffer of this process and fill it with the recorded episodes."""
    agent = training.agent
    replay = agent.replay_for(buffer_size, experience.num_envs, compress)
    training.replay = replay
    if hindsight is not None:
        replay.keep_episodes()
    if recorded is not None and training.steps and replay.recorded:  # a resumed buffer holds them already
        opened(agent, recorded)  # refuse a wrong name all the same
    elif recorded is not None:
        collected, before = agent.collected(), replay.recorded
        count = fill(agent, replay, recorded, collected=collected)
        if before:
            training.warn(ADDED, before, count)
        if len(replay) < count:
            training.warn(TOO_SMALL, count, len(replay))
        observe_recorded(training, collected.take(1 / experience.learners))
    return replay


def _needed(training: Training, held: int, explore_steps: int, is_here: bool) -> int:
    """Return how many transitions the replay buffer must hold before the first update, with ``held`` there now.

    The number is ``explore_steps``. An agent whose earlier transitions were not saved needs the rest of them, or as
    many again: updates on a few transitions would make it forget what it has learned.
    """
    steps = training.agent.steps - training.agent.data_steps
    if steps <= held:
        return explore_steps
    needed = held + explore_steps - steps if steps < explore_steps else explore_steps
    if needed > held:
        training.warn(
            'The replay buffer holds %d transitions of the %d steps that this agent has behind it%s: the next %d steps '
            'are collected without an update.',
            held,
            steps,
            ' (checkpoint_buffer=True saves it with the agent)' if is_here else '',
            needed - held,
        )
    return needed


def _evolution(
    training: Training,
    experience: PerturbedEpisodes,
    *,
    episodes_per_evaluation: Annotated[int, at_least(1), 'whole episodes with each perturbation of the parameters'] = 1,
    **update_params: Any,
) -> None:
    """Play whole episodes with perturbed parameters, and update on their returns with the other parameters.

    Every generation is played to its end, which may take more steps than asked for. An environment without ends needs a
    time limit (``max_episode_steps``).
    """
    agent = training.agent
    while not training.done:
        agent.progress = training.progress
        count, std = agent.perturbations
        seeds = agent.rng.integers(SEEDS, size=count)
        found = experience.evaluations(training, seeds, std, episodes_per_evaluation)
        training.updated(agent.update(found, **update_params))


on_policy = Loop(_on_policy, 'rollouts')
streamed = Loop(_streamed, 'rollouts', 'stream')
asynchronous = Loop(_asynchronous, 'rollouts', 'gradients')
off_policy = Loop(_off_policy, 'steps', from_data=learn_from_data)
offline_to_online = Loop(_off_policy, 'steps', from_data=learn_from_data, data_first=True)
offline = Loop(learn_from_data, 'steps', from_data=learn_from_data)
dagger = Loop(learn_from_labels, 'steps', alone=True)
evolution = Loop(_evolution, 'evaluations')
