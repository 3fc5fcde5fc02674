"""Directives of the page about choosing: what each algorithm is for, and what the benchmarks have measured.

    ```{choices}
    ```
    ```{measured} CartPole-v1
    ```
    ```{scored} HalfCheetah-v5
    ```

``choices`` is the table of all algorithms. ``measured`` has the steps and the time to the aim of an environment, from
``benchmarks/results/stability.json``; ``scored`` the scores of the default settings, from ``learning.json``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from docutils import nodes
from facts import LOOPS, RESULTS, find, results_of, table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

#: When to take an algorithm. One that is missing here ends the build.
WHEN = {
    'VPG': 'to learn how a policy gradient works',
    'AC': 'to learn how an actor and a critic work together',
    'A2C': 'a fast simulator and short rollouts; PPO is the safer choice',
    'PPO': 'the first choice: any space, fast, forgiving',
    'TRPO': 'as PPO, if single updates spoil the policy',
    'OffPAC': 'to study learning from another policy',
    'DQN': 'one choice of a few actions, and steps are costly',
    'C51': 'as DQN, with a distribution of returns between known limits',
    'QRDQN': 'as DQN, with a distribution of returns without limits',
    'Rainbow': 'DQN with all of its switches at once; slower a step',
    'DDPG': 'a baseline; TD3 is DDPG with three repairs',
    'TD3': 'continuous control with a deterministic policy',
    'SAC': 'the first choice for continuous control if steps are costly',
    'TQC': 'as SAC, where SAC values actions too highly',
    'CrossQ': 'as SAC, with batch renormalization in place of target networks',
    'DPPO': 'PPO on several cores or machines',
    'A3C': 'to compare with the paper; IMPALA corrects what A3C leaves',
    'IMPALA': 'many actors, environments of unequal speed',
    'ApexDQN': 'DQN with many actors and a replay buffer of its own',
    'ApexDDPG': 'DDPG with many actors and a replay buffer of its own',
    'R2D2': 'as ApexDQN, where an observation does not show everything',
    'PQN': 'one choice of a few actions, and a fast simulator in many copies',
    'TD3BC': 'a log with rewards: the simplest, one term more than TD3',
    'IQL': 'a log with rewards: the first choice, values no action that is not in it',
    'CQL': 'a log with rewards: careful values, also for one choice of a few',
    'AWAC': 'a log first, and then many steps in the environment',
    'FQL': 'a log whose actions have several modes',
    'BC': 'episodes of an expert, and nothing else: the first thing to try',
    'MARWIL': 'as BC, with rewards, where some episodes are better than others',
    'DAgger': 'an expert that can be asked again and again',
    'GAIL': 'a few episodes of an expert, and a fast simulator without a reward',
    'GAILTRPO': 'GAIL as in its paper',
    'ES': 'many processes, small messages, no gradients',
    'ARS': 'a linear policy, quick to try first',
}


def link(name: str) -> str:
    return f'[{name}](/algorithms/{name.lower()}.md)'


def roles_of(cls: Any) -> str:
    """Return the processes that an algorithm starts by itself."""
    roles = cls.learn_defaults.get('roles')
    if not roles:
        return 'one; more with `roles`'
    return ', '.join(f'{n} {name if n > 1 else name[:-1]}' for name, n in roles.items())


def _takes_data(cls: Any) -> bool:
    """Return whether an algorithm can learn from recorded episodes."""
    return bool({'dataset', 'recorded'} & cls.learn_params().keys())


def choices(_: str = '') -> str:
    from zoo import algorithms
    from zoo.common.training import loops

    rows = []
    for name in algorithms.NAMES:
        cls = find(name)
        loop = next(key for key in LOOPS if getattr(loops, key) is cls.loop)
        everything = not cls.acts_in or 'Dict' in cls.acts_in
        spaces = 'everything' if everything else ', '.join(f'`{space}`' for space in cls.acts_in)
        alone = loop in ('offline', 'dagger')
        recorded = 'nothing else' if loop == 'offline' else 'yes' if _takes_data(cls) else 'no'
        rows.append((link(name), spaces, LOOPS[loop], recorded, 'one' if alone else roles_of(cls), WHEN[name]))
    columns = ('algorithm', 'acts in', 'learns from', 'recorded data too', 'processes by default', 'take it for')
    return table(columns, rows)


def page_of(key: str) -> str:
    """Return a link to the curves of a row of ``learning.json``."""
    return f'[{key}](/repository/benchmarks/results/curves/{key}.md)'


def default_rows(env_id: str) -> Iterator[tuple[str, list[dict[str, Any]], Any]]:
    """Yield the rows of ``learning.json`` with the default settings: name, entries, what was asked for."""
    import learning

    kept = results_of('learning')
    for key, asked in learning.ROWS.items():
        if asked.env_id == env_id and not asked.below and not learning.options_of(asked) and kept.get(key):
            yield key, list(kept[key].values()), asked


def measured(env_id: str) -> str:
    import stability

    kept = results_of('stability')
    rows = []
    for key, asked in stability.ROWS.items():
        entries = [entry for entry in kept.get(key, {}).values() if 'mean' in entry]
        if asked.env_id != env_id or asked.library != 'zoo' or asked.changes or asked.busy or not entries:
            continue
        found = []
        for entry in entries:
            reached = [i for i, value in enumerate(entry['tests'], 1) if value >= asked.aim]
            found.append(round(reached[0] * asked.steps / len(entry['tests']), -2) if reached else float('inf'))
        steps = statistics.median(found)
        seconds = statistics.median(entry['seconds'] for entry in entries)
        kept_it = sum(entry['mean'] >= asked.aim for entry in entries)
        rows.append(
            (
                steps,
                link(asked.alg),
                f'{steps:,.0f}' if steps < float('inf') else '–',
                f'{kept_it} of {len(entries)}',
                f'{asked.steps:,}',
                f'{seconds:.0f} s',
                f'`{key}`',
            )
        )
    aim = stability.AIMS[env_id]
    known = {row[1] for row in rows}
    for key, entries, asked in default_rows(env_id):
        if link(asked.alg) not in known:  # only the score at the end has been measured
            kept_it = f'{sum(entry["mean"] >= aim for entry in entries)} of {len(entries)}'
            seconds = 60 * statistics.median(entry['minutes'] for entry in entries)
            steps = entries[0]['train_steps']
            rows.append((float('inf'), link(asked.alg), '–', kept_it, f'{steps:,}', f'{seconds:.0f} s', page_of(key)))
    columns = ('algorithm', f'steps to a test of {aim:g}', 'seeds at the aim at the end', 'steps', 'time', 'row')
    return table(columns, [entry[1:] for entry in sorted(rows, key=lambda entry: entry[0])])


def scored(env_id: str) -> str:
    import learning

    kept = results_of('learning')
    rows = []
    for key, asked in learning.ROWS.items():
        entries = list(kept.get(key, {}).values())
        if asked.env_id != env_id or asked.below or not entries:
            continue
        means = [entry['mean'] for entry in entries]
        digits = learning.digits_of(asked)
        minutes = statistics.median(entry['minutes'] for entry in entries)
        rows.append(
            (
                link(asked.alg),
                learning.options_of(asked).removeprefix(', ') or '–',
                f'{entries[0]["train_steps"]:,}',
                f'{statistics.median(means):.{digits}f}',
                f'{min(means):.{digits}f}',
                len(means),
                f'{minutes:.1f}',
                page_of(key),
            )
        )
    columns = ('algorithm', 'settings', 'steps', 'median score', 'worst seed', 'seeds', 'minutes a seed', 'row')
    return table(columns, rows)


DIRECTIVES: dict[str, Callable[[str], str]] = {'choices': choices, 'measured': measured, 'scored': scored}


class Chosen(SphinxDirective):
    """One of :data:`DIRECTIVES`; its argument is the name of an environment."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = DIRECTIVES[self.name](self.arguments[0] if self.arguments else '')
        for file in RESULTS.glob('*.json'):
            self.env.note_dependency(str(file))
        self.env.note_dependency(__file__)
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, Any]:
    for name in DIRECTIVES:
        app.add_directive(name, Chosen)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
