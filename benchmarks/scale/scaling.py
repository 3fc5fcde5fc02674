"""What 10, 100 and 1,000 actors ask of one learner: a model of measured costs, and the model beside real runs.

    python benchmarks/scale/scaling.py               # writes results/scaling.md; some six minutes
    python benchmarks/scale/scaling.py --step 1      # of an environment of 1 ms a step, not of 10

Measured are the few things on which a learner spends its time: it receives messages, hands out weights, updates, and
stores and draws where there is a replay buffer. The rest is arithmetic, which docs/howto/scaling.md states. A step of
the environment is a sleep: actors take the time of a step on a machine of their own, and none of this machine's.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import header, parser_of, row, stamp, write_page
from many import measured as simulated
from sleeping import EPISODE, Sleeping, agent_for

ACTORS = (10, 100, 1000)
SIZES = (1_000, 30_000, 1_000_000)  # bytes of a message
MESSAGES, SIMULATED = 200, 4000
CHUNK = 32  # steps in a message to a replay buffer, see zoo/distributed/training/plan.py
SHORT = 20  # steps of an episode, where only the update after many of them is measured


@dataclass
class Line:
    """Seconds of something by its size: ``fixed + size * each``."""

    fixed: float
    each: float

    def __call__(self, size: float) -> float:
        return self.fixed + size * self.each

    @classmethod
    def through(cls, sizes: Any, seconds: Any) -> Line:
        """Take the fixed part from the smallest size, the rest from the largest: a fit would weigh the large alone."""
        each = max(0.0, (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0]))
        return cls(max(0.0, seconds[0] - sizes[0] * each), each)


def exchange(path: str) -> None:
    """Be a rank of two: rank 0 receives, answers and hands out weights, and writes the processor seconds of each."""
    from zoo.distributed import Role, connect

    with connect(learners=1, actors=1) as cluster:
        actor, learner = (Role.ACTOR, 0), (Role.LEARNER, 0)
        messages, replies = cluster.queue(actor, learner, 4), cluster.queue(learner, actor)
        found: dict[str, list[float]] = {'receive': [], 'reply': [], 'save': []}
        for number, size in enumerate(SIZES):
            content = {'x': np.zeros(size // 4, np.float32)}
            cluster.barrier()
            if cluster.role() == Role.ACTOR:
                for _ in range(MESSAGES):
                    messages.put(content)
                    replies.get()
                    cluster.request(Role.LEARNER, 0, f'weights {number}')
                continue
            seconds = np.zeros(3)
            for _ in range(MESSAGES):
                begin = time.thread_time()
                messages.get()
                received = time.thread_time()
                cluster.save(f'weights {number}', content)
                saved = time.thread_time()
                replies.put({'version': np.int64(0)})
                seconds += received - begin, time.thread_time() - saved, saved - received
            for name, each in zip(found, seconds / MESSAGES, strict=True):
                found[name].append(each)
        cluster.barrier()
        if cluster.role() == Role.LEARNER:
            Path(path).write_text(json.dumps(found))


def exchange_costs() -> dict[str, Line]:
    """Return what a message costs its receiver, and what a reply and a set of weights cost their sender."""
    from zoo.distributed import launch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'found'
        launch(exchange, 2, (str(path),), timeout=120)
        found = json.loads(path.read_text())
    return {name: Line.through(SIZES, seconds) for name, seconds in found.items()}


def timed(call: Any, seconds: list[float]) -> Any:
    """Return a function that does ``call`` and notes each duration."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = call(*args, **kwargs)
        seconds.append(time.perf_counter() - begin)
        return result

    return wrapped


def middle(seconds: list[float]) -> float:
    """Return the median without the first two calls, in which functions are compiled."""
    return statistics.median(seconds[2:])


