"""The floor: an update beside its matrix products and element-wise work alone; and where a step on policy goes.

    python benchmarks/speed/floor.py              # some five minutes; writes results/floor.md
    python benchmarks/speed/floor.py ppo sac      # some of the tasks

The floor of an update is a program that does the passes through dense layers that the algorithm needs, forward and
backward, with biases and activations, then Adam and the moving of targets. It has no losses, random numbers, batches
that are drawn, or metrics, and no Python between its parts. It is compiled by XLA, and as a graph with oneDNN; the
faster one counts. Updates and floor take turns in one process, whose inputs are the same in every call.

The second table says where a step of PPO and A2C goes while they collect in an ordinary environment. The third one
asks what several agents in one program would give: the work of their updates, side by side in one XLA program, beside
one agent's. Processes of their own give as much as there are cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import answer_of, checked, environment, header, listed, parser_of, row, show, spread, today, write_page
from operations import random_batch
from tasks import TASKS, Task
from throughput import versions_of
from trainers import ON_POLICY, zoo_agent, zoo_arguments

NAMES = ('ppo', 'a2c', 'dqn', 'sac', 'td3')
#: How often an update may take the time of its floor.
AIMS = {'ppo': 1.5, 'a2c': 1.5, 'dqn': 1.25, 'sac': 1.25, 'td3': 1.25}
#: Agents side by side, and the tasks that are measured with them.
AGENTS, TOGETHER = (1, 4, 16), ('ppo', 'ppo-64', 'sac-64')
ROUNDS, SECONDS = 7, 0.5  # of turns in a process, and of one turn


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass of a batch through a network.

    Attributes:
        net: its name.
        rows: of the batch.
        back: what has gradients: ``'weights'``, ``'input'`` (the actions that a critic judges), or nothing.
    """

    net: str
    rows: int
    back: str = ''


@dataclasses.dataclass(frozen=True)
class Floor:
    """The work of one update.

    Attributes:
        sizes: inputs, hidden layers and outputs of each network.
        activation: of the hidden layers.
        passes: in their order.
        targets: networks that follow another one, which is named.
        once, repeats: passes that come once before the others, which come so many times.
    """

    sizes: dict[str, list[int]]
    activation: str
    passes: Sequence[Pass]
    targets: dict[str, str] = dataclasses.field(default_factory=dict)
    once: Sequence[Pass] = ()
    repeats: int = 1


