"""Directives that write what the code and the results of the benchmarks say about an algorithm.

    ```{facts} TD3
    ```

``facts`` is what it acts in, its networks and how it learns; ``parameters`` the tables of ``zoo.describe``; ``defaults``
where its default hyper-parameters come from; ``departures`` how it differs from the paper; ``scores`` and ``speed`` its
rows in ``benchmarks/results``; ``algorithms`` is the table of all algorithms, without an argument.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import statistics
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from docutils import nodes
from repository import ROOT
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path += [str(ROOT / 'benchmarks' / part) for part in ('', 'scores', 'speed')]

RESULTS = ROOT / 'benchmarks' / 'results'

#: The words for the loops of zoo/common/training/loops.py.
LOOPS = {
    'on_policy': 'rollouts of the current policy',
    'off_policy': 'a replay buffer',
    'streamed': 'rollouts of actors that nobody waits for',
    'asynchronous': 'gradients that actors compute',
    'evolution': 'whole episodes of perturbed policies',
}


def table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ('---',) * len(columns), *rows]
    cells = [[str(cell).replace('\n', ' ').replace('|', '\\|') for cell in line] for line in lines]
    return '\n'.join(f'| {" | ".join(line)} |' for line in cells)


@cache
def find(name: str) -> Any:
    """Return the class of an algorithm."""
    from zoo import algorithms

    return getattr(algorithms, name)


def results_of(name: str) -> dict[str, Any]:
    """Return what a benchmark has written."""
    return json.loads((RESULTS / f'{name}.json').read_text(encoding='utf-8'))


def code(text: Any) -> str:
    """Return a text in the type of code, or nothing."""
    return f'`{text}`' if str(text) else ''


def facts(name: str) -> str:
    from zoo.common.training import loops

    cls = find(name)
    file = inspect.getfile(cls)[len(str(ROOT)) + 1 :]
    spaces = ', '.join(f'`{space}`' for space in cls.acts_in) if cls.acts_in else 'every action space'
    rows: list[tuple[Any, ...]] = [
        ('Acts in', spaces),
        ('Learns from', next(words for name, words in LOOPS.items() if getattr(loops, name) is cls.loop)),
        ('Entries of `net_list`', ', '.join(f'`{entry}`' for entry in cls.network_names)),
        ('Entries of `optimizers_list`', ', '.join(f'`{entry}`' for entry in cls.optimizer_names)),
        ('Metrics', ', '.join(f'`{entry}`' for entry in cls.metric_names)),
        ('File', f'[{file}](source:{file}), {len((ROOT / file).read_text().splitlines())} lines'),
    ]
    return table(('', ''), rows)


def parameters(name: str) -> str:
    from zoo.algorithms.base.describing import describe

    found = describe(name)
    parts = []
    for title, params in (('`alg_params`: the algorithm', found.constructor), ('`learn_params`: `learn`', found.learn)):
        rows = [(code(p.name), code(p.default_text), p.type_name, p.meaning) for p in params]
        parts.append(f'**{title}**\n\n' + table(('parameter', 'default', 'values', 'meaning'), rows))
    return '\n\n'.join(parts)


def defaults(name: str) -> str:
    module = importlib.import_module(f'zoo.default_params.{find(name).__module__.rpartition(".")[2]}')
    file = f'zoo/default_params/{module.__name__.rpartition(".")[2]}.py'
    text = inspect.cleandoc(module.__doc__ or '').partition('\n\n')[2]
    names = [f'`{key}`' for key in getattr(module, 'TUNED', {})]
    tuned = f'\n\nTuned for: {", ".join(names)}.' if names else ''
    return f'{markdown(text)}{tuned}\n\nThe table: [{file}](source:{file}).'


def markdown(text: str) -> str:
    """Return the Markdown of a docstring: its code and its roles in one pair of backticks."""
    text = re.sub(r':\w+:`[~.]*([^`<]*?)`', lambda found: f'`{found[1]}`', text)
    return re.sub(r'``([^`]+)``', r'`\1`', text)


def departures(name: str) -> str:
    found = inspect.getdoc(sys.modules[find(name).__module__]) or ''
    parts = re.findall(r'^Departures?(?: from [^:]*)?: ?(.*?)(?=\n\n|\Z)', found, re.DOTALL | re.MULTILINE)
    return markdown('\n\n'.join(parts)) or 'None is known.'


def scores(name: str) -> str:
    import learning
    import stability

    parts = []
    kept = results_of('learning')
    rows = []
    for key, asked in learning.ROWS.items():
        if asked.alg == name and not asked.below and kept.get(key):
            entries = list(kept[key].values())
            means = [entry['mean'] for entry in entries]
            digits = learning.digits_of(asked)
            rows.append(
                (
                    f'[`{asked.env_id}`](/repository/benchmarks/results/curves/{key}.md)',
                    learning.options_of(asked) or '–',
                    f'{entries[0]["train_steps"]:,}',
                    len(means),
                    f'{statistics.median(means):.{digits}f}',
                    f'{min(means):.{digits}f}',
                    f'{statistics.median(entry["minutes"] for entry in entries):.1f}',
                )
            )
    if rows:
        columns = ('environment', 'settings', 'steps', 'seeds', 'median score', 'worst seed', 'minutes a seed')
        parts.append(table(columns, rows))
    kept = results_of('stability')
    rows = []
    for key, held in stability.ROWS.items():
        entries = [entry for entry in kept.get(key, {}).values() if 'mean' in entry]
        if held.alg == name and held.library == 'zoo' and entries:
            means = [entry['mean'] for entry in entries]
            switches = ', '.join(f'`{switch}={value}`' for switch, value in held.changes.items()) or '–'
            share = f'{sum(mean >= held.aim for mean in means)} of {len(means)}'
            rows.append(
                (
                    f'`{held.env_id}`',
                    switches,
                    f'{held.steps:,}',
                    f'{held.aim:g}',
                    share,
                    f'{statistics.median(means):.0f}',
                    f'{min(means):.0f}',
                )
            )
    if rows:
        columns = ('environment', 'switches', 'steps', 'aim', 'seeds that reach it', 'median', 'worst')
        parts.append('On seeds that nothing was tuned on:\n\n' + table(columns, rows))
    curves = sorted(path.name for path in (RESULTS / 'curves').glob('*-0.png') if curve_of(path.name) == name)
    if curves:
        pictures = [
            f'[![{curve}](/repository/benchmarks/results/curves/{curve})](/repository/benchmarks/results/curves/{curve[:-6]}.md)'
            for curve in curves[:2]
        ]
        parts.append('Learning curves of the first seed:\n\n' + '\n\n'.join(pictures))
    return '\n\n'.join(parts) or 'No score has been measured yet.'


def curve_of(file: str) -> str | None:
    """Return whose default settings a picture of a curve shows."""
    import learning

    asked = learning.ROWS.get(file.removesuffix('-0.png'))
    return asked.alg if asked and not asked.below and not learning.options_of(asked) else None


def speed(name: str) -> str:
    word = {'QRDQN': 'QR-DQN'}.get(name, name)
    labels = {'sb3': 'Stable-Baselines3', 'contrib': 'sb3-contrib', 'sbx': 'SBX'}
    rows = []
    for entry in results_of('throughput').values():
        rates = {library: statistics.median(found) for library, found in entry['rates'].items() if found}
        if not re.match(rf'(?:collecting with )?{word}\b', entry['title']) or 'zoo' not in rates:
            continue
        pairs = [
            statistics.median(a / b for a, b in zip(entry['rates']['zoo'], entry['rates'][peer], strict=False))
            if peer in rates
            else None
            for peer in labels
        ]
        rows.append((entry['title'], f'{rates["zoo"]:,.0f}', *(f'{pair:.2f}' if pair else '–' for pair in pairs)))
    if not rows:
        return 'No speed has been measured beside a peer.'
    columns = ('work', 'steps per second', *(f'zoo / {label}' for label in labels.values()))
    note = (
        'Ratios of one alternating run on two cores; [the whole table](/repository/benchmarks/results/throughput.md).'
    )
    return table(columns, rows) + f'\n\n{note}'


def every_algorithm(_: str = '') -> str:
    from zoo import algorithms

    rows = []
    for name in algorithms.NAMES:
        cls = find(name)
        summary = (inspect.getdoc(sys.modules[cls.__module__]) or '').partition('\n')[0].rstrip('.')
        spaces = ', '.join(f'`{space}`' for space in cls.acts_in) if cls.acts_in else 'everything'
        rows.append(
            (
                f'[{name}](/algorithms/{name.lower()}.md)',
                markdown(summary),
                spaces,
                ', '.join(f'`{entry}`' for entry in cls.network_names),
            )
        )
    return table(('name', 'what it is', 'acts in', 'entries of `net_list`'), rows)


DIRECTIVES: dict[str, Callable[[str], str]] = {
    'facts': facts,
    'parameters': parameters,
    'defaults': defaults,
    'departures': departures,
    'scores': scores,
    'speed': speed,
    'algorithms': every_algorithm,
}


class Generated(SphinxDirective):
    """One of :data:`DIRECTIVES`; its argument is the name of an algorithm."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = DIRECTIVES[self.name](self.arguments[0] if self.arguments else '')
        for file in (*RESULTS.glob('*.json'), ROOT / 'zoo' / 'algorithms' / f'{"".join(self.arguments).lower()}.py'):
            self.env.note_dependency(str(file))
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, Any]:
    for name in DIRECTIVES:
        app.add_directive(name, Generated)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