def trained(alg: str, steps: int, **changes: Any) -> dict[str, Any]:
    """Return what an algorithm costs where it learns: parameters, and seconds to update, act, draw and store."""
    from zoo.common.replay.replay import Replay

    env = Sleeping(discrete=alg == 'ApexDQN', length=SHORT if alg in ('ES', 'ARS') else EPISODE)
    agent, params = agent_for(alg, env)
    seconds: dict[str, list[float]] = {name: [] for name in ('update', 'act', 'draw', 'store', 'gradient')}
    name = 'update_on' if alg == 'ApexDQN' else 'update'
    update = getattr(agent, name)
    if alg == 'A3C':  # in actors and in the learner, one after the other

        def update(rollout: Any) -> Any:
            found = timed(agent.gradient, seconds['gradient'])(rollout)
            return agent.take_gradient(found)

    setattr(agent, name, timed(update, seconds['update']))
    agent.act = timed(agent.act, seconds['act'])
    draw, store = Replay.sample, Replay.add
    Replay.sample, Replay.add = timed(draw, seconds['draw']), timed(store, seconds['store'])  # type: ignore[method-assign]
    try:
        agent.learn(env, **params | {'roles': None, 'train_steps': steps} | changes)
    finally:
        Replay.sample, Replay.add = draw, store  # type: ignore[method-assign]
    found = {name: middle(each) for name, each in seconds.items() if len(each) > 3}
    if alg == 'A3C':
        found['update'] -= found['gradient']
        found['weights'] = sum(x.nbytes for x in agent.weights().values())
        found['gradient_bytes'] = sum(4 * int(np.prod(v.shape)) for o in agent.optimizers.values() for v in o.variables)
    else:
        found['weights'] = sum(x.nbytes for x in agent.forward.weights().values())
    return found | {'params': params | changes, 'agent': agent}


@dataclass
class Asked:
    """What an algorithm's actors send, and what its learner spends on it. Times are seconds, sizes bytes.

    Attributes:
        steps: of the environment in a message.
        size: of a message.
        own: of an actor for a message, besides its steps: a gradient.
        learner: of the learner for a message, all in all.
        update_messages: messages in one update of the learner; 0: it updates whether or not they come.
        weights: size of the weights, which each actor asks for once for each update that it hears of.
        waits: whether actors wait while the learner learns.
        most: actors that can have work at a time; None: any number.
        updates: a second, where they do not depend on the actors.
    """

    steps: int
    size: float
    own: float
    learner: float
    update_messages: float
    weights: float
    waits: bool = False
    most: int | None = None
    updates: float = 0.0


def per_second(asked: Asked, actors: int, step: float) -> float:
    """Return the messages a second of so many actors, by what they can send and what the learner can take."""
    working = min(actors, asked.most or actors)
    sends = asked.steps * step + asked.own
    if asked.waits:  # every actor sends one, the learner takes all of them, and all begin anew
        return working / (sends + working * asked.learner)
    return min(working / sends, 1.0 / asked.learner)


def asked_of(cost: dict[str, Line], measured: dict[str, dict[str, Any]], actors: int) -> dict[str, Asked]:
    """Return what each algorithm asks for with so many actors."""
    from zoo.common.rollouts.rollout_buffer import rollout_bytes

    def rollout(found: dict[str, Any], steps: int) -> float:
        agent = found['agent']
        space, adaptor = agent.observation_space, agent.action_adaptor
        return rollout_bytes(space, adaptor, steps, 1, 0, agent.behavior.param_size)

    receive, save = cost['receive'], cost['save']
    # What the learner does beside, and what grows with the queues that it waits for.
    reply = cost['reply'](8) + cost['beside'](actors)
    result = {}
    found = measured['PPO']
    horizon, weights = found['params']['horizon'], found['weights']
    learner = receive(rollout(found, horizon)) + reply + found['update'] + save(weights) / actors
    result['PPO, DPPO'] = Asked(horizon, rollout(found, horizon), 0.0, learner, actors, weights, waits=True)
    found = measured['IMPALA']
    horizon, rollouts, weights = found['params']['horizon'], found['params']['rollouts'], found['weights']
    learner = receive(rollout(found, horizon)) + reply + (found['update'] + save(weights)) / rollouts
    result['IMPALA'] = Asked(horizon, rollout(found, horizon), 0.0, learner, rollouts, weights)
    found = measured['A3C']
    horizon, size, weights = found['params']['horizon'], found['gradient_bytes'], found['weights']
    learner = receive(size) + reply + found['update'] + save(weights)
    result['A3C'] = Asked(horizon, size, found['gradient'], learner, 1, weights)
    found = measured['ApexDQN']
    size, batch = rollout(found, CHUNK), found['params']['batch_size'] * found['params']['updates']
    drawn = rollout(found, batch)
    updates = found['params']['updates'] / (found['update'] + receive(drawn) + reply)
    learner = receive(64) + reply  # what a buffer tells of a message; the rest of its time is for updates
    for buffers in (1, 8):
        # A buffer stores what comes, and draws its part of what the learner asks for.
        busy = updates / found['params']['updates'] * (found['draw'] + cost['reply'](drawn)) / buffers
        taken = (receive(size) + CHUNK * found['store']) / (max(1e-9, 1.0 - busy) * buffers)
        title = f'Ape-X, {buffers} buffer{"s" if buffers > 1 else ""}'
        result[title] = Asked(CHUNK, size, 0.0, max(learner, taken), 0, found['weights'], updates=updates)
    for alg in ('ES', 'ARS'):
        found = measured[alg]
        pairs = found['agent'].perturbations[0]
        learner = receive(64) + reply + (found['update'] + save(found['weights'])) / (2 * pairs)
        result[alg] = Asked(EPISODE, 16, 0.0, learner, 2 * pairs, found['weights'], most=2 * pairs)
    return result