def floors_of(task: Task, obs: int, actions: int) -> list[Floor]:
    """Return the work of an update, for each of its phases; ``actions`` are the outputs of an actor or of Q."""
    inner, rows = list(task.net_arch), task.batch_size
    if task.alg in ON_POLICY:
        sizes = {'actor': [obs, *inner, actions], 'critic': [obs, *inner, 1]}
        steps = task.nenv * task.n_steps
        batch, repeats = (steps, 1) if task.alg == 'A2C' else (rows, task.n_epochs * steps // rows)
        both = [Pass(name, batch, 'weights') for name in sizes]
        return [Floor(sizes, 'tanh', both, once=[Pass('critic', steps)], repeats=repeats)]
    if task.alg == 'DQN':
        sizes = dict.fromkeys(('q', 'target'), [obs, *inner, actions])
        return [Floor(sizes, 'relu', [Pass('q', rows), Pass('target', rows), Pass('q', rows, 'weights')])]
    outputs = 2 * actions if task.alg == 'SAC' else actions
    sizes = {'actor': [obs, *inner, outputs]}
    sizes |= dict.fromkeys(('critic_1', 'critic_2', 'target_1', 'target_2'), [obs + actions, *inner, 1])
    follow = {'target_1': 'critic_1', 'target_2': 'critic_2'}
    critics = [Pass(f'target_{i}', rows) for i in (1, 2)] + [Pass(f'critic_{i}', rows, 'weights') for i in (1, 2)]
    if task.alg == 'SAC':
        judged = [Pass('actor', rows, 'weights'), Pass('critic_1', rows, 'input'), Pass('critic_2', rows, 'input')]
        return [Floor(sizes, 'relu', [Pass('actor', rows), *critics, *judged], follow)]
    sizes['actor_target'] = sizes['actor']
    first = [Pass('actor_target', rows), *critics]
    judged = [Pass('actor', rows, 'weights'), Pass('critic_1', rows, 'input')]
    return [Floor(sizes, 'relu', first), Floor(sizes, 'relu', first + judged, follow | {'actor_target': 'actor'})]


def program_of(floor: Floor, xla: bool, agents: int = 1) -> Callable[[], Any]:
    """Return the compiled work of an update, of several agents side by side if there are more than one."""
    import tensorflow as tf

    lead = [agents] if agents > 1 else []

    activations = {
        'relu': (tf.nn.relu, lambda h: tf.cast(h > 0, tf.float32)),
        'tanh': (tf.tanh, lambda h: 1.0 - tf.square(h)),
    }
    forward, slope = activations[floor.activation]
    weights = {
        net: [
            (tf.Variable(tf.random.normal([*lead, a, b]) / a**0.5), tf.Variable(tf.zeros([*lead, 1, b])))
            for a, b in zip(sizes, sizes[1:], strict=False)
        ]
        for net, sizes in floor.sizes.items()
    }
    trained = {one.net for one in floor.passes if one.back == 'weights'}
    flat = [v for net in floor.sizes if net in trained for pair in weights[net] for v in pair]
    moments = {id(v): (tf.Variable(tf.zeros_like(v)), tf.Variable(tf.ones_like(v))) for v in flat}
    inputs = {
        (one.net, one.rows): tf.random.normal([*lead, one.rows, floor.sizes[one.net][0]])
        for one in (*floor.passes, *floor.once)
    }

    def go(one: Pass) -> tuple[Any, list[Any]]:
        layers, seen = weights[one.net], [inputs[one.net, one.rows]]
        for kernel, bias in layers[:-1]:
            seen.append(forward(tf.matmul(seen[-1], kernel) + bias))
        output = tf.matmul(seen[-1], layers[-1][0]) + layers[-1][1]
        if not one.back:
            return tf.reduce_sum(output), []
        found, gradient = [], output
        for i in reversed(range(len(layers))):
            if one.back == 'weights':
                product = tf.matmul(seen[i], gradient, transpose_a=True)
                found = [product, tf.reduce_sum(gradient, -2, keepdims=True), *found]
            if i:
                gradient = tf.matmul(gradient, layers[i][0], transpose_b=True) * slope(seen[i])
            elif one.back == 'input':
                gradient = tf.matmul(gradient, layers[0][0], transpose_b=True)
        return tf.reduce_sum(gradient), found

    def move(variable: Any, gradient: Any) -> None:
        m, v = moments[id(variable)]
        if not xla:
            powers = tf.constant(0.5), tf.constant(0.5)
            rates = tf.constant(1e-5), tf.constant(0.9), tf.constant(0.999), tf.constant(1e-7)
            handles = variable.handle, m.handle, v.handle
            tf.raw_ops.ResourceApplyAdam(
                **dict(zip(('var', 'm', 'v'), handles, strict=True)),
                **dict(zip(('beta1_power', 'beta2_power'), powers, strict=True)),
                **dict(zip(('lr', 'beta1', 'beta2', 'epsilon'), rates, strict=True)),
                grad=gradient,
            )
            return
        m.assign(0.9 * m + 0.1 * gradient)
        v.assign(0.999 * v + 0.001 * tf.square(gradient))
        variable.assign_sub(1e-5 * m / (tf.sqrt(v) + 1e-7))

    def update() -> Any:
        sums, gradients = [], {}
        for one in floor.passes:
            total, found = go(one)
            sums.append(total)
            if found:
                gradients[one.net] = found
        for net, found in gradients.items():
            for variable, gradient in zip([v for pair in weights[net] for v in pair], found, strict=True):
                move(variable, gradient)
        for follower, leader in floor.targets.items():
            for own, other in zip(weights[follower], weights[leader], strict=True):
                for a, b in zip(own, other, strict=True):
                    a.assign_add(0.005 * (b - a))
        return tf.add_n(sums)

    def work() -> Any:
        total = tf.add_n([tf.zeros([]), *(go(one)[0] for one in floor.once)])
        if floor.repeats == 1:
            return total + update()
        return tf.while_loop(
            lambda i, _: i < floor.repeats,
            lambda i, total: (i + 1, total + update()),
            (0, total),
            parallel_iterations=1,
        )[1]

    return tf.function(work, jit_compile=xla, autograph=False).get_concrete_function()


def seconds_of(call: Callable[[], Any]) -> float:
    """Return the mean seconds of a call, over calls that last long enough together."""
    begin = now = time.perf_counter()
    count = 0
    while now - begin < SECONDS or count % 2:  # both phases of a delayed actor
        call()
        count += 1
        now = time.perf_counter()
    return (now - begin) / count


def update_of(agent: Any, env: Any, task: Task) -> Callable[[], Any]:
    """Return an update of the agent on data that stay the same."""
    if task.alg not in ON_POLICY:
        batch = random_batch(agent, task.batch_size)
        return lambda: agent.update_on(batch)
    rollout, learn = collecting(agent, env)[0].rollout(Counter(), task.n_steps), dict(zoo_arguments(task)[1])
    del learn['horizon']
    return lambda: agent.update(rollout, **learn)


class Counter:
    """Takes note of nothing."""

    def stepped(self, count: int, episodes: Sequence[Any]) -> None: ...


def collecting(agent: Any, env: Any) -> tuple[Any, Any]:
    """Return the experience of an environment in this process, and its collector."""
    from zoo.common.training.collection import Collection

    found = Collection(agent, env)
    found.restart(0)
    return found, found.collector


def parts_of(agent: Any, env: Any, task: Task) -> dict[str, float]:
    """Return the microseconds of a step of each copy while the agent collects, by parts."""
    experience, collector = collecting(agent, env)
    spent = {'the environment': 0.0, 'acting': 0.0}

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                spent[name] += time.perf_counter() - begin

        return instead

    collector.env.step, agent.act = timed('the environment', env.step), timed('acting', agent.act)
    for _ in range(2):
        experience.rollout(Counter(), 256)
    spent.update(dict.fromkeys(spent, 0.0))
    begin, before = time.perf_counter(), collector.steps
    while time.perf_counter() - begin < 4 * SECONDS:
        experience.rollout(Counter(), 256)
    total, steps = time.perf_counter() - begin, collector.steps - before
    del collector.env.step, agent.act
    return {name: 1e6 * x / steps for name, x in (spent | {'the rest': total - sum(spent.values())}).items()}


def work(name: str) -> None:
    """The worker: print the seconds of updates and floors, in turns, and the parts of a step."""
    task = TASKS[name]
    agent, env = zoo_agent('zoo', task)
    from gymnasium.spaces import Discrete

    space = agent.action_space
    actions = int(space.n) if isinstance(space, Discrete) else int(space.shape[0])
    floors = floors_of(task, agent.observation_space.shape[0], actions)
    programs = {xla: [program_of(floor, xla) for floor in floors] for xla in (True, False)}
    update = update_of(agent, env, task)
    for call in (*programs[True], *programs[False], update, update):
        call()
    found: dict[str, list[float]] = {'update': [], 'xla': [], 'graph': []}
    for _ in range(ROUNDS):
        found['update'].append(seconds_of(update))
        for kind, xla in (('xla', True), ('graph', False)):
            found[kind].append(statistics.mean(seconds_of(program) for program in programs[xla]))
    parts = parts_of(agent, env, task) if task.alg in ON_POLICY else {}
    print(json.dumps({'seconds': found, 'parts': parts, 'versions': versions_of('zoo')}), flush=True)


def gains(name: str) -> None:
    """The worker of the third table: print how many agents' updates are done in the time of one, in turns."""
    from zoo.common.tools.compilation import set_threads

    set_threads(False)
    programs = {n: [program_of(floor, True, n) for floor in floors_of(TASKS[name], 4, 2)] for n in AGENTS}
    for program in [each for found in programs.values() for each in found]:
        program()
    found: dict[int, list[float]] = {n: [] for n in AGENTS}
    for _ in range(ROUNDS):
        for n, each in programs.items():
            found[n].append(statistics.mean(seconds_of(program) for program in each))
    print(json.dumps({n: [n * a / b for a, b in zip(found[1], found[n], strict=True)] for n in AGENTS[1:]}), flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('tasks', nargs='*', metavar='TASK', help=', '.join(NAMES))
    parser.add_argument('--worker', nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        {'update': work, 'together': gains}[args.worker[0]](args.worker[1])
        return
    lines = [
        '# Updates beside their floor',
        '',
        f'`python benchmarks/speed/floor.py`, {os.cpu_count()} cores, no GPU. Medians of {ROUNDS} turns in one '
        'process; in brackets the least and the greatest ratio. An iteration of PPO has 320 updates.',
        '',
    ]
    for line in header('update', 'microseconds', 'floor by XLA', 'floor as a graph', 'ratio to the faster', 'aim'):
        show(lines, line)
    steps = []
    for name in checked(parser, 'task', args.tasks, NAMES):
        answer = answer_of([sys.executable, __file__, '--worker', 'update', name], environment())
        found = answer['seconds']
        middle = {kind: statistics.median(values) for kind, values in found.items()}
        best = min(('xla', 'graph'), key=middle.__getitem__)
        times = [f'{1e6 * middle[kind]:,.0f}' for kind in ('update', 'xla', 'graph')]
        each = [a / b for a, b in zip(found['update'], found[best], strict=True)]
        ratio = f'**{statistics.median(each):.2f}** ({spread(each)})'
        show(lines, row(TASKS[name].title, *times, ratio, f'{AIMS[name]:g}'))
        if answer['parts']:
            task = TASKS[name]
            update = 1e6 * middle['update'] / (task.nenv * task.n_steps)
            steps.append(row(name, *(f'{x:.1f}' for x in (*answer['parts'].values(), update))))
    lines += ['', 'Where a step of each copy goes, in microseconds:', '']
    for line in header('task', "the environment's `step`", 'acting', 'the rest of collecting', 'the update'):
        show(lines, line)
    for line in steps:
        show(lines, line)
    if not args.tasks:
        lines += ['', 'Agents whose updates are done in the time of one, where they are in one program:', '']
        for line in header('task', *(f'{n} agents' for n in AGENTS[1:])):
            show(lines, line)
        for name in TOGETHER:
            found = answer_of([sys.executable, __file__, '--worker', 'together', name], environment())
            cells = [f'{statistics.median(found[str(n)]):.2f} ({spread(found[str(n)])})' for n in AGENTS[1:]]
            show(lines, row(TASKS[name].title, *cells))
    write_page('floor', [*lines, '', f'Versions: {listed(answer["versions"])}.', '', f'Run on {today()}.'])


if __name__ == '__main__':
    main()