def real(alg: str, actors: int, step: float, params: dict[str, Any], seconds: float) -> float:
    """Return the steps a second of a real training with so many actors."""
    from zoo import build_env

    env = build_env(lambda: Sleeping(step))
    agent, own = agent_for(alg, env)
    times: list[tuple[float, int]] = []
    size = params['horizon'] * params.get('rollouts', actors)
    total = size * max(6, round(seconds * actors / step / size))
    agent.learn(
        env,
        **own | params | {'roles': {'learners': 1, 'actors': actors}, 'train_steps': total, 'log_every': size},
        callbacks=[lambda training: times.append((time.perf_counter(), training.steps))],
    )
    (begin, before), (end, after) = times[len(times) // 3], times[-1]
    return (after - before) / (end - begin)


def main() -> None:
    """The command."""
    parser = parser_of(__doc__)
    parser.add_argument('--step', type=float, default=10.0, metavar='MS', help='of the environment, milliseconds')
    parser.add_argument('--seconds', type=float, default=10.0, help='of each real training')
    options = parser.parse_args()
    load = os.getloadavg()[0]
    step = options.step / 1e3
    print('measuring', flush=True)
    cost = exchange_costs()
    points = {actors: simulated('local', actors, SIMULATED) for actors in ACTORS}
    few = {'horizon': 128, 'epochs': 10, 'batch_size': 64}
    measured = {
        'PPO': trained('PPO', 128 * 20, **few),
        'IMPALA': trained('IMPALA', 20 * 8 * 20, horizon=20, rollouts=8),
        'A3C': trained('A3C', 20 * 40, horizon=20),
        'ApexDQN': trained('ApexDQN', 1500, batch_size=512, updates=8, update_every=8, explore_steps=600),
        'ES': trained('ES', 5 * 2 * 32 * SHORT),
        'ARS': trained('ARS', 5 * 2 * 32 * SHORT),
    }
    acting = measured['PPO']['act']
    grows = max(0.0, points[ACTORS[-1]]['exchange'] - points[ACTORS[0]]['exchange']) / (ACTORS[-1] - ACTORS[0])
    cost['beside'] = Line(0.0, grows)
    known = asked_of(cost, measured, ACTORS[0])['IMPALA'].learner
    cost['beside'].fixed = max(0.0, points[ACTORS[0]]['learner'] - known)

    def asked(actors: int) -> dict[str, Asked]:
        return asked_of(cost, measured, actors)

    lines = [
        '# What many actors ask of one learner',
        '',
        f'`python benchmarks/scale/scaling.py --step {options.step:g}`, {stamp("tensorflow", "numpy", "gymnasium")}, '
        f'load average at the start {load:.1f}. '
        '[docs/howto/scaling.md](../../docs/howto/scaling.md) says what is assumed.',
        '',
        f'An environment of {options.step:g} ms a step with 17 observations and 6 actions, networks of 64 × 64 (ARS: '
        'linear), the engine `local`.',
        '',
        '## Measured',
        '',
        *header('what', 'µs', 'and for each MB'),
    ]
    titles = {'receive': 'to receive a message', 'reply': 'to send one', 'save': 'to publish weights'}
    lines += [
        row(title, f'{cost[name].fixed * 1e6:.0f}', f'{cost[name].each * 1e12:.0f}') for name, title in titles.items()
    ]
    lines.append(row('what the learner of IMPALA does beside, for a message', f'{cost["beside"].fixed * 1e6:.0f}', ''))
    lines.append(row('for each actor, at every message', f'{cost["beside"].each * 1e6:.3f}', ''))
    work = {
        'PPO': '128 steps, 10 epochs, minibatches of 64',
        'IMPALA': '8 rollouts of 20 steps',
        'A3C': 'a gradient of 20 steps, taken',
        'ApexDQN': '8 batches of 512',
        'ES': 'a generation',
        'ARS': 'a generation',
    }
    lines += [f'| update of {alg}: {what} | {measured[alg]["update"] * 1e6:.0f} | |' for alg, what in work.items()]
    lines += [
        f'| gradient of A3C, in an actor | {measured["A3C"]["gradient"] * 1e6:.0f} | |',
        f'| to store a step, by priority | {measured["ApexDQN"]["store"] * 1e6:.0f} | |',
        f'| to draw 8 batches of 512, by priority | {measured["ApexDQN"]["draw"] * 1e6:.0f} | |',
        f'| to act once | {acting * 1e6:.0f} | |',
        '',
        '## By the model',
        '',
        'Of all actors, each second; *at work* is the part of its time that an actor steps its environment; *enough* '
        'are the actors beyond which learner or buffers give no more, for PPO those that wait for half of their time.',
        '',
        *header(
            *('algorithm', 'actors', 'steps', 'at work', 'messages', 'MB in', 'MB of weights out', 'updates', 'enough')
        ),
    ]
    for alg in asked(1):
        for actors in ACTORS:
            one = asked(actors)[alg]
            rate = per_second(one, actors, step + acting)
            updates = one.updates or rate / one.update_messages
            # An actor asks for weights once for each of its messages, at most once for each update.
            out = min(rate, updates * actors) if not one.most else updates * min(actors, one.most)
            ideal = actors * (step + acting) ** -1
            enough = (one.steps * (step + acting) + one.own) / one.learner
            lines.append(
                f'| {alg} | {actors:,} | {rate * one.steps:,.0f} | {rate * one.steps / ideal:.0%} | {rate:,.0f} | '
                f'{rate * one.size / 1e6:.2f} | {out * one.weights / 1e6:.1f} | {updates:,.3g} | '
                f'{min(enough, one.most or enough):,.0f} |'
            )
    lines += [
        '',
        '## Beside simulated actors',
        '',
        f'The learner of IMPALA takes {SIMULATED:,} messages of actors that are always ready '
        '(`benchmarks/scale/many.py`). Processor time of a message; the model is fitted at 10 actors alone.',
        '',
        *header(
            'actors', 'µs by the model', 'measured', 'measured / model', 'messages a second by the model', 'measured'
        ),
        *(
            row(
                f'{actors:,}',
                f'{(by_model := asked(actors)["IMPALA"].learner) * 1e6:.0f}',
                f'{point["learner"] * 1e6:.0f}',
                f'{point["learner"] / by_model:.2f}',
                f'{1 / by_model:,.0f}',
                f'{point["messages_per_second"]:,.0f}',
            )
            for actors, point in points.items()
        ),
        '',
        '## Beside real runs',
        '',
        f'Trainings of {options.seconds:g} s, all on this machine.',
        '',
        *header('algorithm', 'actors', 'steps a second, predicted', 'measured', 'measured / predicted'),
    ]
    for alg, name, params in (('PPO', 'PPO, DPPO', few), ('IMPALA', 'IMPALA', {'horizon': 20, 'rollouts': 8})):
        for actors in (2, 4):
            one = asked(actors)[name]
            predicted = per_second(one, actors, step + acting) * one.steps
            found = real(alg, actors, step, params, options.seconds)
            print(f'{alg}, {actors} actors: {found:.0f} steps/s, predicted {predicted:.0f}', flush=True)
            lines.append(row(alg, actors, f'{predicted:,.0f}', f'{found:,.0f}', f'{found / predicted:.2f}'))
    write_page('scaling', lines)
    print('\n'.join(lines))


if __name__ == '__main__':
    main()
